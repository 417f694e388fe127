"""Recorded conversations about admission webhooks and policies, with webhooks that answer by their rules. All answers are the same."""

from __future__ import annotations

import re

import pytest

from tests import need
from tests.clients import replay
from tests.clients.conversation import Connection
from tests.clients.hooked import HookedConversation, Hooks
from tests.vectors import files

# Those with definitions are about resources that are not served yet. The one about time depends on how fast the machine is;
# tests/admission/webhook has its cases.
ROWS = [
    row for row in files.lines("http-extend")
    if re.match("http/(webhook|policy|mutating-policy)/(?!timeout)", row["id"]) and "customresourcedefinitions" not in str(row["in"])
]  # fmt: skip
PARAMS = [pytest.param(row, id=row["id"][5:]) for row in ROWS] or [pytest.param(None, id="none", marks=need.missing("no conversations"))]
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
    conversation = HookedConversation(connection, row["id"].partition("/")[2], hooks, me)
    steps = row["in"]["steps"]
    different, _, _ = replay.compare(row, [conversation.play(step) for step in steps])
    assert not [f"step {i} {steps[i]['method']} {steps[i]['path']}: " + "; ".join(what[:4]) for i, what, _ in different]
