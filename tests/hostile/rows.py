"""The table of attacks. A module ``rows_*`` adds some, a few lines each: what is sent, and the statuses it may be answered with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tests.hostile.attacker import JSON, Attacker


class Row(NamedTuple):
    """An attack; its answers are among ``codes``, 0 being none, and it leaves at most ``mb`` of memory behind in each worker."""

    attack: Callable[[Attacker], None]
    codes: set[int]
    mb: int


ROWS: dict[str, Row] = {}
MB = 96  # that an attack may leave behind, if it does not say so


def row(name: str, *codes: int, mb: int = MB) -> Callable[[Callable[[Attacker], None]], Callable[[Attacker], None]]:
    """Adds an attack to the table."""

    def add(attack: Callable[[Attacker], None]) -> Callable[[Attacker], None]:
        assert name not in ROWS
        ROWS[name] = Row(attack, set(codes), mb)
        return attack

    return add


def posts(name: str, *codes: int, make: Callable[[], Any], to: str = "maps", ctype: str = JSON, query: str = "?dryRun=All") -> None:
    """An attack that is one body, four times at once."""

    def attack(a: Attacker) -> None:
        a.post((a.maps if to == "maps" else a.pods if to == "pods" else to) + query, make(), ctype)

    row(name, *codes)(attack)
