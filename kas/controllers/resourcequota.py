"""Calculates the usage of namespaces with quotas (``pkg/controller/resourcequota``).

Admission increases the usage before a write. This controller sets it initially, and recounts when objects are deleted or become smaller.
A count between a write's charge and its commit is too low and would admit one object too many. So usage is decreased only if nothing was
charged in the ``QUIET_S`` before the count. For a quota that is charged continuously, the count is accepted after ``MOST_TRIES``: a usage
that is too low for a moment is better than one that stays too high, and a count that changed something is followed by another.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

import orjson

from kas.admission import pods as pod_objects
from kas.admission.plugins.resource_quota import UNCOUNTED
from kas.admission.quota_usage import Evaluator, Evaluators, scopes_of
from kas.controllers.client import Client, split_key
from kas.controllers.queue import WorkQueue
from kas.controllers.quotacounts import Counts, QuotaCount
from kas.meta.equality import semantic_equal
from kas.meta.offload import POOL
from kas.meta.quantity import Quantity
from kas.meta.records import NamedTuple
from kas.meta.stored import object_of
from kas.meta.waiting import TimeSlice
from kas.registry.generic import Registry
from kas.registry.registries import Registries
from kas.store import Event
from kas.types.scheme import builtin_type

PAUSE_S, LONGEST_PAUSE_S, AGAIN_S, RESYNC_S = 0.1, 10.0, 1.0, 300.0
QUIET_S, MOST_TRIES = 0.5, 10  # by then, a write is committed or has returned its charge
LOAD = 20  # the pause after a count, as a multiple of its duration
ENDED = (b'"phase":"Succeeded"', b'"phase":"Failed"')
RESIZED = (("", "services"), ("", "persistentvolumeclaims"), ("resource.k8s.io", "resourceclaims"))


# A kind, its evaluator, the names under which a quota limits it, and the count it is part of.
Counted = tuple[Registry, Evaluator, list[str], QuotaCount]


class _Unconfirmed(NamedTuple):
    """A quota whose status exceeds the count: its revision, since when, and how many revisions it has had since."""

    revision: str
    since: float
    tries: int


class ResourceQuotas:
    """Calculates the usage of namespaces, and writes it to the status of their quotas."""

    name = "resourcequota-controller"

    def __init__(self, registries: Registries) -> None:
        self.clock: Callable[[], float] = time.monotonic
        self.client = Client(registries, "kube-controller-manager", "system:serviceaccount:kube-system:resourcequota-controller")
        self.store = registries.store
        self.registry = registries.of("", "resourcequotas")
        self.pods_root = registries.of("", "pods").root
        self.resized = tuple(registries.of(*r).root for r in RESIZED)
        self.evaluators = Evaluators(registries, registries)
        self.uncounted = {registries.of("", "events").root}  # namespaced resources that quotas do not count
        self.counts = Counts(self.client)
        self.queue = WorkQueue(self._sync, self.name)
        # By namespace, the roots of kinds whose usage may have decreased. None, or no entry, means all.
        self.freed: dict[str, set[str] | None] = {}
        self.namespaces: dict[str, float] = {}  # namespaces with quotas -> pause before the next count
        self.unconfirmed: dict[str, dict[str, _Unconfirmed]] = {}  # by namespace and uid

    async def run(self) -> None:
        """Follow everything that may be counted until cancelled, and recount every ``RESYNC_S`` seconds."""
        reflector = self.client.reflector("/registry/", self._events, lambda _: self._resync(), lists=False)
        reflector.start()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.queue.run(2))
                while True:
                    await asyncio.sleep(RESYNC_S)
                    self._resync()
        finally:
            reflector.stop()

    def _resync(self) -> None:
        self.counts.clear()
        self.namespaces = {split_key(self.registry, rec.key)[0]: PAUSE_S for rec in self.store.range(self.registry.root).records}
        for namespace in self.namespaces:
            self.freed[namespace] = None
            self.queue.add(namespace)

    def _events(self, events: Sequence[Event]) -> None:
        root, known = self.registry.root, self.namespaces
        for e in events:
            if e.key.startswith(root):
                if e.record is not None and _to_count(e):
                    namespace, name = split_key(self.registry, e.key)
                    known.setdefault(namespace, PAUSE_S)
                    self.queue.add((namespace, name))
            elif known:
                kind, _, namespace = e.key.rpartition("/")[0].rpartition("/")
                if namespace in known and (kind := kind + "/") not in self.uncounted:
                    freed = self.counts.apply(kind, namespace, e)
                    if self._frees(e) if freed is None else freed:
                        self._owe(namespace, {kind})
                        self.queue.add_after(namespace, known[namespace])

    def _owe(self, namespace: str, kinds: set[str] | None) -> None:
        """Include these kinds in the namespace's next count."""
        owed = self.freed.setdefault(namespace, set())
        if owed is not None:
            self.freed[namespace] = None if kinds is None else owed | kinds

    def _frees(self, e: Event) -> bool:
        """Return whether usage may have decreased."""
        if e.record is None:
            return True
        if e.previous is None:
            return False
        if e.key.startswith(self.pods_root):
            return _pod_frees(e.record.json, e.previous.json)
        return e.key.startswith(self.resized)

    async def _sync(self, item: str | tuple[str, str]) -> float | None:
        """Recount all quotas of a namespace, or a single one that is new or has other limits."""
        return await (self._namespace(item) if isinstance(item, str) else self._one(*item))

    async def _one(self, namespace: str, name: str) -> float | None:
        quota = self.client.get("", "resourcequotas", namespace, name)
        if quota is None:
            return None
        unconfirmed = self.unconfirmed.setdefault(namespace, {})
        counted = self._counted(_hard(quota), self._kinds(None), QuotaCount(self.counts, namespace, [quota]))
        changed = await self._quota(namespace, quota, counted, dict(unconfirmed), unconfirmed)
        if not self.unconfirmed.get(namespace):
            self.unconfirmed.pop(namespace, None)
        return QUIET_S if quota["metadata"].get("uid", "") in unconfirmed else AGAIN_S if changed else None

    async def _namespace(self, namespace: str) -> float | None:
        """Recount a namespace. Kinds whose usage did not decrease are skipped: the deletion of a ConfigMap must not cause a read of all
        pods."""
        freed = self.freed.pop(namespace, None)
        quotas = await POOL.run(self.client.list, "", "resourcequotas", namespace)  # there may be thousands, or large ones
        # A quota may have been created meanwhile. The check and the removal happen in the same loop iteration.
        if not quotas and not (quotas := self.client.list("", "resourcequotas", namespace)):
            self.namespaces.pop(namespace, None)
            self.unconfirmed.pop(namespace, None)
            self.counts.forget(namespace)
            return None
        began, changed, time_slice, kinds = self.clock(), False, TimeSlice(), self._kinds(freed)
        before, unconfirmed = self.unconfirmed.get(namespace, {}), dict[str, _Unconfirmed]()
        census = QuotaCount(self.counts, namespace, quotas)
        for quota in quotas:
            counted = self._counted(_hard(quota), kinds, census)
            if counted or freed is None:
                changed |= await self._quota(namespace, quota, counted, before, unconfirmed)
            if time_slice.over:  # counts of mere numbers and unchanged statuses never wait
                await time_slice.pause()
        self.namespaces[namespace] = pause = min(LONGEST_PAUSE_S, max(PAUSE_S, LOAD * (self.clock() - began)))
        if unconfirmed or changed:
            self._owe(namespace, freed)
        if unconfirmed:
            self.unconfirmed[namespace] = unconfirmed
            return max(QUIET_S, pause)
        self.unconfirmed.pop(namespace, None)
        return max(AGAIN_S, pause) if changed else None

    def _kinds(self, freed: set[str] | None) -> list[Registry]:
        """Return the kinds to recount."""
        if freed is not None and self.pods_root in freed:
            freed = freed | {self.client.registries.of("resource.k8s.io", "resourceclaims").root}  # it may have offset a claim
        return [
            reg for reg in self.client.registries
            if (freed is None or reg.root in freed) and reg.resource.namespaced
            and (reg.resource.group, reg.resource.resource) not in UNCOUNTED
        ]  # fmt: skip

    def _counted(self, hard: dict[str, str], kinds: list[Registry], census: QuotaCount) -> list[Counted]:
        """Return those of the kinds that the quota limits."""
        asked = ((reg, self.evaluators.of(reg.resource.group, reg.resource.resource)) for reg in kinds)
        return [(reg, evaluator, names, census) for reg, evaluator in asked if (names := evaluator.matching(hard))]

    async def _quota(
        self, namespace: str, quota: dict[str, Any], kinds: list[Counted], before: dict[str, _Unconfirmed],
        unconfirmed: dict[str, _Unconfirmed],
    ) -> bool:  # fmt: skip
        """Recount one quota; return whether its status changed. A count that is not accepted yet is put into ``unconfirmed``; ``before``
        has those of the previous count."""
        uid, revision = quota["metadata"].get("uid", ""), quota["metadata"]["resourceVersion"]
        last = before.get(uid) or _Unconfirmed(revision, self.clock(), 0)
        last = last if last.revision == revision else _Unconfirmed(revision, self.clock(), last.tries + 1)
        confirmed = self.clock() - last.since >= QUIET_S or last.tries >= MOST_TRIES
        counted = await self._count(namespace, quota, kinds)
        unconfirmed.pop(uid, None)
        if not confirmed and _keep(quota, counted):
            unconfirmed[uid] = last
        return await self._write(namespace, quota, _hard(quota), counted)

    async def _count(self, namespace: str, quota: dict[str, Any], kinds: list[Counted]) -> pod_objects.Amounts:
        """Return the usage of each of the quota's resources that some kind counts."""
        scoped = bool(scopes_of(quota))
        total: pod_objects.Amounts = {}
        for reg, evaluator, names, census in kinds:
            if type(evaluator) is Evaluator:
                # Only their number matters, and scopes do not apply to them.
                used = dict.fromkeys(names, Quantity(0 if scoped else self.store.count(reg.prefix(namespace))))
            else:
                used = await (await census.of(reg, evaluator)).used(quota, names)
            pod_objects.add(total, used)
        return total

    async def _write(self, namespace: str, quota: dict[str, Any], hard: dict[str, str], counted: pod_objects.Amounts) -> bool:
        """Write the count to the quota's status; return True if it changed. A quota that was changed meanwhile is counted again."""
        meta, stale = quota["metadata"], False
        if not meta.get("name"):  # written to etcd by another client; an update would be refused
            return False
        revision = meta["resourceVersion"]

        def change(obj: dict[str, Any]) -> bool:
            nonlocal stale
            if obj["metadata"]["resourceVersion"] != revision:
                stale = True
                return False
            before = obj.get("status") or {}
            used = {k: v for k, v in (before.get("used") or {}).items() if k in hard}
            used |= {name: str(counted[name]) for name in sorted(counted) if name in hard}
            status = {"hard": dict(hard), "used": dict(sorted(used.items()))}
            if semantic_equal(before, status, builtin_type("core.v1.ResourceQuotaStatus")):
                return False
            obj["status"] = status
            return True

        written = await self.client.update(self.registry, namespace, meta["name"], change, "status", meta.get("uid", ""))
        return stale or written is not None


