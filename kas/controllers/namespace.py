"""Deletes the content of terminating namespaces and finalizes them (``pkg/controller/namespace``).

Pods are deleted first and everything else waits for them (KEP-5080), so that nothing disappears that still protects a pod. A pass deletes
what exists, writes what remains into the conditions, and finalizes the namespace once it is empty. The next pass follows when something
in the namespace was deleted, or after a while.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from kas.admission import Chain
from kas.aggregator.aggregator import Aggregator
from kas.controllers.client import Client, split_key
from kas.controllers.graph import FOREGROUND, ORPHAN
from kas.controllers.namespace_conditions import Findings, updated
from kas.controllers.namespace_remote import RemoteContent
from kas.controllers.queue import WorkQueue, follow
from kas.meta.errors import ApiError
from kas.meta.stored import object_of
from kas.meta.waiting import TimeSlice
from kas.registry.generic import Registry
from kas.registry.registries import Registries
from kas.store import PAGE_BYTES, Event, Record

FINALIZER = "kubernetes"
AT_ONCE = 64  # concurrent deletions; they share group commits
ASKED_AT_ONCE = 4  # per namespace, if webhooks are called: each webhook has room for 68 calls, which client requests need, too
PAGE = 500
SOON_S, LATER_S, LATEST_S = 0.05, 1.0, 15.0
SLOW_S = 1.0  # for a batch that was refused
REST = 4  # the pause, as a multiple of a pass's duration: remaining objects may be many, and go one by one
WORKERS = 10  # as upstream: each may have to wait for a webhook that does not answer


class NamespaceController:
    """Empties terminating namespaces and finalizes them."""

    name = "namespace-controller"

    def __init__(self, registries: Registries, aggregator: Aggregator, admission: Chain) -> None:
        self._remote = RemoteContent(aggregator)
        self.client = Client(registries, "kube-controller-manager", "system:serviceaccount:kube-system:namespace-controller", admission)
        self.registry = registries.of("", "namespaces")
        self.queue = WorkQueue(self._sync, self.name)
        self.ending: dict[str, float] = {}  # terminating namespaces -> pause before the next pass without an event
        self._rests: dict[str, float] = {}  # the same before a pass caused by a deletion

    async def run(self) -> None:
        """Follow the namespaces, and the content of terminating ones, until cancelled."""
        namespaces = self.client.reflector(self.registry.root, self._namespace_events, self._listed)
        await follow(self.queue, [namespaces, self.client.reflector("/registry/", self._content_events)], WORKERS)

    def _listed(self, records: Sequence[Record]) -> None:
        for rec in records:
            self._look(rec.key, rec.json)

    def _look(self, key: str, json: bytes) -> None:
        if b'"deletionTimestamp":' in json:
            name = split_key(self.registry, key)[1]
            if name not in self.ending:
                self.ending[name] = LATER_S
            self.queue.add(name)

    def _namespace_events(self, events: Sequence[Event]) -> None:
        for e in events:
            name = split_key(self.registry, e.key)[1]
            if e.record is None:
                self._ended(name)
            elif name not in self.ending:
                self._look(e.key, e.record.json)

    def _content_events(self, events: Sequence[Event]) -> None:
        """Schedule a pass when an object in a terminating namespace was deleted."""
        if not self.ending:
            return
        for e in events:
            if e.record is None:
                namespace = e.key.rpartition("/")[0].rpartition("/")[2]
                if namespace in self.ending:
                    self.ending[namespace] = LATER_S
                    self.queue.add_after(namespace, self._rests.get(namespace, SOON_S))

    def _ended(self, name: str) -> None:
        self.ending.pop(name, None)
        self._rests.pop(name, None)

    async def _sync(self, name: str) -> float | None:
        namespace = self.client.get("", "namespaces", "", name)
        if namespace is None or not namespace["metadata"].get("deletionTimestamp"):
            self._ended(name)
            return None
        if FINALIZER not in ((namespace.get("spec") or {}).get("finalizers") or ()):
            return None  # other finalizers remain; their removal ends it
        began = time.monotonic()
        found = await self._delete_content(name, namespace["metadata"]["deletionTimestamp"])
        self._rests[name] = min(LATEST_S, max(SOON_S, REST * (time.monotonic() - began)))
        now = self.client.context().now

        def note(obj: dict[str, Any]) -> bool:
            status = obj.setdefault("status", {})
            conditions = updated(status.get("conditions") or [], found, now)
            if conditions is None and status.get("phase") == "Terminating":
                return False
            status["phase"] = "Terminating"
            if conditions is not None:
                status["conditions"] = conditions
            return True

        uid = namespace["metadata"].get("uid", "")
        await self.client.update(self.registry, "", name, note, "status", uid)
        if found.empty:
            await self.client.rest_fresh(self.registry.root, (reg.root for reg in self._contents()))
        if found.empty and not await self._anything(name):
            await self.client.update(self.registry, "", name, _finalize, "finalize", uid)
            return None
        pause = self.ending.get(name, LATER_S)
        self.ending[name] = min(LATEST_S, pause * 2)
        return pause

    async def _anything(self, namespace: str) -> bool:
        """Return whether anything is left. A last check: writes that were in progress when the deletion began are in the store by now, as
        the status is."""
        time_slice = TimeSlice()  # there may be thousands of kinds
        for reg in self._contents():
            if self.client.store.range(reg.prefix(namespace), limit=1).records:
                return True
            if time_slice.over:
                await time_slice.pause()
        return False

    def _contents(self) -> list[Registry]:
        """Return the registries of all namespaced kinds, as a snapshot: kinds may come and go during the iteration."""
        return [reg for reg in self.client.registries if reg.resource.namespaced and "delete" in reg.resource.verbs]

    async def _delete_content(self, namespace: str, since: str) -> Findings:
        found = Findings()
        pods = self.client.registries.of("", "pods")
        await self._empty(pods, namespace, found, await self._still_ending(pods, namespace, since))
        if found.empty:
            time_slice = TimeSlice()
            for reg in self._contents():
                if time_slice.over:
                    await time_slice.pause()
                if reg is not pods:
                    await self._empty(reg, namespace, found)
            await self._remote.empty(namespace, found)
        return found

    async def _still_ending(self, pods: Registry, namespace: str, since: str) -> bool:
        """Return whether a pod's grace period has not elapsed since the deletion of the namespace."""
        longest = 0
        async for rec in self.client.paced(pods.prefix(namespace)):
            pod = object_of(rec)
            if (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed"):
                longest = max(longest, (pod.get("spec") or {}).get("terminationGracePeriodSeconds") or 0)
        return time.time() - datetime.fromisoformat(since).timestamp() < longest

    async def _delete(self, reg: Registry, namespace: str, names: list[str], failures: list[str]) -> bool:
        """Delete these objects; errors are appended to ``failures``.

        Returns False if admission refused and took long for it, so that the next pass must continue: a webhook that does not answer
        delays other namespaces only once per pass.
        """
        together = "deletecollection" in reg.resource.verbs
        at_once = ASKED_AT_ONCE if self.client.asks_webhooks(reg, namespace) else AT_ONCE
        for i in range(0, len(names), at_once):
            began, said = time.monotonic(), len(failures)
            results = await asyncio.gather(
                *(
                    self.client.delete(reg, namespace, n, of_collection=together, propagationPolicy="Background")
                    for n in names[i : i + at_once]
                ),
                return_exceptions=True,
            )
            for e in results:
                if isinstance(e, ApiError):
                    failures.append(e.message)
                elif isinstance(e, BaseException):
                    raise e
            if len(failures) > said and time.monotonic() - began > SLOW_S:
                return False
        return True

    async def _empty(self, reg: Registry, namespace: str, found: Findings, patient: bool = False) -> None:
        """Delete all objects of a kind in a namespace and count the remaining ones. Those without finalizers are reported as a failure
        unless ``patient``."""
        prefix, store, r = reg.prefix(namespace), self.client.store, reg.resource
        start, failures = "", list[str]()
        time_slice = TimeSlice()
        while True:
            page = store.range(prefix, start, PAGE, max_bytes=PAGE_BYTES)
            todo = [split_key(reg, rec.key)[1] for rec in page.records if not _on_its_way(rec)]
            in_time = await self._delete(reg, namespace, todo, failures)
            if not page.more or not in_time:
                break
            start = page.next_key
            if time_slice.over:
                await time_slice.pause()
        if not start and not page.records:
            return
        left, kept = 0, False
        async for rec in self.client.paced(prefix):
            left += 1
            if finalizers := object_of(rec)["metadata"].get("finalizers"):
                kept = True
                found.finalizers.update(set(finalizers))
        if left:
            found.remaining[f"{r.resource}.{r.group}"] += left
        if left and not (failures or patient or kept):
            gvr = f"{r.group}/{r.version}, Resource={r.resource}"
            failures.append(f"unexpected items still remain in namespace: {namespace} for gvr: {gvr}")
        found.failures += failures[:1]


def _on_its_way(rec: Record) -> bool:
    """Return whether deleting the object again would change nothing: it waits for others, which may be slow, and many."""
    if b'"deletionTimestamp":' not in rec.json:
        return False
    meta = object_of(rec)["metadata"]
    return bool(meta.get("deletionTimestamp")) and not {FOREGROUND, ORPHAN} & set(meta.get("finalizers") or ())


def _finalize(namespace: dict[str, Any]) -> bool:
    spec = namespace.setdefault("spec", {})
    had = spec.get("finalizers") or []
    spec["finalizers"] = [f for f in had if f != FINALIZER]
    return len(spec["finalizers"]) != len(had)
