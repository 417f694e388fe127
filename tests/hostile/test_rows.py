"""Each row of the table beside a bystander: nobody else notices, and memory comes back."""

from __future__ import annotations

import importlib
import time
from collections.abc import Iterator

import pytest

from kas.testing.server import KasServer
from tests.hostile.attacker import Attacker
from tests.hostile.bystander import Bystander
from tests.hostile.conftest import Caller, resident
from tests.hostile.rows import ROWS

for _module in ("wire", "bodies", "lists", "definitions"):
    importlib.import_module(f"tests.hostile.rows_{_module}")
RELEASED_S = 60  # until memory must have come back


@pytest.fixture
def attacker(target: KasServer, room: str) -> Iterator[Attacker]:
    """An administrator, so that nothing but bounds of the server stands in the way."""
    one = Attacker(target, target.token, room)
    yield one
    one.clean()


@pytest.mark.parametrize("name", list(ROWS))
def test_row(target: KasServer, admin: Caller, bystander: Bystander, attacker: Attacker, room: str, name: str) -> None:
    row, before = ROWS[name], sum(resident(target).values())
    with bystander:
        row.attack(attacker)
    assert set(attacker.codes) <= row.codes | {429}, (name, sorted(set(attacker.codes)))
    attacker.clean()
    admin("DELETE", f"/api/v1/namespaces/{room}")
    until = time.monotonic() + RELEASED_S
    while (grown := sum(resident(target).values()) - before >> 20) > row.mb:
        assert time.monotonic() < until, f"{grown} MiB more than before, {row.mb} allowed"
        time.sleep(0.2)


def test_there_are_rows_enough() -> None:
    assert len(ROWS) >= 60
