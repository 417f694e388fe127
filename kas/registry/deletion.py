"""The effects of a delete on an object: upstream's ``rest.BeforeDelete`` and the finalizers of garbage collection. No I/O."""

from __future__ import annotations

import enum

from kas.config import capabilities
from kas.meta import errors
from kas.meta.records import NamedTuple
from kas.meta.scalars import format_time, parse_time
from kas.registry.strategy import Context, Obj, Strategy
from kas.types.scheme import Resource

ORPHAN, FOREGROUND = "orphan", "foregroundDeletion"


def check_preconditions(resource: Resource, name: str, obj: Obj, options: Obj) -> None:
    """Raises 409 if ``preconditions`` of DeleteOptions name another uid or resourceVersion than the object's."""
    wanted, meta = options.get("preconditions") or {}, obj["metadata"]
    # As in rest.BeforeDelete, the error names the kind in the place of the resource.
    group = resource.storage_gvk[0] if resource.storage_gvk else resource.group
    if wanted.get("uid") is not None and wanted["uid"] != meta.get("uid"):
        why = (
            f"the UID in the precondition ({wanted['uid']}) does not match the UID in record ({meta.get('uid', '')}). "
            "The object might have been deleted and then recreated"
        )
        raise errors.conflict(group, resource.kind, name, why)
    if wanted.get("resourceVersion") is not None and wanted["resourceVersion"] != meta.get("resourceVersion"):
        why = (
            f"the ResourceVersion in the precondition ({wanted['resourceVersion']}) does not match the ResourceVersion in record "
            f"({meta.get('resourceVersion', '')}). The object might have been modified"
        )
        raise errors.conflict(group, resource.kind, name, why)


class Step(enum.Enum):
    """The next step of a delete: write the object with its deletion marks, or remove it."""

    MARK = 1
    REMOVE = 2


class Deletion(NamedTuple):
    """The next step of a delete, and whether the deletion is graceful."""

    step: Step
    graceful: bool


def pending(resource: Resource, obj: Obj, options: Obj) -> bool:
    """Returns whether ``obj`` is already being deleted gracefully and the options do not ask for an earlier deletion.
    Upstream then returns the stored object before it calls any plug-in (``pendingGraceful`` of ``Store.Delete``)."""
    meta = obj["metadata"]
    if not (resource.graceful_delete and meta.get("deletionTimestamp")):
        return False
    period, grace = _period(meta), _asked_grace(options)
    return bool(period) and (grace is None or grace >= period)


def _period(meta: Obj) -> int:
    """Returns the grace period of an object being deleted; a negative one, as older servers stored it, counts as 1."""
    period: int = meta.get("deletionGracePeriodSeconds") or 0
    return 1 if period < 0 else period


def _asked_grace(options: Obj) -> int | None:
    grace: int | None = options.get("gracePeriodSeconds")
    return 1 if grace is not None and grace < 0 else grace


def begin(strategy: Strategy, ctx: Context, obj: Obj, options: Obj) -> Deletion:
    """Marks ``obj``, whose deletion is not ``pending``, and returns the next step. Sets the resulting grace period in
    ``options`` (DeleteOptions)."""
    graceful = _before_delete(strategy, ctx, obj, options)
    finalizers = set_finalizers(strategy.resource, obj, options)
    if finalizers and not graceful:
        _mark(ctx, obj["metadata"])
    held = finalizers or (graceful and options.get("gracePeriodSeconds") != 0)
    return Deletion(Step.MARK if held else Step.REMOVE, graceful)


def _before_delete(strategy: Strategy, ctx: Context, obj: Obj, options: Obj) -> bool:
    """``rest.BeforeDelete``: returns whether the deletion is graceful. Marks ``obj`` and sets the grace period in ``options``."""
    resource = strategy.resource
    grace = _asked_grace(options)
    if grace is not None:
        options["gracePeriodSeconds"] = grace
    meta = obj["metadata"]
    if not resource.graceful_delete:
        return False
    if meta.get("deletionTimestamp"):
        if not _period(meta):
            return False  # 0: only finalizers keep it
        assert grace is not None  # not pending: the options ask for a shorter one
        _shorten(ctx, meta, grace)
        return True
    if not strategy.check_graceful_delete(ctx, obj, options):
        return False
    grace = options["gracePeriodSeconds"]
    meta["deletionTimestamp"] = _plus(ctx.now, grace)
    meta["deletionGracePeriodSeconds"] = grace
    _next_generation(meta)
    return True


def _mark(ctx: Context, meta: Obj) -> None:
    """``markAsDeleting``: finalizers keep the object, without a grace period."""
    if not meta.get("deletionTimestamp"):
        meta["deletionTimestamp"] = ctx.now
        _next_generation(meta)
    meta["deletionGracePeriodSeconds"] = 0


def set_finalizers(resource: Resource, obj: Obj, options: Obj) -> list[str]:
    """Sets the finalizers for the requested propagation policy on the object; returns all its finalizers."""
    meta = obj["metadata"]
    had = meta.get("finalizers") or []
    wanted = _finalizers(resource, had, options)
    if wanted != had:
        if wanted:
            meta["finalizers"] = wanted
        else:
            meta.pop("finalizers", None)
    return wanted


def gone_with_update(obj: Obj, old: Obj) -> bool:
    """``ShouldDeleteDuringUpdate``: the object was being deleted, and after this update nothing keeps it any more."""
    was = old["metadata"]
    return bool(was.get("deletionTimestamp")) and not obj["metadata"].get("finalizers") and not was.get("deletionGracePeriodSeconds")


def _finalizers(resource: Resource, had: list[str], options: Obj) -> list[str]:
    default = resource.gc_default
    if default == "unsupported" or not capabilities.CURRENT.enable_garbage_collector:  # nothing would remove them again
        return had
    policy, orphan_dependents = options.get("propagationPolicy"), options.get("orphanDependents")
    if orphan_dependents is not None:
        orphan, foreground = bool(orphan_dependents), False
    elif policy is not None:
        orphan, foreground = policy == "Orphan", policy == "Foreground"
    elif ORPHAN in had or FOREGROUND in had:
        return had
    else:
        orphan, foreground = default == "orphan", default == "foreground"
    kept = [f for f in had if f not in (ORPHAN, FOREGROUND)]
    if orphan:
        kept.append(ORPHAN)
    if foreground:
        kept.append(FOREGROUND)
    return had if set(kept) == set(had) else kept


def _next_generation(meta: Obj) -> None:
    if meta.get("generation", 0) > 0:
        meta["generation"] += 1


def _shorten(ctx: Context, meta: Obj, grace: int) -> None:
    """A second, shorter grace period moves the deadline forward, but not into the past. A deadline in the past becomes now,
    with a grace period of at most 1: the client that sees the update still makes the last delete, unless a grace period of 0
    was requested."""
    deadline = _plus(meta["deletionTimestamp"], grace - _period(meta))
    if deadline <= ctx.now:  # now is some moment of that second
        deadline, grace = ctx.now, min(grace, 1)
    meta["deletionTimestamp"], meta["deletionGracePeriodSeconds"] = deadline, grace


def _plus(stamp: str, seconds: int) -> str:
    return format_time(parse_time(stamp)[0] + seconds)
