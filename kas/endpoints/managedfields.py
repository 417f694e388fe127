"""Managed fields in the writing verbs: the field manager, the merge schema, and the entries set on the object."""

from __future__ import annotations

from typing import Any

from kas.endpoints.served import Served
from kas.patch.fieldmanager import InVersions, Only, Schema, create, field_set, reset_of, unowned, update
from kas.patch.fieldmanager import manager_name as _manager_name
from kas.registry.strategy import Context, Obj, strategy_of
from kas.request.http import Request


def manager_name(given: str, req: Request) -> str:
    """Return the field manager: ``given``, or else one derived from the User-Agent."""
    return given or _manager_name("", req.header(b"user-agent"))


def schema(served: Served, ctx: Context) -> Schema:
    """Return the merge schema of the resource's kind, cached on ``served``.

    For versions whose conversion waits, the schema stores the conversions in ``ctx``.
    """
    found: Schema | None = served.schema
    if found is None:
        found = served.schema = served.merge_schema()
    if served.answered is None:
        return found
    if ctx.answers is None:
        ctx.answers = {}
    return served.answered(ctx.answers)


# Endpoints that can change only a few fields: upstream's GetResetFieldsFilter.
_CONTAINERS = ("spec.containers.*", "spec.initContainers.*")
_ONLY = {
    ("", "pods", "resize"): tuple(f"{c}.{part}" for c in _CONTAINERS for part in ("resources", "resizePolicy")),
    ("", "pods", "ephemeralcontainers"): ("spec.ephemeralContainers",),
}


def reset_fields(served: Served, subresource: str) -> dict[str, Any] | Only | InVersions:
    """Return the fields that a write through this endpoint cannot change as a field set, or the only fields that it can change."""
    sets: dict[str, Any] = served.reset_sets
    found = sets.get(subresource)
    if found is None:
        only = _ONLY.get((served.group, served.resource, subresource))
        if only is not None:
            found = sets[subresource] = Only(only)
            return found
        if subresource:
            sub = served.record.subresources.get(subresource)
            paths = tuple(sub.reset) if sub is not None else ()
        else:
            paths = strategy_of(served.record).reset
        fields = field_set(paths)
        found = sets[subresource] = InVersions(fields, served.resetting(subresource)) if fields and served.type.custom else fields
    return found


def on_create(served: Served, obj: Obj, manager: str, ctx: Context) -> None:
    """Set the managed fields of a new object in place. ``ctx`` has the time and the subresource."""
    reset = served.reset_sets.get(ctx.subresource)
    if reset is None:
        reset = reset_fields(served, ctx.subresource)
    without = served.unowned.get(ctx.subresource)
    if without is None and not isinstance(reset, Only):
        without = served.unowned[ctx.subresource] = unowned(reset_of(reset))
    _put(obj, create(schema(served, ctx), obj, manager, now=ctx.now, subresource=ctx.subresource, reset_fields=reset, without=without))


def on_update(served: Served, live: Obj, obj: Obj, manager: str, ctx: Context) -> None:
    """Set the managed fields of ``obj`` in place. ``live`` and ``obj`` are in the served version; ``live`` is not changed."""
    entries = update(
        schema(served, ctx),
        live,
        obj,
        manager,
        now=ctx.now,
        subresource=ctx.subresource,
        reset_fields=reset_fields(served, ctx.subresource),
    )
    _put(obj, entries)


def _put(obj: Obj, entries: list[dict[str, Any]]) -> None:
    meta = obj["metadata"]
    if entries:
        meta["managedFields"] = entries
    else:
        meta.pop("managedFields", None)
