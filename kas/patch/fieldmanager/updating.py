"""Field ownership after a create, update or patch.

Upstream: apimachinery ``pkg/util/managedfields/internal`` (one wrapper per concern: fieldmanager.go, structuredmerge.go, stripmeta.go,
managedfieldsupdater.go, buildmanagerinfo.go, capmanagers.go, skipnonapplied.go) around structured-merge-diff v6 ``merge/update.go``. Here
the wrappers are the steps of one function; ``applying.py`` shares them.

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
    """Return the set of some dotted field names ("status", "metadata.deletionTimestamp"), the form of a strategy's reset fields."""
    out: dict[str, Any] = {}
    for path in paths:
        below: dict[str, Any] = {}
        for name in reversed(path.split(".")):
            below = {f"f:{name}": below}
        out = union(out, below)
    return out


class Only:
    """A filter that keeps only the fields below some paths; for endpoints that can change little else.

    Paths are dotted names in which ``*`` stands for any list item or field: ``spec.containers.*.resources``
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
        """Return the part of the set below the paths."""
        return _kept(fields, self.pattern)


class InVersions:
    """``fields`` (a set as from ``field_set``) that are reset for managers of these versions only, which include the request's version.

    Upstream does not apply the reset fields of a custom resource's strategy to managers of other versions.
    """

    __slots__ = ("fields", "versions")

    def __init__(self, fields: dict[str, Any], versions: frozenset[str]) -> None:
        self.fields, self.versions = fields, versions

    def of(self, api_version: str) -> dict[str, Any]:
        """Return the fields reset for managers of a version."""
        return self.fields if api_version in self.versions else NO_FIELDS

    def keep(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Return the part of the set that is not reset."""
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
    """Return the set without the fields that the endpoint's strategy resets."""
    if not reset:
        return fields
    return reset.keep(fields) if isinstance(reset, (Only, InVersions)) else recursive_difference(fields, reset)


# Fields that the server maintains and no manager owns: upstream's stripSet.
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
    """Return the managedFields of ``new`` after a create, update or patch by ``manager``; an empty list if there are none.

    ``live`` is None on create. ``reset_fields`` is a set (``field_set``) of the fields that the endpoint's strategy resets, or an Only with
    the fields that the endpoint accepts.

    Entries sent by a client are used unless they are unusable or were sent to a subresource; an empty list or ``[{}]`` drops all managers.
    If ownership does not change, the live list itself is returned.

    Never fails: an object that does not fit its schema (as one stored under another schema may not) or that cannot be converted to the
    version of an entry has no managedFields afterwards.
    """
    live_entries = entries_of(live)
    if not schema.structured and not _of_kind(schema, new):
        return []  # the schema does not describe other kinds
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
            return []  # objects of built-in kinds always fit
        before = dict(managers)
        managers = track(schema, live or {}, new, managers, manager, subresource, now, reset_fields)
    except (Mismatch, ApiError):
        return []
    if source is not None and managers == before:
        return source
    return write(managers)


def _of_kind(schema: Schema, obj: Obj) -> bool:
    """Whether an object has the schema's kind and group, in any version."""
    version = obj.get("apiVersion")
    if version != schema.api_version and (version or "").rpartition("/")[0] != schema.api_version.rpartition("/")[0]:
        return False
    return bool(obj.get("kind") == schema.kind)


def create(
    schema: Schema, new: Obj, manager: str, *, now: str, subresource: str = "", reset_fields: Reset = NO_FIELDS, without: Obj | None = None
) -> Entries:
    """Return what ``update`` returns for a new object, with the fields of its one entry as text (RawJSON) where possible.

    A new object usually has nothing to be compared with and no other managers, so writing the text directly saves building a set of several
    hundred paths only to print it. ``without`` is ``unowned(reset_fields)``, for callers that cache it.
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
                # Maps of a custom resource are written in the order of their keys as strings, which is not the order of numbers in them.
                text = orjson.loads(fields)
            return [written(manager or "unknown", "Update", schema.api_version, now, text, subresource)]
    return update(schema, None, new, manager, now=now, subresource=subresource, reset_fields=reset_fields)


def reset_of(reset: dict[str, Any] | InVersions) -> dict[str, Any]:
    """Return the fields that are reset in the version of the request."""
    return reset.fields if isinstance(reset, InVersions) else reset


def unowned(reset: dict[str, Any], others: dict[str, Any] = STRIPPED) -> dict[str, Any]:
    """Return the fields that no manager comes to own if a strategy resets ``reset``, in the form that ``created`` takes."""
    out = dict(others)
    for key, node in reset.items():
        if not node or "." in node:
            out[key] = NO_FIELDS
        elif out.get(key) != NO_FIELDS:
            out[key] = unowned(node, out.get(key, NO_FIELDS))
    return out


def entries_of(obj: Obj | None) -> Any:
    """Return the managedFields of the object as they are, None if absent."""
    meta = obj.get("metadata") if obj is not None else None
    return meta.get("managedFields") if isinstance(meta, dict) else None  # metadata may be anything here


def _decode(live: Any, new: Any, subresource: bool) -> tuple[Managers, Entries | None]:
    """Return the managers to start from, and the list they were read from if it can be stored again unchanged."""
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
    """Return the managers after an update of ``live`` to ``new``: ``manager`` owns what changed. ``now`` is in RFC 3339."""
    managers = reconciled(schema, live, managers)
    ident = ident_of(manager or "unknown", "Update", schema.api_version, subresource)
    managers, (changed, _) = update_managers(schema, live, new, managers, None, reset, None, ident)
    taken = difference(changed, STRIPPED)
    own = managers.get(ident)
    if own is not None and taken is not changed:  # changed fields that no manager may own are removed from this manager, too
        left = difference(own.fields, changed)
        own = own.with_fields(left) if left else None
        if own is None:
            del managers[ident]
        else:
            managers[ident] = own
    if taken:
        # Usually the manager owned all of them already, and ``union`` returns its stored set.
        fields = union(own.fields, taken) if own is not None else taken
        managers[ident] = Managed(fields, schema.api_version, False, now)
    cap(managers)
    return managers


def reconciled(schema: Schema, live: Obj, managers: Managers) -> Managers:
    """Return the managers with their sets adapted to the current schema; those of versions that are gone are dropped."""
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
    """Remove the changed and removed fields from the managers.

    ``applier`` keeps all its fields, and ``own`` keeps the changed ones. With ``force`` False, raises Conflicts if another manager owns
    changed fields.

    Returns the remaining managers and two sets: the fields that were changed or added, and those that were removed.
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
    """Return the (changed, removed) sets without the fields that the endpoint resets. Raises Mismatch, with full paths where possible."""
    try:
        changed, removed = compare(schema.root, old, new)
    except Mismatch as e:
        found: dict[tuple[str, str], None] = {}
        for path, why in validate(schema.root, old, True) + validate(schema.root, new, True):
            if why == "field not declared in schema":
                found[path, "schema error: invalid atom: inlined"] = None  # the words of upstream's comparison
            elif why.startswith("element "):
                found[path, why] = None
        raise Mismatch(list(found) or e.errors) from None
    return (allowed(changed, reset), allowed(removed, reset)) if reset else (changed, removed)