def _hard(quota: dict[str, Any]) -> dict[str, str]:
    return (quota.get("spec") or {}).get("hard") or {}


def _keep(quota: dict[str, Any], counted: pod_objects.Amounts) -> bool:
    """Raise the amounts in ``counted`` to those in the quota's status where these are higher; return whether any was."""
    more = {k: v for k, v in pod_objects.amounts((quota.get("status") or {}).get("used")).items() if k in counted and v > counted[k]}
    counted.update(more)
    return bool(more)


def _pod_frees(now: bytes, before: bytes) -> bool:
    """Return whether a pod ended, moved between scopes, or its containers' resources changed."""
    if any(text in now for text in ENDED) and not any(text in before for text in ENDED):
        return True
    return _measured(orjson.loads(now)) != _measured(orjson.loads(before))


def _measured(pod: dict[str, Any]) -> tuple[Any, ...]:
    status = pod.get("status") or {}
    known = [*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())]
    held = sorted((c.get("name") or "", orjson.dumps(c.get("resources"), option=orjson.OPT_SORT_KEYS)) for c in known if c.get("resources"))
    return (pod.get("spec") or {}).get("activeDeadlineSeconds") is not None, held


_SPEC, _STATUS, _USED = b',"spec":{"hard":', b',"status":{"hard":', b',"used":{'


def _asked(json: bytes) -> bytes:
    """Return the spec of a stored quota as bytes if its status has the same limits; empty if the object must be decoded to know."""
    # After the metadata, which may contain anything, there are only names of resources and amounts.
    at = json.rfind(_SPEC)
    said = json.find(_STATUS, at)
    used = json.find(_USED, said)
    if at < 0 or said < 0 or used < 0 or not json.startswith(json[said + len(_STATUS) : used], at + len(_SPEC)):
        return b""
    return json[at:said]


def _to_count(e: Event) -> bool:
    """Return whether a quota is new or its limits differ from those in its status; not for an update of its usage."""
    if e.previous is None:
        return True
    assert e.record is not None  # changes only
    asked = _asked(e.record.json)
    if asked and asked == _asked(e.previous.json):  # a pod raises the usage of all quotas of its namespace, of which there may be thousands
        return False
    quota, before = object_of(e.record), object_of(e.previous)
    return quota.get("spec") != before.get("spec") or (quota.get("status") or {}).get("hard") != (quota.get("spec") or {}).get("hard")
