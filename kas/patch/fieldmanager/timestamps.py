"""Detection of writes that change nothing but the times of managers (apiserver ``handlers/fieldmanager/equality.go``)."""

from __future__ import annotations

from typing import Any

from kas._codecs import TypeDesc
from kas.meta.equality import semantic_equal
from kas.patch._fieldsets import equal_but_metadata, equal_but_times

Obj = dict[str, Any]

_BOOKKEEPING = ("managedFields", "resourceVersion")


def keep_timestamps(live: Obj, new: Obj, of: TypeDesc | None = None) -> Obj:
    """Return ``new`` with the live managedFields if only the managers' times differ; else ``new`` itself.

    The resource version is ignored. So are differences that Go objects of type ``of`` cannot represent: an apply merges empty maps and
    lists of its configuration into objects without them. Callers then recognize a write without effect and skip it.
    """
    live_meta, new_meta = live.get("metadata") or {}, new.get("metadata") or {}
    old_entries, entries = live_meta.get("managedFields"), new_meta.get("managedFields")
    if not old_entries or not entries or entries is old_entries or len(entries) != len(old_entries):
        return new
    if not equal_but_metadata(live, new, _BOOKKEEPING):
        if of is None or not equal_but_times(old_entries, entries) or not semantic_equal(_bare(live), _bare(new), of):
            return new
    elif not equal_but_times(old_entries, entries):
        return new
    return {**new, "metadata": {**new_meta, "managedFields": old_entries}}


def _bare(obj: Obj) -> Obj:
    return {**obj, "metadata": {k: v for k, v in obj["metadata"].items() if k not in _BOOKKEEPING}}
