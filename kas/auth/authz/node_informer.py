"""Keeps the node graph in step with the store: filled at a node's first request, followed from then on.

A server without kubelets pays nothing for it, and a server with kubelets does not start later because of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from time import monotonic

from kas.auth.authz.node_graph import LargePod, NodeGraph
from kas.informers import Source
from kas.informers.reflector import Reflector, sound, split_key
from kas.meta.offload import LARGE, POOL
from kas.meta.stored import object_of
from kas.meta.waiting import TimeSlice
from kas.observe.metrics import Histogram, Registry
from kas.store import PAGE_BYTES, Event, Record

# The names of the resources in upstream's metric.
_NAMES = {
    "pods": "Pod", "persistentvolumes": "PV", "volumeattachments": "VolumeAttachment", "resourceslices": "ResourceSlice",
    "podcertificaterequests": "PodCertificateRequest",
}  # fmt: skip
MANY, PAGE = 500, 64  # objects; fewer are read in a few milliseconds by the first request, more are read in pages
# A pod without this in its JSON is on no node and need not be decoded.
_ON_NODE = b'"nodeName":"'


class NodeGraphInformer:
    """``prefixes`` are the key prefixes of the graph's sources by resource, as in ``NodeGraph.put``. ``metrics`` records how long updates
    of the graph take."""

    def __init__(self, source: Source, prefixes: Mapping[str, str], metrics: Registry) -> None:
        self._graph = NodeGraph()
        took = metrics.histogram(
            "node_authorizer_graph_actions_duration_seconds", "Histogram of duration of graph actions in node authorizer.",
            ("operation",), [0.0001 * 2**i for i in range(12)],
        )  # fmt: skip
        self._source = source
        self._parts = [_Part(source, self._graph, resource, prefix, took) for resource, prefix in prefixes.items()]
        self._filling: asyncio.Future[None] | None = None
        self.has_synced = False

    def ready(self) -> Awaitable[None] | None:
        """Return None if the graph is filled or can be filled quickly at the first query; else an awaitable that fills it and yields to
        other tasks.

        Both raise the errors of reading the store.
        """
        if self.has_synced or all(self._source.count(part.prefix, MANY) < MANY for part in self._parts):
            return None
        return self._filled()

    async def _filled(self) -> None:
        if self._filling is None:
            self._filling = asyncio.ensure_future(self._fill())
        await asyncio.shield(self._filling)  # a cancelled request must not cancel the fill for the others

    async def _fill(self) -> None:
        try:
            for part in self._parts:
                await part.fill()
            self.has_synced = True
        finally:
            self._filling = None

    def reaches(self, node: str, resource: str, namespace: str, name: str) -> bool:
        """Return whether something on the node refers to the object."""
        if not self.has_synced:
            for part in self._parts:
                part.start()
            self.has_synced = True
        return self._graph.reaches(node, resource, namespace, name)


class _Part:
    """The target of one resource's reflector."""

    def __init__(self, source: Source, graph: NodeGraph, resource: str, prefix: str, took: Histogram) -> None:
        self._source, self.prefix = source, prefix
        self._graph, self._resource, self._took = graph, resource, took
        self._adds, self._deletes = (f"Add{_NAMES[resource]}",), (f"Delete{_NAMES[resource]}",)
        self._paged = Reflector(source, prefix, self, lists=False)
        self._fills = self._missed = False

    def start(self) -> None:
        """Read all objects at once, and follow the changes."""
        Reflector(self._source, self.prefix, self).start()

    async def fill(self) -> None:
        """Read all objects in pages, and follow the changes. An event between pages concerns an object already read, which is as new or
        newer, or one still to be read."""
        time_slice, start = TimeSlice(), ""
        self._fills = True
        try:
            self._paged.start()
            self._missed = False
            while True:
                page = self._source.range(self.prefix, start, PAGE, max_bytes=PAGE_BYTES)
                for rec in page.records:
                    if self._counts(rec):
                        self._put(rec)
                if not page.more:
                    break
                start = page.next_key
                if time_slice.over:
                    await time_slice.pause()
        except BaseException:
            self._paged.stop()
            self._graph.keep_only(self._resource, set())  # deletions until the next attempt are not observed
            raise
        finally:
            self._fills = False
        if self._missed:
            self.replace(())

    def replace(self, records: Sequence[Record]) -> None:
        """Start over after missed events: with ``records``, or with what is in the store now if the part was filled in pages."""
        if self._fills:
            self._missed = True
            return
        if self._paged.has_synced:
            records = self._source.range(self.prefix).records
        there = [rec for rec in records if self._counts(rec)]
        self._graph.keep_only(self._resource, {split_key(self.prefix, rec.key) for rec in there})
        for rec in there:
            self._put(rec)

    def apply(self, events: Sequence[Event]) -> None:
        for e in events:
            if e.record is not None and self._counts(e.record):
                self._put(e.record)
            else:
                began = monotonic()
                self._graph.delete(self._resource, *split_key(self.prefix, e.key))
                self._took.observe(self._deletes, monotonic() - began)

    def _put(self, rec: Record) -> None:
        began = monotonic()
        self._add(rec)
        self._took.observe(self._adds, monotonic() - began)

    def _add(self, rec: Record) -> None:
        if self._resource != "pods" or len(rec.json) < LARGE:
            self._graph.put(self._resource, object_of(rec))
            return
        pod = LargePod(lambda: sound(rec))
        self._graph.put_large(*split_key(self.prefix, rec.key), pod)
        POOL.soon(pod.prepare)

    def _counts(self, rec: Record) -> bool:
        return self._resource != "pods" or _ON_NODE in rec.json
