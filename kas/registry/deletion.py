"""What a delete makes of an object: upstream's ``rest.BeforeDelete`` and the finalizers of garbage collection. No I/O."""

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
    """Raises 409 when ``preconditions`` of DeleteOptions name another uid or resourceVersion than the object's."""
    wanted, meta = options.get("preconditions") or {}, obj["metadata"]
    # As in rest.BeforeDelete the kind stands where a resource is expected.
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
    """What a delete does next: write the object as it is marked now, or remove it."""

    MARK = 1
    REMOVE = 2


class Deletion(NamedTuple):
    """What a delete does next, and whether the object goes gracefully."""

    step: Step
    graceful: bool


def pending(resource: Resource, obj: Obj, options: Obj) -> bool:
    """Whether ``obj`` is being deleted gracefully already and nothing sooner is asked. Upstream answers then with what is stored, before
    any plug-in is asked (``pendingGraceful`` of ``Store.Delete``)."""
    meta = obj["metadata"]
    if not (resource.graceful_delete and meta.get("deletionTimestamp")):
        return False
    period, grace = _period(meta), _asked_grace(options)
    return bool(period) and (grace is None or grace >= period)


def _period(meta: Obj) -> int:
    """The grace that an object being deleted has; a negative one, as older servers stored it, is 1."""
    period: int = meta.get("deletionGracePeriodSeconds") or 0
    return 1 if period < 0 else period


def _asked_grace(options: Obj) -> int | None:
    grace: int | None = options.get("gracePeriodSeconds")
    return 1 if grace is not None and grace < 0 else grace


def begin(strategy: Strategy, ctx: Context, obj: Obj, options: Obj) -> Deletion:
    """Marks ``obj``, whose deletion is not ``pending``, as this delete leaves it, and says what is to be done with it. ``options``
    (DeleteOptions) get the grace it has."""
    graceful = _before_delete(strategy, ctx, obj, options)
    finalizers = set_finalizers(strategy.resource, obj, options)
    if finalizers and not graceful:
        _mark(ctx, obj["metadata"])
    held = finalizers or (graceful and options.get("gracePeriodSeconds") != 0)
    return Deletion(Step.MARK if held else Step.REMOVE, graceful)


def _before_delete(strategy: Strategy, ctx: Context, obj: Obj, options: Obj) -> bool:
    """``rest.BeforeDelete``: whether it goes gracefully. Marks ``obj`` and fills in the grace."""
    resource = strategy.resource
    grace = _asked_grace(options)
    if grace is not None:
        options["gracePeriodSeconds"] = grace
    meta = obj["metadata"]
    if not resource.graceful_delete:
        return False
    if meta.get("deletionTimestamp"):
        if not _period(meta):
            return False  # 0: only finalizers hold it
        assert grace is not None  # not pending: a shorter one is asked
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
    """``markAsDeleting``: held by finalizers, with no time to wait for."""
    if not meta.get("deletionTimestamp"):
        meta["deletionTimestamp"] = ctx.now
        _next_generation(meta)
    meta["deletionGracePeriodSeconds"] = 0


def set_finalizers(resource: Resource, obj: Obj, options: Obj) -> list[str]:
    """Puts on the object those finalizers that stand for the propagation asked for, and returns all it has then."""
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
    """``ShouldDeleteDuringUpdate``: the object was being deleted, and after this update nothing holds it any more."""
    was = old["metadata"]
    return bool(was.get("deletionTimestamp")) and not obj["metadata"].get("finalizers") and not was.get("deletionGracePeriodSeconds")


def _finalizers(resource: Resource, had: list[str], options: Obj) -> list[str]:
    default = resource.gc_default
    if default == "unsupported" or not capabilities.CURRENT.enable_garbage_collector:  # nobody would take them off again
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
    """A second, shorter grace moves the deadline forward, but not into the past. Where it would come to lie there it is now, with the least
    grace that there is: who sees the update still makes the last delete, unless that was asked for."""
    deadline = _plus(meta["deletionTimestamp"], grace - _period(meta))
    if deadline <= ctx.now:  # which is a moment of that second
        deadline, grace = ctx.now, min(grace, 1)
    meta["deletionTimestamp"], meta["deletionGracePeriodSeconds"] = deadline, grace


def _plus(stamp: str, seconds: int) -> str:
    return format_time(parse_time(stamp)[0] + seconds)
