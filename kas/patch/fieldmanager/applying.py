"""Server-side apply (KEP-555).

Upstream: apimachinery ``pkg/util/managedfields/internal`` (fieldmanager.go, structuredmerge.go, skipnonapplied.go,
versioncheck.go, lastappliedmanager.go) around structured-merge-diff v6 ``merge/update.go``.
"""

from __future__ import annotations

from typing import Any

from kas.meta.errors import ApiError, bad_request
from kas.patch._fieldsets import (
    Mismatch,
    deep_equal,
    difference,
    equal_but_metadata,
    intersection,
    merge,
    remove_items,
    to_set,
    union,
    validate,
    with_named_members,
)
from kas.patch.fieldmanager import lastapplied
from kas.patch.fieldmanager.conflicts import Conflicts, conflict_error
from kas.patch.fieldmanager.entries import Ident, Managed, Managers, ident_of, read, write
from kas.patch.fieldmanager.schema import Schema, mismatch_text
from kas.patch.fieldmanager.updating import NO_FIELDS, STRIPPED, Obj, Reset, allowed, entries_of, reconciled, track, update_managers

BEFORE_FIRST_APPLY = "before-first-apply"
_PRUNE = "failed to prune fields: "
_ADD_BACK = f"{_PRUNE}failed add back owned items: "


def apply(
    schema: Schema,
    live: Obj | None,
    applied: Obj,
    manager: str,
    *,
    now: str,
    subresource: str = "",
    force: bool = False,
    reset_fields: Reset = NO_FIELDS,
) -> Obj:
    """Return the live object merged with the applied configuration, with updated managedFields; ``live`` is None on create.

    Fields that this manager applied before and no longer does are removed unless another manager owns them. A map or list left empty
    stays. The result is not defaulted. It shares subtrees with the arguments.

    Raises ApiError: 400 for another type or if the configuration contains managedFields, 409 for fields owned by other managers unless
    ``force``, 500 (without a reason, as upstream) if the configuration does not fit the schema.
    """
    live = live if live is not None else {}
    stored = entries_of(live)
    try:
        managers = read(stored, trusted=True) if stored else {}
    except ValueError as e:
        raise _plain(f"failed to decode managed fields: {e}") from None
    # A non-string counts as absent, as for any unstructured object.
    api_version, kind = (v if isinstance(v, str) else "" for v in (applied.get("apiVersion"), applied.get("kind")))
    if (api_version, kind) != (schema.api_version, schema.kind):
        raise bad_request(f"invalid object type: {_gvk(api_version, kind)}")
    ident = ident_of(manager or "unknown", "Apply", schema.api_version, subresource)
    decoded = bool(managers)
    try:
        if not decoded:
            managers = _tracked(schema, live, subresource, now, reset_fields)
        given = entries_of(applied)
        # For upstream a value that is not a list of maps counts as absent; most such values then fail validation.
        if isinstance(given, list) and all(isinstance(e, dict) for e in given):
            raise bad_request("metadata.managedFields must be nil")
        _check(schema, live, applied)
        try:
            merged, managers = _apply(schema, live, applied, managers, ident, force, reset_fields)
        except Conflicts as c:
            if manager != lastapplied.MANAGER:
                raise conflict_error(c.found, decoded) from None
            left = lastapplied.remaining(schema, live, c.found)
            if left:
                raise conflict_error(left, decoded) from None
            merged, managers = _apply(schema, live, applied, managers, ident, True, reset_fields)
    except Mismatch as e:
        _check_live(*(schema.written(live) if schema.written is not None else (schema, live)))
        raise _plain(f"failed to merge config: {mismatch_text(e.errors)}") from None
    own = managers.get(ident)
    if own is not None:
        kept = difference(own.fields, STRIPPED)
        if kept:
            # Without a change a manager keeps its last time, and a new manager has none.
            if merged is not None or kept is not own.fields:
                managers[ident] = Managed(kept, own.api_version, True, own.time if merged is None else now)
        else:
            del managers[ident]
    return _result(live if merged is None else merged, applied, manager, managers)


def _tracked(schema: Schema, live: Obj, subresource: str, now: str, reset: Reset) -> Managers:
    """Return managers in which the fields that existed before the first apply belong to BEFORE_FIRST_APPLY."""
    if not schema.structured:
        _check_existing(schema, live, live)
    try:
        return track(schema, {}, live, {}, BEFORE_FIRST_APPLY, subresource, now, reset)
    except Mismatch:
        _check_existing(*(schema.written(live) if schema.written is not None else (schema, live)), live)
        raise


def _check_existing(schema: Schema, obj: Obj, live: Obj) -> None:
    """Raise ApiError (500) if ``obj``, which is ``live`` in the schema's type, does not fit the schema."""
    errors = validate(schema.root, obj, True)
    if errors:
        why = f"failed to convert new object ({shown_name(live)}) to smd typed: {mismatch_text(errors)}"
        raise _plain(f"failed to create manager for existing fields: {why}")


def _result(obj: Obj, applied: Obj, manager: str, managers: Managers) -> Obj:
    out = dict(obj)
    meta = {k: v for k, v in (out.get("metadata") or NO_FIELDS).items() if k != "managedFields"}
    if manager == lastapplied.MANAGER:
        lastapplied.refresh(meta, applied)
    entries = write(managers)
    if entries:
        meta["managedFields"] = entries
    out["metadata"] = meta
    return out


