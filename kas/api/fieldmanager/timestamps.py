"""Writes that change nothing but the time of managers (apiserver ``handlers/fieldmanager/equality.go``)."""

from __future__ import annotations

from typing import Any

from kas._fast_fields import deep_equal

Obj = dict[str, Any]


def keep_timestamps(live: Obj, new: Obj) -> Obj:
    """``new`` with the live managedFields when the two differ in nothing but managers' times; else ``new`` itself.

    The resource version does not count. Callers then see a write without effect and skip it.
    """
    live_meta, new_meta = live.get("metadata") or {}, new.get("metadata") or {}
    old_entries, entries = live_meta.get("managedFields"), new_meta.get("managedFields")
    if not old_entries or not entries or entries is old_entries or len(entries) != len(old_entries):
        return new
    for a, b in zip(old_entries, entries, strict=True):
        if a is not b and not deep_equal(_timeless(a), _timeless(b)):
            return new
    if not deep_equal(_bare(live_meta), _bare(new_meta)):
        return new
    if live.keys() != new.keys() or not all(deep_equal(live[k], new[k]) for k in live if k != "metadata"):
        return new
    return {**new, "metadata": {**new_meta, "managedFields": old_entries}}


def _timeless(entry: Obj) -> Obj:
    return {k: v for k, v in entry.items() if k != "time"}


def _bare(meta: Obj) -> Obj:
    return {k: v for k, v in meta.items() if k not in ("managedFields", "resourceVersion")}
