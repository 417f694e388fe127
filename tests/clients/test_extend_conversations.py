"""Recorded conversations with kube-apiserver 1.36.2 about CustomResourceDefinitions and their objects.

Those in which the server calls webhooks are replayed by ``test_admission_conversations.py``; those that are not replayed are in
``extend_not_yet.txt``, by prefix with the reason.
"""

from __future__ import annotations

import pytest

from tests import prerequisites
from tests.clients import replay
from tests.clients.conversation import diff, without
from tests.clients.hooked import HOOKED
from tests.clients.waiting import WaitingConversation
from tests.vectors import files

NOT_YET = replay.HERE / "extend_not_yet.txt"
KNOWN = replay.HERE / "extend_differences.txt"
TEXTS = "texts:"
MISSING = f"no recorded conversations in {files.DIRECTORY}"


def not_yet() -> dict[str, str]:
    """Prefixes of names -> why those conversations are not replayed."""
    lines = [line for line in NOT_YET.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    return dict(line.split("\t") for line in lines)


def is_listed(name: str, listed: dict[str, str]) -> bool:
    return any(name.startswith(beginning) for beginning in listed)


ROWS = [row for row in files.lines("http-extend") if not HOOKED.match(row["id"][5:]) and not is_listed(row["id"][5:], not_yet())]
PARAMS = [pytest.param(row, id=row["id"][5:]) for row in ROWS] or [pytest.param(None, id="none", marks=prerequisites.missing(MISSING))]

pytestmark = pytest.mark.client


@pytest.mark.parametrize("row", PARAMS)
def test_conversation(row, connection):
    name = row["id"][5:]
    conversation = WaitingConversation(connection, name)
    got = conversation.all(row["in"]["steps"], row["out"])
    different, _, _ = replay.compare(row, got)
    steps = row["in"]["steps"]
    known = {i: reason for (listed, i), reason in replay.known_differences(KNOWN).items() if listed == name}
    new = [f"step {i} {steps[i]['method']} {steps[i]['path']}: " + "; ".join(what[:4]) for i, what, _ in different if i not in known]
    assert not new, "answers that differ from the recorded ones:\n  " + "\n  ".join(new)
    for i in (i for i, reason in known.items() if reason.startswith(TEXTS)):
        assert diff(without(row["out"][i], "description"), without(got[i], "description")) == []
    assert not set(known) - {i for i, _, _ in different}, f"{KNOWN.name} lists steps that do not differ any more"


def test_every_listed_conversation_exists():
    names = [row["id"][5:] for row in files.lines("http-extend")]
    if not names:
        prerequisites.give_up(MISSING)
    assert not [beginning for beginning in not_yet() if not is_listed_by(beginning, names)]
    assert {name for name, _ in replay.known_differences(KNOWN)} <= set(names)


def is_listed_by(beginning: str, names: list[str]) -> bool:
    return any(name.startswith(beginning) for name in names)
