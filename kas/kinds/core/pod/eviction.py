"""Eviction of pods: a delete that the pod's disruption budget must allow (upstream ``pkg/registry/core/pod/storage/eviction.go``)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

from kas.meta import errors
from kas.meta.conditions import with_condition
from kas.meta.errors import ApiError
from kas.meta.offload import LARGE, step
from kas.meta.selectors import SelectorError, from_label_selector
from kas.meta.waiting import TimeSlice
from kas.registry.generic import Registry
from kas.registry.strategy import Context, Obj
from kas.store import PAGE_BYTES, Record

PAGE = 64
MAX_DISRUPTED_PODS = 2000
# Upstream's EvictionsRetry. Conflicts are rarer here, since a single write retries immediately after losing a race.
RETRIES, RETRY_DELAY_S = 20, 0.5
VIOLATES = "Cannot evict pod as it would violate the pod's disruption budget."
# (before, after, context): updates managedFields for the change of a budget's status.
Own = Callable[[Obj, Obj, Context], None]


class TooManyBudgets(ApiError):
    """More than one budget matches. Upstream returns this as the result of a create: HTTP 201 with a Status of code 500."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(500, "", "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.")


class Evictions:
    """Evicts pods: ``evict`` returns when the pod is deleted or terminating, and raises otherwise."""

    def __init__(self, pods: Registry, budgets: Registry, own: Own) -> None:
        self.pods, self.budgets, self._own = pods, budgets, own

    async def evict(self, ctx: Context, name: str, options: dict[str, Any]) -> None:
        """Delete the pod with ``options`` (DeleteOptions) once its budget allows it.

        Raises 404, 409, 429 with the budget's state as cause, 403 for a budget that cannot be used, ``TooManyBudgets``.
        """
        ctx = ctx.within("", ctx.dry_run or bool(options.get("dryRun")))
        given = _version(options)
        pod: Obj = {}

        async def past_budget() -> bool:
            nonlocal pod
            pod = self._pod(ctx, name)
            if not _needs_no_budget(pod):
                return False
            # A starting pod must not become ready, and so protected by its budget, between this read and the delete.
            pinned = options if given is not None or _is_over(pod) else _pinned(options, pod)
            await self._delete(ctx, name, pinned)
            return True

        if await _retry(past_budget, retry=given is None):
            return
        budget = await self._budget(ctx, pod)
        pin = False
        if budget is not None:
            pin = self._is_unguarded(pod, budget)
            if not pin:
                await self._spend(ctx, pod, budget)
        try:
            await self._delete(ctx, name, _pinned(options, pod) if pin else options)
        except ApiError as e:
            if e.code == 409 and pin and given is None:
                raise _still_processed(budget["metadata"]["name"]) from None  # type: ignore[index]
            raise

    def _pod(self, ctx: Context, name: str) -> Obj:
        return self.pods.object(self.pods.get(ctx.namespace, name))

    async def _budget(self, ctx: Context, pod: Obj) -> Obj | None:
        """Return the one budget that selects the pod, None if there is none. Raises TooManyBudgets."""
        labels = pod["metadata"].get("labels") or {}
        found, start, time_slice = list[Obj](), "", TimeSlice()
        while True:
            page = self.budgets.store.range(self.budgets.prefix(ctx.namespace), start, PAGE, max_bytes=PAGE_BYTES)
            for rec in page.records:
                if time_slice.over:
                    await time_slice.pause()
                budget = await step(len(rec) >= LARGE, self._selecting, rec, labels)
                if budget is not None:
                    found.append(budget)
            if len(found) > 1:
                raise TooManyBudgets
            if not page.more:
                return found[0] if found else None
            start = page.next_key

    def _selecting(self, rec: Record, labels: dict[str, str]) -> Obj | None:
        """Return the budget if it selects these labels, else None."""
        budget = self.budgets.object(rec)
        try:
            selector = from_label_selector((budget.get("spec") or {}).get("selector"))
        except SelectorError:
            return None  # an invalid selector selects nothing
        return budget if selector.matches(labels) else None

    @staticmethod
    def _is_unguarded(pod: Obj, budget: Obj) -> bool:
        """Whether a pod that is not ready costs no disruption: the policy says so, or enough others are healthy."""
        if _is_ready(pod):
            return False
        if (budget.get("spec") or {}).get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
            return True
        status = budget.get("status") or {}
        desired = status.get("desiredHealthy") or 0
        return (status.get("currentHealthy") or 0) >= desired > 0

    async def _spend(self, ctx: Context, pod: Obj, budget: Obj) -> None:
        """Take one disruption off the budget and record the pod in it, in one write."""
        name = budget["metadata"]["name"]
        if ctx.dry_run:
            spent(budget, pod["metadata"]["name"], ctx.now)
            return

        def change(current: Obj | None) -> Obj:
            assert current is not None
            after = {**current, "status": spent(current, pod["metadata"]["name"], ctx.now), "metadata": dict(current["metadata"])}
            # Without a resource version, a lost race is retried immediately, based on the other eviction's result.
            after["metadata"].pop("resourceVersion", None)
            self._own(current, after, ctx.within("status"))
            return after

        async def write() -> None:
            await self.budgets.update(ctx.within("status"), name, change, subresource="status")

        await _retry(write)

    async def _delete(self, ctx: Context, name: str, options: dict[str, Any]) -> None:
        """Record the reason in the pod's status, then delete the pod."""
        if not ctx.dry_run:

            def condition(pod: Obj | None) -> Obj:
                assert pod is not None
                self.pods.check_preconditions(name, pod, options)
                meta = {k: v for k, v in pod["metadata"].items() if k != "resourceVersion"}
                return {**pod, "metadata": meta, "status": disrupted(pod.get("status") or {}, ctx.now)}

            rec = await self.pods.update(ctx.within("status"), name, condition, subresource="status")
            if _version(options) is not None:
                # The delete must expect the version just written.
                options = {**options, "preconditions": {**options["preconditions"], "resourceVersion": str(rec.revision)}}
        await self.pods.delete(ctx, name, dict(options))




