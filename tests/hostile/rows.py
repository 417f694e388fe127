"""The table of attacks. Each module ``rows_*`` adds some in a few lines: what is sent, and the statuses that are accepted as answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tests.hostile.attacker import JSON, Attacker


class Row(NamedTuple):
    """An attack. Its answers must be among ``codes``, where 0 is none, and it may leave at most ``mb`` MiB in each worker."""

    attack: Callable[[Attacker], None]
    codes: set[int]
    mb: int


ROWS: dict[str, Row] = {}
MB = 96  # MiB that an attack may leave, unless it says otherwise


def row(name: str, *codes: int, mb: int = MB) -> Callable[[Callable[[Attacker], None]], Callable[[Attacker], None]]:
    """Adds an attack to the table."""

    def add(attack: Callable[[Attacker], None]) -> Callable[[Attacker], None]:
        assert name not in ROWS
        ROWS[name] = Row(attack, set(codes), mb)
        return attack

    return add


def posts(name: str, *codes: int, make: Callable[[], Any], to: str = "maps", ctype: str = JSON, query: str = "?dryRun=All") -> None:
    """An attack that sends one body four times at once."""

    def attack(a: Attacker) -> None:
        a.post((a.maps if to == "maps" else a.pods if to == "pods" else to) + query, make(), ctype)

    row(name, *codes)(attack)
