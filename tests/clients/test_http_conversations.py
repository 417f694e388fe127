"""Recorded conversations with kube-apiserver 1.36.2, replayed against a fresh server without controllers.

A conversation passes when exactly the steps differ that ``known_differences.txt`` lists for it.
"""

from __future__ import annotations

import pytest

from tests import prerequisites
from tests.clients import replay
from tests.vectors import files

ROWS = replay.recorded()
MISSING = f"no recorded conversations in {files.DIRECTORY}"
PARAMS = [pytest.param(row, id=row["id"][5:]) for row in ROWS] or [pytest.param(None, id="none", marks=prerequisites.missing(MISSING))]

pytestmark = pytest.mark.client


@pytest.fixture(scope="module")
def known() -> dict[tuple[str, int], str]:
    return replay.known_differences()


@pytest.mark.parametrize("row", PARAMS)
def test_conversation(row, connection, known, tell):
    name = row["id"][5:]
    different, status, requests = replay.compare(row, replay.converse(connection, row))
    loose = requests - sum(not only_managed for _, _, only_managed in different)
    tell(
        "http",
        f"conversations=1 alike={int(not different)} requests={requests} status={status} loose={loose} exact={requests - len(different)}",
    )
    steps = row["in"]["steps"]
    found = {i: f"step {i} {steps[i]['method']} {steps[i]['path']}: " + "; ".join(what[:4]) for i, what, _ in different}
    listed = {i for (conversation, i) in known if conversation == name}
    by_day = {i for i in listed if known[name, i].startswith(replay.CLOCK)}
    new = [found[i] for i in sorted(set(found) - listed)]
    gone = sorted(listed - by_day - set(found))
    assert not new, "answers that differ from the recorded ones:\n  " + "\n  ".join(new)
    assert not gone, f"{replay.KNOWN.name} lists steps that do not differ any more: {gone}"


def test_every_known_difference_names_an_existing_step(known):
    """A line about a conversation or step that does not exist would hide nothing, and mislead."""
    if not ROWS:
        prerequisites.give_up(MISSING)
    steps = {row["id"][5:]: len(row["in"]["steps"]) for row in ROWS}
    assert not [key for key in known if key[1] >= steps.get(key[0], 0)]
