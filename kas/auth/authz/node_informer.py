"""The node graph over the store: filled when a node first asks, followed from then on.

A server that no kubelet talks to pays nothing for it, and one that does starts no later for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import monotonic

from kas.auth.authz.node_graph import LargePod, NodeGraph
from kas.informers import Source
from kas.informers.reflector import Reflector, sound, split_key
from kas.meta.aside import LARGE, POOL
from kas.meta.stored import object_of
from kas.observe.metrics import Histogram, Registry
from kas.store import Event, Record

# What upstream's metric calls the objects that are added and deleted.
_NAMES = {
    "pods": "Pod", "persistentvolumes": "PV", "volumeattachments": "VolumeAttachment", "resourceslices": "ResourceSlice",
    "podcertificaterequests": "PodCertificateRequest",
}  # fmt: skip
# Without one of these in its JSON a pod is on no node, and nothing of it has to be decoded.
_ON_NODE = b'"nodeName":"'


class NodeGraphInformer:
    """``prefixes`` are the key prefixes of the graph's sources by resource, as ``NodeGraph.put`` names them; ``metrics`` is told how long
    the graph takes to change."""

    def __init__(self, source: Source, prefixes: Mapping[str, str], metrics: Registry) -> None:
        self._graph = NodeGraph()
        took = metrics.histogram(
            "node_authorizer_graph_actions_duration_seconds", "Histogram of duration of graph actions in node authorizer.",
            ("operation",), [0.0001 * 2**i for i in range(12)],
        )  # fmt: skip
        self._reflectors = [Reflector(source, prefix, _Part(self._graph, resource, prefix, took)) for resource, prefix in prefixes.items()]
        self.has_synced = False

    def reaches(self, node: str, resource: str, namespace: str, name: str) -> bool:
        """Whether something on the node refers to the object."""
        if not self.has_synced:
            for reflector in self._reflectors:
                reflector.start()
            self.has_synced = True
        return self._graph.reaches(node, resource, namespace, name)


class _Part:
    """One resource of the graph, as a reflector's target."""

    def __init__(self, graph: NodeGraph, resource: str, prefix: str, took: Histogram) -> None:
        self._graph, self._resource, self._prefix, self._took = graph, resource, prefix, took
        self._adds, self._deletes = (f"Add{_NAMES[resource]}",), (f"Delete{_NAMES[resource]}",)

    def replace(self, records: Sequence[Record]) -> None:
        there = [rec for rec in records if self._counts(rec)]
        self._graph.keep_only(self._resource, {split_key(self._prefix, rec.key) for rec in there})
        for rec in there:
            self._put(rec)

    def apply(self, events: Sequence[Event]) -> None:
        for e in events:
            if e.record is not None and self._counts(e.record):
                self._put(e.record)
            else:
                began = monotonic()
                self._graph.delete(self._resource, *split_key(self._prefix, e.key))
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
        self._graph.put_large(*split_key(self._prefix, rec.key), pod)
        POOL.soon(pod.prepare)

    def _counts(self, rec: Record) -> bool:
        return self._resource != "pods" or _ON_NODE in rec.json
