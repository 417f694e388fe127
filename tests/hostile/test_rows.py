"""Runs each row of the table beside a bystander: no other client notices, and memory is released."""

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
    """An administrator, so that only the limits of the server stop the attack."""
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
        late = 504 in set(attacker.codes) - allowed  # a request that had not ended at its deadline
        if not bystander.why() and not late:
            break  # otherwise another program may have slowed it down: an attack that is effective is so every time
        if late and left:
            attacker.codes.clear()
        allowed.add(409)  # the objects that it creates exist already
    assert set(attacker.codes) <= allowed, (name, sorted(set(attacker.codes)))
    admin("DELETE", f"/api/v1/namespaces/{room}")
    comes_back(target, before, row.mb)


def test_the_table_has_enough_rows() -> None:
    assert len(ROWS) >= 60
