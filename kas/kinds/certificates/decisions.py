"""What certificate requests of both kinds do with the conditions of a written status: stored decisions stay, and times are filled in."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Conditions = list[dict[str, Any]]


def kept_conditions(new: Conditions, stored: Conditions, kinds: Iterable[str]) -> Conditions:
    """Return copies of ``new``; those of a type in ``kinds`` are the stored ones, if as many of that type are stored."""
    out = [dict(condition) for condition in new]
    for kind in kinds:
        now = [i for i, condition in enumerate(out) if condition.get("type") == kind]
        then = [condition for condition in stored if condition.get("type") == kind]
        if len(now) == len(then):
            for i, condition in zip(now, then, strict=True):
                out[i] = dict(condition)
    return out


def stamp_transitions(items: Conditions, stored: Conditions, now: str) -> None:
    """Set missing times of transition to that of the first stored condition of the same type and status, or to ``now``."""
    since = {(c.get("type"), c.get("status")): c["lastTransitionTime"] for c in reversed(stored) if c.get("lastTransitionTime")}
    for condition in items:
        if not condition.get("lastTransitionTime"):
            condition["lastTransitionTime"] = since.get((condition.get("type"), condition.get("status")), now)
