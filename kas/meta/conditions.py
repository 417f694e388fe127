"""Conditions of a status: one per type (upstream ``podutil.UpdatePodCondition``)."""

from __future__ import annotations

from typing import Any

Obj = dict[str, Any]


def with_condition(conditions: list[Obj], new: Obj) -> list[Obj]:
    """Returns ``conditions`` with ``new`` in place of the condition of its type, or appended. If the status is unchanged, the transition
    time is kept.
    """
    out, there = [], False
    for c in conditions:
        if c.get("type") != new["type"]:
            out.append(c)
            continue
        there = True
        since = c.get("lastTransitionTime") if c.get("status") == new["status"] else None
        out.append({**new, "lastTransitionTime": since} if since else new)
    return out if there else [*out, new]
