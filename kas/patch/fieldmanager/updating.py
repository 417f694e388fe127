"""Who owns which field after a create, update or patch.

Upstream: apimachinery ``pkg/util/managedfields/internal`` (one wrapper a concern: fieldmanager.go, structuredmerge.go,
stripmeta.go, managedfieldsupdater.go, buildmanagerinfo.go, capmanagers.go, skipnonapplied.go) around structured-merge-diff
v6 ``merge/update.go``. Here the wrappers are the steps of one function; ``applying.py`` shares them.

Objects are dicts in the version of the schema; none is changed. No I/O.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson

from kas._codecs import RawJSON
from kas.meta.errors import ApiError
from kas.patch._fieldsets import (
    Mismatch,
    compare,
    created,
    deep_equal,
    difference,
    intersection,
    reconcile,
    recursive_difference,
    union,
    updated,
    validate,
)
from kas.patch.fieldmanager.conflicts import conflicts_of
from kas.patch.fieldmanager.entries import Ident, Managed, Managers, cap, ident_of, is_reset, order, read, write, written
from kas.patch.fieldmanager.schema import Schema

Obj = dict[str, Any]
Entries = list[dict[str, Any]]

NO_FIELDS: dict[str, Any] = {}


def field_set(paths: Iterable[str]) -> dict[str, Any]:
    """A set from dotted field names ("status", "metadata.deletionTimestamp"), the form of a strategy's reset fields."""
    out: dict[str, Any] = {}
    for path in paths:
        below: dict[str, Any] = {}
        for name in reversed(path.split(".")):
            below = {f"f:{name}": below}
        out = union(out, below)
    return out


class Only:
    """A filter that leaves nothing but the fields below some paths; for endpoints that can change little else.

    Paths are dotted names where ``*`` stands for any list item or field: ``spec.containers.*.resources``
    (``fieldpath.NewIncludeMatcherFilter``).
    """

    __slots__ = ("pattern",)

    def __init__(self, paths: Iterable[str]) -> None:
        self.pattern: dict[str, Any] = {}
        for path in paths:
            level = self.pattern
            for name in path.split("."):
                level = level.setdefault(name if name == "*" else f"f:{name}", {})

    def keep(self, fields: dict[str, Any]) -> dict[str, Any]:
        """The part of the set that is below the paths."""
        return _kept(fields, self.pattern)


class InVersions:
    """``fields`` (a set as of ``field_set``) are reset for managers of these versions alone, the request's among them: upstream does not
    tell those of others what the strategy of a custom resource takes back."""

    __slots__ = ("fields", "versions")

    def __init__(self, fields: dict[str, Any], versions: frozenset[str]) -> None:
        self.fields, self.versions = fields, versions

    def of(self, api_version: str) -> dict[str, Any]:
        """What is reset for managers of a version."""
        return self.fields if api_version in self.versions else NO_FIELDS

    def keep(self, fields: dict[str, Any]) -> dict[str, Any]:
        """The part of the set that is not reset."""
        return recursive_difference(fields, self.fields)


def _kept(fields: dict[str, Any], pattern: dict[str, Any]) -> dict[str, Any]:
    if not pattern:
        return fields
    out = {}
    for key, node in fields.items():
        below = pattern.get("*", pattern.get(key)) if key != "." else None
        if below is None:
            continue
        left = _kept({k: v for k, v in node.items() if k != "."}, below)
        if left and "." in node:
            left = {".": {}, **left}
        if left or not node or "." in node:
            out[key] = left
    return out


Reset = dict[str, Any] | Only | InVersions


def allowed(fields: dict[str, Any], reset: Reset) -> dict[str, Any]:
    """The set without what the endpoint's strategy resets."""
    if not reset:
        return fields
    return reset.keep(fields) if isinstance(reset, (Only, InVersions)) else recursive_difference(fields, reset)


# What the server itself keeps is nobody's: upstream's stripSet.
STRIPPED = field_set(
    ["apiVersion", "kind", "metadata"]
    + [
        f"metadata.{name}"
        for name in (
            "name", "namespace", "creationTimestamp", "selfLink", "uid", "clusterName", "generation", "managedFields",
            "resourceVersion",
        )
    ]
)  # fmt: skip


