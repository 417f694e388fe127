"""managedFields entries: reading, identifying, ordering and capping them.

Upstream: apimachinery ``pkg/util/managedfields/internal`` (managedfields.go, capmanagers.go, buildmanagerinfo.go).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from kas.observe.caches import remembered
from kas.patch._fieldsets import canonical, is_set, union

Ident = tuple[str, str, str, str]  # manager, operation, API version ("" for appliers), subresource

MAX_UPDATE_MANAGERS = 10
ANCIENT = "ancient-changes"
MAX_MANAGER_NAME = 128


class Managed:
    """One manager's fields: a set of paths in one API version, and the time of their last change ("" if unknown)."""

    __slots__ = ("api_version", "applied", "entry", "fields", "time")

    def __init__(self, fields: dict, api_version: str, applied: bool, time: str = "", entry: dict | None = None) -> None:
        self.fields = fields
        self.api_version, self.applied, self.time = api_version, applied, time
        self.entry = entry  # the entry that this was read from, while it is still equal

    def with_fields(self, fields: dict) -> Managed:
        """Return the same manager with other fields; itself if the set is the same object."""
        return self if fields is self.fields else Managed(fields, self.api_version, self.applied, self.time)


Managers = dict[Ident, Managed]


def ident_of(manager: str, operation: str, api_version: str, subresource: str) -> Ident:
    """Return the identity of a manager; appliers keep theirs across versions."""
    return manager, operation, "" if operation == "Apply" else api_version, subresource


def ident_text(ident: Ident) -> str:
    """Return upstream's identifier, a JSON text. It orders managers that have the same time."""
    names = ("manager", "operation", "apiVersion", "subresource")
    return json.dumps({k: v for k, v in zip(names, ident, strict=True) if v}, separators=(",", ":"), ensure_ascii=False)


def read(entries: Iterable[dict[str, Any]], trusted: bool) -> Managers:
    """Decode entries into managers by identifier.

    ``trusted`` entries come from the store, where ``write`` put them. They are checked nonetheless, as another program may have written to
    etcd.

    Raises ValueError with upstream's reason for entries that cannot be used.
    """
    managers: Managers = {}
    for i, e in enumerate(entries):
        operation, api_version = e.get("operation", ""), e.get("apiVersion", "")
        if operation not in ("Apply", "Update"):
            raise ValueError("operation must be `Apply` or `Update`")
        if not api_version:
            raise ValueError("apiVersion must not be empty")
        fields_type = e.get("fieldsType", "")
        if fields_type != "FieldsV1":
            if not fields_type:
                raise ValueError(f"missing fieldsType in managed fields entry {i}")
            raise ValueError(f'invalid fieldsType "{fields_type}" in managed fields entry {i}')
        fields = e.get("fieldsV1")
        if fields is None:
            fields = {}
        if not trusted or not is_set(fields):
            try:
                fields = canonical(fields)
            except ValueError as err:
                raise ValueError(f"error decoding versioned set from {e.get('manager', '')}: error decoding set: {err}") from None
        ident = ident_of(e.get("manager", ""), operation, api_version, e.get("subresource", ""))
        managers[ident] = Managed(fields, api_version, operation == "Apply", e.get("time") or "", e if trusted else None)
    return managers


def is_reset(entries: Any) -> bool:
    """Whether a client asks to drop all managers: an empty list, or a list of one empty entry."""
    return entries is not None and (len(entries) == 0 or (len(entries) == 1 and not any(entries[0].values())))


def written(manager: str, operation: str, api_version: str, time: str, fields: Any, subresource: str) -> dict[str, Any]:
    """Return one entry; "" values are left out."""
    if manager and time and not subresource:  # the most common form
        return {
            "manager": manager, "operation": operation, "apiVersion": api_version, "time": time, "fieldsType": "FieldsV1",
            "fieldsV1": fields,
        }  # fmt: skip
    entry: dict[str, Any] = {}
    if manager:
        entry["manager"] = manager
    entry["operation"] = operation
    entry["apiVersion"] = api_version
    if time:
        entry["time"] = time
    entry["fieldsType"] = "FieldsV1"
    entry["fieldsV1"] = fields
    if subresource:
        entry["subresource"] = subresource
    return entry


def write(managers: Managers) -> list[dict[str, Any]]:
    """Return the entries in upstream's order: operation, time, manager, version, subresource. Unchanged entries stay the same objects."""
    out = []
    for ident, m in managers.items():
        if m.entry is not None:
            out.append(m.entry)
        else:
            out.append(written(ident[0], "Apply" if m.applied else ident[1], m.api_version, m.time, m.fields, ident[3]))
    if len(out) > 1:
        out.sort(key=order)
    return out


def order(e: dict[str, Any]) -> tuple[str, str, str, str, str]:
    """Return the sort key of an entry."""
    return e["operation"], e.get("time") or "", e.get("manager", ""), e["apiVersion"], e.get("subresource", "")


def cap(managers: Managers) -> None:
    """Merge the oldest update managers of a version into one, in place, until MAX_UPDATE_MANAGERS are left."""
    if len(managers) <= MAX_UPDATE_MANAGERS:
        return
    updaters = [i for i, m in managers.items() if not m.applied]
    if len(updaters) <= MAX_UPDATE_MANAGERS:
        return
    updaters.sort(key=lambda i: (managers[i].time, ident_text(i)))
    first: dict[str, Ident] = {}
    left = len(updaters)
    for ident in updaters:
        if left <= MAX_UPDATE_MANAGERS:
            return
        m = managers[ident]
        seen = first.get(m.api_version)
        if seen is None:
            first[m.api_version] = ident
            continue
        bucket = ident_of(ANCIENT, "Update", m.api_version, "")
        if bucket not in managers:
            managers[bucket] = managers.pop(seen)
        merged = Managed(union(m.fields, managers[bucket].fields), m.api_version, m.applied, m.time)
        # Upstream deletes after it assigns: a bucket that is merged into itself disappears, together with its fields.
        managers[bucket] = merged
        del managers[ident]
        left -= 1


def restore_after_admission(before: list[dict[str, Any]] | None, meta: dict[str, Any]) -> str | None:
    """Restore the managedFields that a mutating plug-in or webhook made unusable; changes ``meta`` in place.

    Returns a warning for the client, or None if the entries are usable (apiserver ``handlers/fieldmanager/admission.go``).
    """
    after = meta.get("managedFields")
    if after is before:
        return None
    try:
        read(after or [], trusted=False)
    except ValueError as e:
        if before is None:
            meta.pop("managedFields", None)
        else:
            meta["managedFields"] = before
        return (
            ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated mutating "
            f"admission controller; please fix your requests: {e}"
        )
    return None


def manager_name(field_manager: str, user_agent: str) -> str:
    """Return the manager of a request: the fieldManager option, else the user agent up to the first "/"."""
    return field_manager or _of_agent(user_agent)


@remembered("manager_names", "field managers named by user agents", 1024, 256)
def _of_agent(user_agent: str) -> str:
    out, size = [], 0
    for c in user_agent.split("/", 1)[0]:
        if not c.isprintable():
            continue
        size += len(c.encode())
        if size > MAX_MANAGER_NAME:
            break
        out.append(c)
    return "".join(out)
