"""Recorded conversations about webhooks for admission and conversion and about policies, with webhooks that answer by their rules.

``extend_not_yet.txt`` lists those that are not replayed, ``extend_differences.txt`` the responses that differ.
"""

from __future__ import annotations

import re

import pytest

from tests import prerequisites
from tests.clients import replay
from tests.clients.conversation import Connection
from tests.clients.hooked import HOOKED, HookedConversation, Hooks
from tests.clients.test_extend_conversations import KNOWN, is_listed, not_yet
from tests.vectors import files

ROWS = [row for row in files.lines("http-extend") if HOOKED.match(row["id"][5:]) and not is_listed(row["id"][5:], not_yet())]
NONE = pytest.param(None, id="none", marks=prerequisites.missing("no conversations"))
PARAMS = [pytest.param(row, id=row["id"][5:]) for row in ROWS] or [NONE]
REVIEW = b'{"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}'

pytestmark = pytest.mark.client


@pytest.fixture(scope="module")
def connection(module_server):
    connection = Connection(module_server("--controllers=none", "--unsafe-no-fsync", "--advertise-address=127.0.0.1", workers=2))
    yield connection
    connection.close()


@pytest.fixture(scope="module")
def hooks(tmp_path_factory):
    with Hooks(tmp_path_factory.mktemp("hooks")) as running:
        yield running


@pytest.fixture(scope="module")
def me(connection):
    headers = {**connection.authorization, "Content-Type": "application/json"}
    _, _, body = connection.request("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", REVIEW, headers)
    return re.search(rb'"username":"([^"]*)"', body)[1].decode()


@pytest.mark.parametrize("row", PARAMS)
def test_conversation(row, connection, hooks, me):
    name = row["id"].partition("/")[2]
    conversation = HookedConversation(connection, name, hooks, me)
    steps = row["in"]["steps"]
    different, _, _ = replay.compare(row, [conversation.play(step) for step in steps])
    known = {i for (listed, i) in replay.known_differences(KNOWN) if listed == name}
    assert not [f"step {i} {steps[i]['method']} {steps[i]['path']}: " + "; ".join(what[:4]) for i, what, _ in different if i not in known]
    assert not known - {i for i, _, _ in different}, f"{KNOWN.name} lists steps that do not differ any more"