def update(
    schema: Schema,
    live: Obj | None,
    new: Obj,
    manager: str,
    *,
    now: str,
    subresource: str = "",
    reset_fields: Reset = NO_FIELDS,
) -> Entries:
    """The managedFields of ``new`` after a create, update or patch by ``manager``; empty when there are none.

    ``live`` is None on create. ``reset_fields`` is a set (``field_set``) of what the strategy takes back anyway, or the Only
    fields it takes. Entries a
    client sent are taken unless unusable or written through a subresource; an empty list or ``[{}]`` forgets all. When
    nothing changes hands the live list itself is returned. Never refuses: an object that contradicts its schema, as one may that was
    stored under another, or cannot be converted to the version of an entry, has none afterwards.
    """
    live_entries = entries_of(live)
    if not schema.structured and not _of_kind(schema, new):
        return []  # there is no type of another kind
    try:
        if schema.structured and live is not None and type(reset_fields) is dict:
            found = updated(
                schema.root, live, new, schema.api_version, manager or "unknown", subresource, now, STRIPPED, reset_fields, written, order
            )
            if found is not None:
                return found
        managers, source = _decode(live_entries, entries_of(new), bool(subresource))
        if not managers and live is not None and live.get("metadata", NO_FIELDS).get("uid"):
            return []
        if schema.certain is not None and not (schema.fits(new) and (live is None or schema.fits(live))):
            return []  # of a built-in kind all do
        before = dict(managers)
        managers = track(schema, live or {}, new, managers, manager, subresource, now, reset_fields)
    except (Mismatch, ApiError):
        return []
    if source is not None and managers == before:
        return source
    return write(managers)


def _of_kind(schema: Schema, obj: Obj) -> bool:
    """Whether an object says that it is of the schema's kind, in whatever version."""
    version = obj.get("apiVersion")
    if version != schema.api_version and (version or "").rpartition("/")[0] != schema.api_version.rpartition("/")[0]:
        return False
    return bool(obj.get("kind") == schema.kind)


def create(
    schema: Schema, new: Obj, manager: str, *, now: str, subresource: str = "", reset_fields: Reset = NO_FIELDS, without: Obj | None = None
) -> Entries:
    """What ``update`` gives for a new object, the fields of its one entry as text (RawJSON) where that can be had.

    Most objects are created with nothing to compare and nobody to take fields from, and a set of several hundred paths is then built to be
    printed. ``without`` is ``unowned(reset_fields)``, for those who keep it.
    """
    if not schema.fits(new):
        return []
    if entries_of(new) is None and not isinstance(reset_fields, Only):
        fields = created(schema.root, new, unowned(reset_of(reset_fields)) if without is None else without)
        if fields is not None:
            if not fields:
                return []
            text: Any = RawJSON(fields)
            if not schema.structured and (b'"k:' in fields or b'"v:' in fields):
                # Maps of a custom resource are written in the order of their keys, which is not that of numbers in them.
                text = orjson.loads(fields)
            return [written(manager or "unknown", "Update", schema.api_version, now, text, subresource)]
    return update(schema, None, new, manager, now=now, subresource=subresource, reset_fields=reset_fields)


def reset_of(reset: dict[str, Any] | InVersions) -> dict[str, Any]:
    """What is reset in the version of the request."""
    return reset.fields if isinstance(reset, InVersions) else reset


def unowned(reset: dict[str, Any], others: dict[str, Any] = STRIPPED) -> dict[str, Any]:
    """What nobody comes to own where a strategy resets ``reset``: a set as ``created`` takes it."""
    out = dict(others)
    for key, node in reset.items():
        if not node or "." in node:
            out[key] = NO_FIELDS
        elif out.get(key) != NO_FIELDS:
            out[key] = unowned(node, out.get(key, NO_FIELDS))
    return out


def entries_of(obj: Obj | None) -> Any:
    """The managedFields as they stand in the object, None for none."""
    meta = obj.get("metadata") if obj is not None else None
    return meta.get("managedFields") if isinstance(meta, dict) else None  # it need not be an object of any schema