def _check(schema: Schema, live: Obj, applied: Obj) -> None:
    errors = validate(schema.root, applied)
    if errors:
        raise _plain(f"failed to create typed patch object ({shown_name(applied)}): {mismatch_text(errors)}")
    # Built-in objects were typed when they were decoded; a custom resource may have been stored under another schema.
    if not schema.structured:
        _check_live(schema, live)


def _check_live(schema: Schema, live: Obj) -> None:
    errors = validate(schema.root, live, True)
    if errors:
        raise _plain(f"failed to create typed live object ({shown_name(live)}): {mismatch_text(errors)}")


def _apply(
    schema: Schema, live: Obj, applied: Obj, managers: Managers, ident: Ident, force: bool, reset: Reset
) -> tuple[Obj | None, Managers]:
    """Return the merged object, None if nothing changes, and the managers. Raises Conflicts."""
    if schema.written is not None:
        schema, live = schema.written(live)
    managers = reconciled(schema, live, managers)
    merged = merge(schema.root, live, applied)
    last = managers.get(ident)
    fields = allowed(to_set(schema.root, applied), reset)
    if last is None:
        managers[ident] = Managed(fields, schema.api_version, True)
    else:
        same = deep_equal(last.fields, fields)  # most appliers repeat the same configuration: then the stored set is reused
        entry = last.entry if same and last.api_version == schema.api_version else None
        managers[ident] = Managed(last.fields if same else fields, schema.api_version, True, last.time, entry)
    merged = _prune(schema, merged, managers, ident, last)
    try:
        managers, _ = update_managers(schema, live, merged, managers, ident, reset, force)
    except Mismatch as e:
        if schema.structured:
            raise
        raise _plain(f"failed to compare objects: {mismatch_text(e.errors)}") from None
    if not managers[ident].fields:
        del managers[ident]
    # A different order of the same items is a change, although it changes no manager's fields.
    return None if equal_but_metadata(live, merged, ("managedFields",)) else merged, managers


def _prune(schema: Schema, merged: Obj, managers: Managers, ident: Ident, last: Managed | None) -> Obj:
    """Remove what the applier owned last time and no manager owns now."""
    if last is None or not last.fields:
        return merged
    fields = managers[ident].fields
    if last.api_version == schema.api_version and (last.fields is fields or not difference(last.fields, fields)):
        return merged
    # managedFields belong to no manager: if they stayed, they would keep metadata although no manager mentions it.
    if entries_of(merged) is not None:
        merged = {**merged, "metadata": {k: v for k, v in merged["metadata"].items() if k != "managedFields"}}
    at = schema.at(merged, last.api_version, f"{_PRUNE}failed to convert merged object to last applied version")
    if at is None:
        return merged
    last_schema, whole = at
    root = last_schema.root
    pruned = remove_items(root, whole, with_named_members(root, last.fields)) or {}
    pruned_at, pruned = _add_back_owned(last_schema, whole, pruned, managers)
    failed = "failed add back dangling items: failed to convert merged object to last applied version"
    back = pruned_at.at(pruned, last.api_version, _PRUNE + failed)
    if back is None:
        return merged
    pruned = back[1]
    dangling = intersection(difference(_named_set(root, whole), _named_set(root, pruned)), with_named_members(root, last.fields))
    pruned = remove_items(root, whole, dangling) or {}
    result = last_schema.at(pruned, schema.api_version, _PRUNE.removesuffix(": "))
    return pruned if result is None else result[1]


def _named_set(root, obj: Obj) -> dict[str, Any]:
    return with_named_members(root, to_set(root, obj))


def _add_back_owned(schema: Schema, whole: Obj, pruned: Obj, managers: Managers) -> tuple[Schema, Obj]:
    """Put back what any manager owns, one version at a time, beginning with the schema's version."""
    owned: dict[str, dict] = {}
    for m in managers.values():
        owned[m.api_version] = union(owned.get(m.api_version, NO_FIELDS), m.fields)
    versions = sorted(owned, key=lambda v: (v != schema.api_version, v))
    for version in versions:
        whole_at = schema.at(whole, version, f"{_ADD_BACK}failed to convert merged object at version {version}")
        pruned_at = schema.at(pruned, version, f"{_ADD_BACK}failed to convert pruned object at version {version}")
        if whole_at is None or pruned_at is None:
            continue
        schema, whole = whole_at
        root = schema.root
        keep = union(_named_set(root, pruned_at[1]), with_named_members(root, owned[version]))
        pruned = remove_items(root, whole, difference(_named_set(root, whole), keep)) or {}
    return schema, pruned


# Messages. ------------------------------------------------------------------------------------------


def _plain(message: str) -> ApiError:
    # Without a reason: upstream's answer for a Go error that is not a Status.
    return ApiError(500, "", message)


def _gvk(api_version: str, kind: str) -> str:
    if api_version.count("/") > 1:  # such an apiVersion parses to no version, and then upstream shows no kind
        api_version = kind = ""
    group, _, version = api_version.rpartition("/")
    return f"{group}/{version}, Kind={kind}"


def shown_name(obj: Obj) -> str:
    """Return how errors name an object: ``namespace/name; group/version, Kind=kind``. Non-strings count as absent."""
    meta = obj.get("metadata")
    given = (meta.get("namespace"), meta.get("name")) if isinstance(meta, dict) else ()
    gvk = _gvk(obj.get("apiVersion", ""), obj.get("kind", ""))
    return "/".join(v if isinstance(v, str) else "" for v in given or ("", "")) + f"; {gvk}"
