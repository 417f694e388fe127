"""Counts what namespaces with quotas use (``pkg/controller/resourcequota``).

Admission raises what is used before a write; this controller sets it in the first place, and counts anew when objects go away or become
smaller. A count that meets a write between its charge and its commit is too low, and would let in one more than there is room for. So
what is used goes down only where nothing was charged for ``QUIET_S`` before the count. A quota that is charged all the time is believed
after ``MOST_TRIES``: there too low for a moment is better than too high for good, and what changed something is followed by another count.
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
from kas.controllers.quotacounts import Census, Counts
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
QUIET_S, MOST_TRIES = 0.5, 10  # by then a write has been committed or has given back what it took
LOAD = 20  # a count is followed by a pause this many times as long
ENDED = (b'"phase":"Succeeded"', b'"phase":"Failed"')
RESIZED = (("", "services"), ("", "persistentvolumeclaims"), ("resource.k8s.io", "resourceclaims"))


# A kind, what counts it, the names under which a quota asks for that, and the count that this is part of.
Counted = tuple[Registry, Evaluator, list[str], Census]


class _Unconfirmed(NamedTuple):
    """A quota that says more than was counted: at which revision, since when, and how many revisions it had meanwhile."""

    revision: str
    since: float
    tries: int


class ResourceQuotas:
    """Counts what namespaces use, and writes it into the status of their quotas."""

    name = "resourcequota-controller"

    def __init__(self, registries: Registries) -> None:
        self.clock: Callable[[], float] = time.monotonic
        self.client = Client(registries, "kube-controller-manager", "system:serviceaccount:kube-system:resourcequota-controller")
        self.store = registries.store
        self.registry = registries.of("", "resourcequotas")
        self.pods_root = registries.of("", "pods").root
        self.resized = tuple(registries.of(*r).root for r in RESIZED)
        self.evaluators = Evaluators(registries, registries)
        self.uncounted = {registries.of("", "events").root}  # of what is stored in namespaces
        self.counts = Counts(self.client)
        self.queue = WorkQueue(self._sync, self.name)
        # By namespace, the roots of kinds of which there may be less; None is all of them, as where nothing stands.
        self.freed: dict[str, set[str] | None] = {}
        self.namespaces: dict[str, float] = {}  # those with quotas, to the pause before the next count
        self.unconfirmed: dict[str, dict[str, _Unconfirmed]] = {}  # by namespace and uid

    async def run(self) -> None:
        """Follow everything that may be counted until cancelled, and count anew every ``RESYNC_S`` seconds."""
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
        """The next count of a namespace is of these, too."""
        owed = self.freed.setdefault(namespace, set())
        if owed is not None:
            self.freed[namespace] = None if kinds is None else owed | kinds

    def _frees(self, e: Event) -> bool:
        """May there be less used than before?"""
        if e.record is None:
            return True
        if e.previous is None:
            return False
        if e.key.startswith(self.pods_root):
            return _pod_frees(e.record.json, e.previous.json)
        return e.key.startswith(self.resized)

    async def _sync(self, item: str | tuple[str, str]) -> float | None:
        """Counts for all quotas of a namespace, or for one that is new or asks for something else: others are as they were."""
        return await (self._namespace(item) if isinstance(item, str) else self._one(*item))

    async def _one(self, namespace: str, name: str) -> float | None:
        quota = self.client.get("", "resourcequotas", namespace, name)
        if quota is None:
            return None
        unconfirmed = self.unconfirmed.setdefault(namespace, {})
        counted = self._counted(_hard(quota), self._kinds(None), Census(self.counts, namespace, [quota]))
        changed = await self._quota(namespace, quota, counted, dict(unconfirmed), unconfirmed)
        if not self.unconfirmed.get(namespace):
            self.unconfirmed.pop(namespace, None)
        return QUIET_S if quota["metadata"].get("uid", "") in unconfirmed else AGAIN_S if changed else None

    async def _namespace(self, namespace: str) -> float | None:
        """What quotas say of kinds of which nothing was freed stays: a map that is deleted is no reason to read all pods."""
        freed = self.freed.pop(namespace, None)
        quotas = await POOL.run(self.client.list, "", "resourcequotas", namespace)  # there may be thousands, or large ones
        # One may have come meanwhile: whoever forgets the namespace looks in the same turn of the loop.
        if not quotas and not (quotas := self.client.list("", "resourcequotas", namespace)):
            self.namespaces.pop(namespace, None)
            self.unconfirmed.pop(namespace, None)
            self.counts.forget(namespace)
            return None
        began, changed, time_slice, kinds = self.clock(), False, TimeSlice(), self._kinds(freed)
        before, unconfirmed = self.unconfirmed.get(namespace, {}), dict[str, _Unconfirmed]()
        census = Census(self.counts, namespace, quotas)
        for quota in quotas:
            counted = self._counted(_hard(quota), kinds, census)
            if counted or freed is None:
                changed |= await self._quota(namespace, quota, counted, before, unconfirmed)
            if time_slice.over:  # a count of nothing but numbers, and a status that stays, wait for nobody
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
        """Of what is counted, that which has to be counted anew."""
        if freed is not None and self.pods_root in freed:
            freed = freed | {self.client.registries.of("resource.k8s.io", "resourceclaims").root}  # a pod may have paid for a claim
        return [
            reg for reg in self.client.registries
            if (freed is None or reg.root in freed) and reg.resource.namespaced
            and (reg.resource.group, reg.resource.resource) not in UNCOUNTED
        ]  # fmt: skip

    def _counted(self, hard: dict[str, str], kinds: list[Registry], census: Census) -> list[Counted]:
        """Those of the kinds that a quota is about."""
        asked = ((reg, self.evaluators.of(reg.resource.group, reg.resource.resource)) for reg in kinds)
        return [(reg, evaluator, names, census) for reg, evaluator in asked if (names := evaluator.matching(hard))]

    async def _quota(
        self, namespace: str, quota: dict[str, Any], kinds: list[Counted], before: dict[str, _Unconfirmed],
        unconfirmed: dict[str, _Unconfirmed],
    ) -> bool:  # fmt: skip
        """Counts for one; whether it said something else. What is not believed yet is put into ``unconfirmed``, what was not before is in
        ``before``."""
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
        """What is used of each of the quota's resources that some kind counts."""
        scoped = bool(scopes_of(quota))
        total: pod_objects.Amounts = {}
        for reg, evaluator, names, census in kinds:
            if type(evaluator) is Evaluator:
                # Only their number matters, and no scope is about them.
                used = dict.fromkeys(names, Quantity(0 if scoped else self.store.count(reg.prefix(namespace))))
            else:
                used = await (await census.of(reg, evaluator)).used(quota, names)
            pod_objects.add(total, used)
        return total

    async def _write(self, namespace: str, quota: dict[str, Any], hard: dict[str, str], counted: pod_objects.Amounts) -> bool:
        """The count as the quota's status; True when it was another one. A quota that changed meanwhile is counted again."""
        meta, stale = quota["metadata"], False
        if not meta.get("name"):  # put into etcd by another client; no write of it would be taken
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
    """Puts what the quota says is used into ``counted`` where that is more; whether it is anywhere."""
    more = {k: v for k, v in pod_objects.amounts((quota.get("status") or {}).get("used")).items() if k in counted and v > counted[k]}
    counted.update(more)
    return bool(more)


def _pod_frees(now: bytes, before: bytes) -> bool:
    """Whether a pod ended, moved between scopes, or its containers have other resources than before."""
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
    """What a stored quota asks for, as it is written, where it is counted for just that; empty where the object has to be read to know."""
    # Behind the metadata, which may say anything, there are names of resources and amounts only.
    at = json.rfind(_SPEC)
    said = json.find(_STATUS, at)
    used = json.find(_USED, said)
    if at < 0 or said < 0 or used < 0 or not json.startswith(json[said + len(_STATUS) : used], at + len(_SPEC)):
        return b""
    return json[at:said]


def _to_count(e: Event) -> bool:
    """A quota that is new, or asks for something else than it is counted for; not one whose usage was raised."""
    if e.previous is None:
        return True
    assert e.record is not None  # changes only
    asked = _asked(e.record.json)
    if asked and asked == _asked(e.previous.json):  # a pod raises the usage of all quotas of its namespace, of which there may be thousands
        return False
    quota, before = object_of(e.record), object_of(e.previous)
    return quota.get("spec") != before.get("spec") or (quota.get("status") or {}).get("hard") != (quota.get("spec") or {}).get("hard")
