"""Writes that change nothing but the time of managers (apiserver ``handlers/fieldmanager/equality.go``)."""

from __future__ import annotations

from typing import Any

from kas.patch._fieldsets import equal_but_metadata, equal_but_times

Obj = dict[str, Any]

_BOOKKEEPING = ("managedFields", "resourceVersion")


def keep_timestamps(live: Obj, new: Obj) -> Obj:
    """``new`` with the live managedFields when the two differ in nothing but managers' times; else ``new`` itself.

    The resource version does not count. Callers then see a write without effect and skip it.
    """
    live_meta, new_meta = live.get("metadata") or {}, new.get("metadata") or {}
    old_entries, entries = live_meta.get("managedFields"), new_meta.get("managedFields")
    if not old_entries or not entries or entries is old_entries or len(entries) != len(old_entries):
        return new
    if not equal_but_metadata(live, new, _BOOKKEEPING) or not equal_but_times(old_entries, entries):
        return new
    return {**new, "metadata": {**new_meta, "managedFields": old_entries}}
