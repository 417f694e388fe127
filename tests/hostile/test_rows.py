"""Each row of the table beside a bystander: nobody else notices, and memory comes back."""

from __future__ import annotations

import importlib
from collections.abc import Iterator

import pytest

from kas.testing.server import KasServer
from tests.hostile.attacker import Attacker
from tests.hostile.bystander import AT_MOST, Bystander
from tests.hostile.conftest import Caller, comes_back, resident
from tests.hostile.rows import ROWS

MODULES = (
    "wire", "frames", "bodies", "lists", "definitions", "rights", "large", "upgrades", "loops", "columns", "floods", "many", "thousands",
    "past", "crowds",
)  # fmt: skip
TRIES_S = AT_MOST * 180  # an attack waits up to 120 s for an answer
for _module in MODULES:
    importlib.import_module(f"tests.hostile.rows_{_module}")


@pytest.fixture
def attacker(target: KasServer, room: str) -> Iterator[Attacker]:
    """An administrator, so that nothing but bounds of the server stands in the way."""
    one = Attacker(target, target.token, room)
    yield one
    one.clean()


@pytest.mark.timeout(TRIES_S)
@pytest.mark.parametrize("name", list(ROWS))
def test_row(target: KasServer, admin: Caller, bystander: Bystander, attacker: Attacker, room: str, name: str) -> None:
    row, before = ROWS[name], sum(resident(target).values())
    allowed = row.codes | {429}
    for left in reversed(range(AT_MOST)):
        if left < AT_MOST - 1:
            bystander.look_at_quiet()
        with bystander:
            row.attack(attacker)
        attacker.clean()
        late = 504 in set(attacker.codes) - allowed  # a request that did not come to its end before its deadline
        if not bystander.why() and not late:
            break  # else somebody else may have had the machine: what an attack does by itself it does again
        if late and left:
            attacker.codes.clear()
        allowed.add(409)  # what it makes is there already
    assert set(attacker.codes) <= allowed, (name, sorted(set(attacker.codes)))
    admin("DELETE", f"/api/v1/namespaces/{room}")
    comes_back(target, before, row.mb)


def test_there_are_rows_enough() -> None:
    assert len(ROWS) >= 60