def _decode(live: Any, new: Any, subresource: bool) -> tuple[Managers, Entries | None]:
    """The managers to start from, and the list they were read from when it can be stored again as it is."""
    if new is not None and not subresource and not deep_equal(new, live):
        if is_reset(new):
            return {}, None
        try:
            managers = read(new, trusted=False)
        except ValueError:
            managers = {}
        if managers:
            return managers, None
    if not live:
        return {}, None
    try:
        return read(live, trusted=True), live
    except ValueError:
        return {}, None


def track(schema: Schema, live: Obj, new: Obj, managers: Managers, manager: str, subresource: str, now: str, reset: Reset) -> Managers:
    """The managers after an update of ``live`` to ``new``: what changed belongs to ``manager`` from now on; ``now`` is in RFC 3339."""
    managers = reconciled(schema, live, managers)
    ident = ident_of(manager or "unknown", "Update", schema.api_version, subresource)
    managers, (changed, _) = update_managers(schema, live, new, managers, None, reset, None, ident)
    taken = difference(changed, STRIPPED)
    own = managers.get(ident)
    if own is not None and taken is not changed:  # what nobody manages goes from everybody
        left = difference(own.fields, changed)
        own = own.with_fields(left) if left else None
        if own is None:
            del managers[ident]
        else:
            managers[ident] = own
    if taken:
        # Mostly it has had them all, and then these are the ones that are stored.
        fields = union(own.fields, taken) if own is not None else taken
        managers[ident] = Managed(fields, schema.api_version, False, now)
    cap(managers)
    return managers


def reconciled(schema: Schema, live: Obj, managers: Managers) -> Managers:
    """Managers with their sets fitted to today's schema; those of versions that are gone are dropped."""
    out: Managers = {}
    for ident, m in managers.items():
        if m.api_version == schema.api_version:
            root = schema.root
        else:
            at = schema.at(live, m.api_version)
            if at is None:
                continue
            root = at[0].root
        fields = reconcile(root, m.fields)
        out[ident] = m if fields is m.fields else m.with_fields(fields)
    return out


def update_managers(
    schema: Schema,
    live: Obj,
    new: Obj,
    managers: Managers,
    applier: Ident | None,
    reset: Reset,
    force: bool | None,
    own: Ident | None = None,
) -> tuple[Managers, tuple[dict[str, Any], dict[str, Any]]]:
    """Take what changed from all managers but ``applier``, and but for what is gone from all but ``own``; with ``force`` False raise
    Conflicts instead of taking.

    Returns the managers left and two sets: the fields that are changed or added, and those that are gone.
    """
    found = {schema.api_version: _compared(schema, live, new, reset)}
    conflicts: dict[Ident, dict] = {}
    out: Managers = {}
    for ident, m in managers.items():
        if ident == applier:
            out[ident] = m
            continue
        at = found.get(m.api_version)
        if at is None:
            old_at = schema.at(live, m.api_version, "failed to convert old object")
            new_at = schema.at(new, m.api_version, "failed to convert new object")
            if old_at is None or new_at is None:
                continue
            there = reset.of(m.api_version) if isinstance(reset, InVersions) else reset
            at = found[m.api_version] = _compared(old_at[0], old_at[1], new_at[1], there)
        if force is False:
            conflict = intersection(m.fields, at[0])
            if conflict:
                conflicts[ident] = conflict
        left = m.fields
        if at[0] and ident != own:
            left = difference(left, at[0])
        if at[1]:
            left = difference(left, at[1])
        if left:
            out[ident] = m if left is m.fields else m.with_fields(left)
    if conflicts:
        raise conflicts_of(conflicts)
    return out, found[schema.api_version]


def _compared(schema: Schema, old: Obj, new: Obj, reset: Reset) -> tuple[dict[str, Any], dict[str, Any]]:
    """What differs, without what the endpoint's strategy resets. Raises Mismatch, with whole paths where an object does not fit."""
    try:
        changed, removed = compare(schema.root, old, new)
    except Mismatch as e:
        found: dict[tuple[str, str], None] = {}
        for path, why in validate(schema.root, old, True) + validate(schema.root, new, True):
            if why == "field not declared in schema":
                found[path, "schema error: invalid atom: inlined"] = None  # how comparing says it
            elif why.startswith("element "):
                found[path, why] = None
        raise Mismatch(list(found) or e.errors) from None
    return (allowed(changed, reset), allowed(removed, reset)) if reset else (changed, removed)
