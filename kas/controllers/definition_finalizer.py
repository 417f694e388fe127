"""Deletes the objects of a deleted definition before the definition itself (apiextensions-apiserver ``pkg/controller/finalizer``).

A pass deletes all objects. Objects with finalizers of their own are waited for; the next pass follows when one of them is deleted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from kas.apiextensions.definition import FINALIZER
from kas.controllers.client import Client, split_key
from kas.controllers.queue import WorkQueue, follow
from kas.meta.conditions import with_condition
from kas.meta.errors import ApiError
from kas.registry.generic import Registry
from kas.registry.registries import Registries
from kas.store import PAGE_BYTES, Event, Record
from kas.types.scheme import find_builtin_kind

Obj = dict[str, Any]
GROUP, RESOURCE = "apiextensions.k8s.io", "customresourcedefinitions"
PAGE, AT_ONCE, WORKERS = 500, 64, 4
LATER_S, SOON_S = 5.0, 0.05
PATIENCE_S = 60.0  # before the condition reports that objects remain
IN_PROGRESS = ("True", "InstanceDeletionInProgress", "CustomResource deletion is in progress")
COMPLETED = ("False", "InstanceDeletionCompleted", "removed all instances")
NEVER = ("False", "NeverEstablished", "resource was never established")
OVERLAPPING = ("False", "OverlappingBuiltInResource", "instances overlap with built-in resources in storage")
WAITING = ("True", "InstanceDeletionCheck", "could not confirm zero CustomResources remaining: context deadline exceeded")


class DefinitionFinalizer:
    """Deletes the objects of deleted definitions, then removes the definitions' finalizer."""

    name = "crd-finalizer"

    def __init__(self, registries: Registries) -> None:
        self.client = Client(registries, "kube-apiserver", "system:apiserver")
        self.registry = registries.of(GROUP, RESOURCE)
        self.queue = WorkQueue(self._sync, self.name)
        self._ending: dict[str, str] = {}  # prefix of the objects -> definition that waits for them
        self._since: dict[str, float] = {}  # prefix of the objects -> when the wait began

    async def run(self) -> None:
        """Follow the definitions, and the objects of deleted ones, until cancelled."""
        definitions = self.client.each(self.registry.root, self._look)
        await follow(self.queue, [definitions, self.client.reflector("/registry/", self._object_events)], WORKERS)

    def _look(self, rec: Record) -> None:
        if b'"deletionTimestamp":' in rec.json:
            self.queue.add(split_key(self.registry, rec.key)[1])

    def _object_events(self, events: Sequence[Event]) -> None:
        if not self._ending:
            return
        for e in events:
            if e.record is None:
                for prefix in (key := e.key.rpartition("/")[0], key.rpartition("/")[0]):
                    name = self._ending.get(f"{prefix}/")
                    if name is not None:
                        self.queue.add_after(name, SOON_S)

    async def _sync(self, name: str) -> float | None:
        obj = self.client.get(GROUP, RESOURCE, "", name)
        if obj is None or not obj["metadata"].get("deletionTimestamp") or FINALIZER not in (obj["metadata"].get("finalizers") or ()):
            return None
        uid, spec = obj["metadata"].get("uid", ""), obj["spec"]
        stored_conditions = (obj.get("status") or {}).get("conditions") or ()
        # Later passes must not reset the condition: each write would trigger this loop again, without end.
        if not any(c.get("type") == "Terminating" and c.get("reason") == WAITING[1] for c in stored_conditions):
            await self._tell(name, uid, IN_PROGRESS)
        prefix = f"/registry/{spec['group']}/{spec['names']['plural']}/"
        reg = self._of(spec["group"], spec["names"]["plural"])
        what = COMPLETED if any(c.get("type") == "Established" and c.get("status") == "True" for c in stored_conditions) else NEVER
        if reg is not None and reg.root == prefix:
            if find_builtin_kind(reg.resource.group, reg.resource.version, reg.resource.kind) is not None:
                what = OVERLAPPING  # the objects stored there are not the definition's
            else:
                self._ending[prefix] = name
                now = asyncio.get_running_loop().time()
                since = self._since.setdefault(prefix, now)
                if not await self._empty(reg):
                    if now - since >= PATIENCE_S:
                        await self._tell(name, uid, WAITING)
                    return LATER_S
                del self._ending[prefix], self._since[prefix]
        await self._tell(name, uid, what, last=True)
        return None

    def _of(self, group: str, resource: str) -> Registry | None:
        """Return the registry of the objects; None if they were never served, so that there are none."""
        try:
            return self.client.registries.of(group, resource)
        except KeyError:
            return None

    async def _empty(self, reg: Registry) -> bool:
        """Delete all objects; return whether none is left."""
        start = ""
        while True:
            page = self.client.store.range(reg.root, start, PAGE, max_bytes=PAGE_BYTES)
            todo = [split_key(reg, rec.key) for rec in page.records]
            for i in range(0, len(todo), AT_ONCE):
                results = await asyncio.gather(
                    *(self.client.delete(reg, namespace, name) for namespace, name in todo[i : i + AT_ONCE]), return_exceptions=True
                )
                for e in results:
                    if isinstance(e, BaseException) and not isinstance(e, ApiError):
                        raise e
            if not page.more:
                return not self.client.store.range(reg.root, limit=1).records
            start = page.next_key
            await asyncio.sleep(0)

    async def _tell(self, name: str, uid: str, what: tuple[str, str, str], last: bool = False) -> None:
        """Write the condition and, with ``last``, remove the finalizer. As upstream, both go through /status: validation of the rest of a
        definition, which an old stored one may fail, must not prevent its deletion."""
        condition = dict(zip(("type", "status", "reason", "message"), ("Terminating", *what), strict=True))
        now = self.client.context().now

        def change(obj: Obj) -> bool:
            had = obj["metadata"].get("finalizers") or []
            if last:
                obj["metadata"]["finalizers"] = [f for f in had if f != FINALIZER]
            status = obj.setdefault("status", {})
            conditions = status.get("conditions") or []
            if any(c.get("type") == "Terminating" and all(c.get(k) == v for k, v in condition.items()) for c in conditions):
                return last and FINALIZER in had
            status["conditions"] = with_condition(conditions, {**condition, "lastTransitionTime": now})
            return True

        await self.client.update(self.registry, "", name, change, "status", uid)