def spent(budget: Obj, pod: str, now: str) -> Obj:
    """Return a budget's status after one more disruption. Raises 429 or 403 if none is allowed."""
    meta, status = budget["metadata"], dict(budget.get("status") or {})
    name = meta["name"]
    if (status.get("observedGeneration") or 0) < (meta.get("generation") or 0):
        raise _still_processed(name)
    allowed = status.get("disruptionsAllowed") or 0
    if allowed < 0:
        raise errors.forbidden("policy", "poddisruptionbudget", name, "pdb disruptions allowed is negative")
    disrupted_pods = dict(status.get("disruptedPods") or {})
    if len(disrupted_pods) > MAX_DISRUPTED_PODS:
        why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
        raise errors.forbidden("policy", "poddisruptionbudget", name, why)
    if allowed == 0:
        raise _too_many(_why_none(name, status), 0)
    status["disruptionsAllowed"] = allowed - 1
    if allowed == 1:
        status["conditions"] = _insufficient(status.get("conditions") or [], meta.get("generation") or 0, now)
    disrupted_pods[pod] = now
    status["disruptedPods"] = disrupted_pods
    return status


def disrupted(status: Obj, now: str) -> Obj:
    """Return a pod's status with the condition that it is evicted; an equal condition keeps its time."""
    new = {
        "type": "DisruptionTarget", "status": "True", "lastProbeTime": None, "lastTransitionTime": now,
        "reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting",
    }  # fmt: skip
    return {**status, "conditions": with_condition(status.get("conditions") or [], new)}


def _insufficient(conditions: list[Obj], generation: int, now: str) -> list[Obj]:
    """Return the conditions of a budget that has no disruptions left (``pdbhelper.UpdateDisruptionAllowedCondition``)."""
    new: Obj = {
        "type": "DisruptionAllowed", "status": "False", "observedGeneration": generation, "lastTransitionTime": now,
        "reason": "InsufficientPods", "message": "",
    }  # fmt: skip
    return with_condition(conditions, new)


def _why_none(name: str, status: Obj) -> str:
    """Return why a budget allows no disruption. A failed sync comes first, because then the numbers mean nothing."""
    found: Obj = next((c for c in status.get("conditions") or () if c.get("type") == "DisruptionAllowed"), {})
    message = found.get("message") if found.get("status") == "False" else ""
    if message and found.get("reason") == "SyncFailed":
        return f"The disruption budget {name} does not allow evicting pods currently because it failed sync: {message}"
    desired, current = status.get("desiredHealthy") or 0, status.get("currentHealthy") or 0
    if current <= desired:
        return f"The disruption budget {name} needs {desired} healthy pods and has {current} currently"
    if message:
        return f"The disruption budget {name} does not allow evicting pods currently ({found.get('reason') or ''}): {message}"
    return f"The disruption budget {name} does not allow evicting pods currently"


def _too_many(why: str, retry_after_s: int) -> ApiError:
    e = errors.too_many_requests(VIOLATES, retry_after_s)
    e.details = {"causes": [{"reason": "DisruptionBudget", "message": why}]}
    if retry_after_s:
        e.details["retryAfterSeconds"] = retry_after_s
    else:
        e.headers = None
    return e


def _still_processed(name: str) -> ApiError:
    return _too_many(f"The disruption budget {name} is still being processed by the server.", 10)


def _is_over(pod: Obj) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed") or bool(pod["metadata"].get("deletionTimestamp"))


def _needs_no_budget(pod: Obj) -> bool:
    return _is_over(pod) or (pod.get("status") or {}).get("phase") == "Pending"


def _is_ready(pod: Obj) -> bool:
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in (pod.get("status") or {}).get("conditions") or ())


def _version(options: dict[str, Any]) -> str | None:
    return (options.get("preconditions") or {}).get("resourceVersion")


def _pinned(options: dict[str, Any], pod: Obj) -> dict[str, Any]:
    preconditions = {**(options.get("preconditions") or {}), "resourceVersion": pod["metadata"]["resourceVersion"]}
    return {**options, "preconditions": preconditions}


async def _retry(work: Callable[[], Awaitable[Any]], retry: bool = True) -> Any:
    """Repeat ``work`` while it meets conflicts."""
    for left in range(RETRIES, 0, -1):
        try:
            return await work()
        except ApiError as e:
            if e.code != 409 or not retry or left == 1:
                raise
        await asyncio.sleep(RETRY_DELAY_S * (1 + 0.1 * random.random()))
    raise AssertionError("unreachable")
