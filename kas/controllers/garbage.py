"""Deletes objects whose owners are gone, and carries out foreground and orphaning deletions (``pkg/controller/garbagecollector``)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

from kas.admission import Chain
from kas.aggregator.aggregator import Aggregator
from kas.controllers.client import Client, split_key
from kas.controllers.garbage_remote import RemoteOwners
from kas.controllers.graph import FOREGROUND, ORPHAN, DependentsOf, Graph, Look, Node, same_ties, uid_of
from kas.controllers.ownersearch import OwnerSearch, Waiting, remember
from kas.controllers.queue import WorkQueue
from kas.meta.errors import ApiError
from kas.meta.stored import object_of
from kas.meta.waiting import TimeSlice
from kas.registry.generic import Registry
from kas.registry.registries import Registries
from kas.store import Event, Record

WORKERS = 16  # concurrent deletions share group commits
ASKING = 4  # concurrent requests to other servers
PAGE = 64
ASK_AGAIN_S = 30.0  # retry without an event: for a kind that is not served, or an owner in another server
# Resources that the collector ignores, as upstream.
IGNORED = frozenset({("", "events"), ("events.k8s.io", "events")})
INTERNAL_ROOTS = ("/registry/ranges/", "/registry/events/")


class GarbageCollector:
    """Deletes objects that lost their owners, and completes foreground and orphaning deletions."""

    name = "garbage-collector-controller"

    def __init__(self, registries: Registries, aggregator: Aggregator, admission: Chain) -> None:
        self._remote = RemoteOwners(aggregator)
        user = "system:serviceaccount:kube-system:generic-garbage-collector"
        self.client = Client(registries, "kube-controller-manager", user, admission)
        self.store = registries.store
        self.graph = Graph()
        self.queue = WorkQueue(self._work, self.name)
        # Objects with owners in other servers have a queue of their own, so that slow answers delay no other objects.
        self.asking = WorkQueue(self._ask, f"{self.name}-remote")
        self._roots: dict[str, Registry] = {}
        self._lost, self._whole = asyncio.Event(), asyncio.Event()  # changes were missed; the graph is complete
        self._reported: dict[tuple[str, str], None] = {}
        self._owner_search = OwnerSearch(self.store, f"{self.name}-elsewhere")

    async def run(self) -> None:
        """Read every object into the graph, then follow all changes until cancelled; start over after missed changes.

        No item is worked on before the graph is complete: an owner whose dependents are not known yet would seem to have none, and would
        be released before they dropped their references.
        """
        reflector = self.client.reflector("/registry/", self._events, lambda _: self._missed(), lists=False)
        reflector.start()
        self._lost.clear()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.queue.run(WORKERS))
                group.create_task(self.asking.run(ASKING))
                group.create_task(self._owner_search.queue.run(1))
                while True:
                    await self._scan()
                    if not self._lost.is_set():
                        self._whole.set()
                    await self._lost.wait()
                    self._lost.clear()
                    self.graph.clear()
                    self.queue.clear()
                    self.asking.clear()
        finally:
            reflector.stop()
            self._whole.clear()
            self.graph.clear()

    def _missed(self) -> None:
        self._whole.clear()
        self._lost.set()

    async def _scan(self) -> None:
        """Read all objects into the graph, page by page; concurrent events are newer and win."""
        time_slice = TimeSlice()
        for reg in self._collected():
            async for page in self.client.paced_pages(reg.root, PAGE):
                for rec in page.records:  # in one turn: an object deleted after it was read must not be added afterwards
                    for key in self.graph.put(rec.key, rec.json, rec.revision):
                        self.queue.add(key)
                if time_slice.over:
                    await time_slice.pause()

    def _events(self, events: Sequence[Event]) -> None:
        graph, add = self.graph, self.queue.add
        for e in events:
            if e.key.startswith(INTERNAL_ROOTS):
                continue
            if e.record is not None:
                if e.previous is not None and same_ties(e.record.json, e.previous.json):
                    continue
                for key in graph.put(e.key, e.record.json, e.record.revision):
                    add(key)
            elif graph.nodes:
                assert e.previous is not None  # a deletion carries the previous object
                uid = uid_of(e.previous.json)
                if uid in graph.dependents:
                    self._owner_search.absent(uid)
                for key in graph.remove(e.key, uid):
                    add(key)

    def _collected(self) -> Iterator[Registry]:
        """Return the registries of all kinds that may own or be owned."""
        return (reg for reg in self.client.registries if (reg.resource.group, reg.resource.resource) not in IGNORED)

    def _registry(self, key: str) -> Registry | None:
        """Return the registry a key belongs to, or None."""
        parent = key.rpartition("/")[0] + "/"
        for root in (parent, parent[:-1].rpartition("/")[0] + "/"):
            if root in self._roots:
                return self._roots[root]
        self._roots = {reg.root: reg for reg in self.client.registries}
        return self._roots.get(parent) or self._roots.get(parent[:-1].rpartition("/")[0] + "/")

    # --- one object

    async def _work(self, key: Look) -> float | None:
        await self._whole.wait()
        if isinstance(key, DependentsOf):
            time_slice = TimeSlice()  # an owner may have any number of dependents
            for d in self.graph.dependents_of(key.uid):
                self.queue.add(d.key)
                if time_slice.over:
                    await time_slice.pause()
            return None
        node, reg = self.graph.nodes.get(key), self._registry(key)
        if node is None or reg is None:
            return None
        if node.orphaning:
            await self._orphan(reg, node)
            return None
        if node.foreground:
            await self._foreground(reg, node)
            return None
        if node.deleting:
            return None  # its deletion is in progress; the dependents are examined afterwards
        return await self._collect(reg, node)

    async def _ask(self, key: str) -> float | None:
        await self._whole.wait()
        node, reg = self.graph.nodes.get(key), self._registry(key)
        if node is None or reg is None or node.deleting:
            return None
        return await self._collect(reg, node, self._remote)

    async def _collect(self, reg: Registry, node: Node, remote: RemoteOwners | None = None) -> float | None:
        """Decide by the existence of its owners what happens to an object (``attemptToDeleteItem``). Without ``remote``, an object with
        an owner in another server is moved to the queue for these."""
        rec = self.store.get(node.key)
        if rec is None:
            return None
        meta = object_of(rec)["metadata"]
        refs = meta.get("ownerReferences") or []
        if meta.get("uid") != node.uid or not refs:
            return None
        namespace, name = split_key(reg, node.key)
        solid: list[Any] = []
        dangling: list[Any] = []
        waiting: list[Any] = []
        again: float | None = None
        time_slice = TimeSlice()  # there may be 25,000 references
        for ref in refs:
            if time_slice.over:
                await time_slice.pause()
            owners = self.client.registries.of_kind(ref.get("apiVersion", ""), ref.get("kind", ""))
            if not self._remote.keep(ref):
                if owners is None:
                    return ASK_AGAIN_S
                state: str | None = self._owner_state(owners, namespace, ref)
                if state == "dangling":
                    await self.client.rest_fresh(node.key, (owners.root,))
                    state = self._owner_state(owners, namespace, ref)
            elif remote is None:
                self.asking.add(node.key)
                return None
            else:
                state, again = await remote.state(namespace, ref), ASK_AGAIN_S
            if state is None:
                return again
            if state == "invalid":
                await self._report_invalid(reg, node, namespace, name, ref)
                return None
            {"solid": solid, "dangling": dangling, "waiting": waiting}[state].append(ref)
        for ref in dangling:
            if time_slice.over:
                await time_slice.pause()
            await self._report_other_namespace(reg, node, namespace, name, ref)
        if solid:
            if dangling or waiting:
                await self._drop_references(reg, node, {r["uid"] for r in (*dangling, *waiting)})
            return again
        dependents = self.graph.dependents.get(node.uid)
        finalizers = meta.get("finalizers") or ()
        if waiting and dependents:
            if await self._waits_for_others(node.uid):
                # A cycle of objects waiting for each other: none of them may block its owner.
                await self._unblock(reg, node)
            policy = "Foreground"
        elif ORPHAN in finalizers:
            policy = "Orphan"
        elif FOREGROUND in finalizers:
            policy = "Foreground"
        else:
            policy = "Background"
        await self._delete(reg, namespace, name, rec, node.uid, policy)
        return None

    async def _waits_for_others(self, uid: str) -> bool:
        """Return whether a dependent of this owner waits for its own dependents."""
        time_slice = TimeSlice()
        for d in self.graph.dependents_of(uid):
            if d.foreground:
                return True
            if time_slice.over:
                await time_slice.pause()
        return False

    async def _delete(self, reg: Registry, namespace: str, name: str, rec: Record, uid: str, policy: str) -> None:
        """Delete an object with the state that was examined as precondition; if its references changed since then, examine it again."""
        fresh = self.store.get(rec.key)
        if fresh is None or uid_of(fresh.json) != uid:
            return
        if fresh.revision != rec.revision and self._references(fresh) != self._references(rec):
            self.queue.add(rec.key)
            return
        options = {"preconditions": {"uid": uid, "resourceVersion": str(fresh.revision)}, "propagationPolicy": policy}
        try:
            await self.client.delete_with(reg, namespace, name, options, name)
        except ApiError as e:
            if e.code != 404:
                raise  # also a conflict: the queue tries again after a pause, as a webhook may refuse each time with one

    @staticmethod
    def _references(rec: Record) -> Any:
        return object_of(rec)["metadata"].get("ownerReferences")

    def _owner_state(self, owners: Registry, namespace: str, ref: dict[str, Any]) -> str:
        """Return the state of an owner: solid, dangling, waiting (for its dependents, including this one) or invalid."""
        if owners.resource.namespaced and not namespace:
            return "invalid"
        rec = self.store.get(owners.root + (f"{namespace}/" if owners.resource.namespaced else "") + ref.get("name", ""))
        if rec is None or uid_of(rec.json) != ref.get("uid"):
            return "dangling"
        owner = self.graph.nodes.get(rec.key)
        if b'"deletionTimestamp":' in rec.json and b'"foregroundDeletion"' in rec.json:
            meta = object_of(rec)["metadata"]
            if meta.get("deletionTimestamp") and FOREGROUND in (meta.get("finalizers") or ()):
                return "waiting"
        return "waiting" if owner is not None and owner.foreground else "solid"

    # --- foreground and orphaning deletion

    async def _foreground(self, reg: Registry, node: Node) -> None:
        """Delete the dependents first; those that block hold the owner until they are gone (``processDeletingDependentsItem``)."""
        if not self.graph.blocks(node.uid):
            await self._remove_finalizer(reg, node, FOREGROUND)
            return
        time_slice = TimeSlice()
        for d in self.graph.blocking(node.uid):
            if not d.foreground:
                self.queue.add(d.key)
            if time_slice.over:
                await time_slice.pause()

    async def _orphan(self, reg: Registry, node: Node) -> None:
        # A dependent that is not known yet would be deleted instead of orphaned.
        await self.client.rest_fresh(node.key, (reg.root for reg in self._collected()))
        for d in self.graph.dependents_of(node.uid):
            owner_of = self._registry(d.key)
            if owner_of is not None:
                await self._drop_references(owner_of, d, {node.uid})
        if self._whole.is_set():  # otherwise the item is examined again, with all dependents
            await self._remove_finalizer(reg, node, ORPHAN)

    async def _remove_finalizer(self, reg: Registry, node: Node, finalizer: str) -> None:
        def change(obj: dict[str, Any]) -> bool:
            had = obj["metadata"].get("finalizers") or []
            _keep(obj["metadata"], "finalizers", [f for f in had if f != finalizer])
            return finalizer in had

        namespace, name = split_key(reg, node.key)
        await self.client.update(reg, namespace, name, change, uid=node.uid)

    async def _drop_references(self, reg: Registry, node: Node, uids: set[str]) -> None:
        def change(obj: dict[str, Any]) -> bool:
            had = obj["metadata"].get("ownerReferences") or []
            left = [r for r in had if r.get("uid") not in uids]
            _keep(obj["metadata"], "ownerReferences", left)
            return len(left) != len(had)

        namespace, name = split_key(reg, node.key)
        await self.client.update(reg, namespace, name, change, uid=node.uid)

    async def _unblock(self, reg: Registry, node: Node) -> None:
        def change(obj: dict[str, Any]) -> bool:
            changed = False
            for ref in obj["metadata"].get("ownerReferences") or ():
                if ref.get("blockOwnerDeletion"):
                    ref["blockOwnerDeletion"] = False
                    changed = True
            return changed

        namespace, name = split_key(reg, node.key)
        await self.client.update(reg, namespace, name, change, uid=node.uid)

    # --- references across namespaces

    async def _report_other_namespace(self, reg: Registry, node: Node, namespace: str, name: str, ref: dict[str, Any]) -> None:
        """Record an event if an owner exists in another namespace, which is a mistake."""
        owners = self.client.registries.of_kind(ref.get("apiVersion", ""), ref.get("kind", ""))
        if owners is None or not owners.resource.namespaced:
            return
        await self._owner_search.find(owners, ref["uid"], Waiting(namespace, lambda: self._report_invalid(reg, node, namespace, name, ref)))

    async def _report_invalid(self, reg: Registry, node: Node, namespace: str, name: str, ref: dict[str, Any]) -> None:
        if (node.uid, ref["uid"]) in self._reported:
            return
        remember(self._reported, (node.uid, ref["uid"]), None)
        r = reg.resource
        where = f"[{ref['apiVersion']}/{ref['kind']}, namespace: {namespace}, name: {ref['name']}, uid: {ref['uid']}]"
        involved = {"kind": r.kind, "namespace": namespace, "name": name, "uid": node.uid}
        involved["apiVersion"] = f"{r.group}/{r.version}" if r.group else r.version
        message = f'ownerRef {where} does not exist in namespace "{namespace}"'
        await self.client.warn(involved, "OwnerRefInvalidNamespace", message, self.name)


def _keep(meta: dict[str, Any], name: str, left: list[Any]) -> None:
    """Set a list in the metadata, or remove it if it is empty: custom resources are stored as written."""
    meta[name] = left
    if not left:
        del meta[name]
