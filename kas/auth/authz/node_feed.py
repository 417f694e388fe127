"""The node graph over the store: built when a node first asks, followed from then on.

A server that no kubelet talks to pays nothing for it, and one that does starts no later for it. Once built it is as new as
the hub, which every request brings up to date.
"""

from __future__ import annotations

from typing import Any

import orjson

from kas.auth.authz.node_graph import NodeGraph

# Without one of these in its JSON a pod is on no node, and nothing of it has to be decoded.
_ON_NODE = b'"nodeName":"'


class FollowedNodeGraph:
    """``roots`` are the key prefixes of the graph's sources by resource, as ``NodeGraph.put`` names them."""

    def __init__(self, store: Any, roots: dict[str, str]) -> None:
        self._store, self._roots = store, roots
        self._graph: NodeGraph | None = None
        self._following = False

    def reaches(self, node: str, resource: str, namespace: str, name: str) -> bool:
        """Whether something on the node refers to the object."""
        graph = self._graph
        if graph is None:
            graph = self._build()
        return graph.reaches(node, resource, namespace, name)

    def _build(self) -> NodeGraph:
        graph = NodeGraph()
        hub = self._store.hub
        if not self._following:
            self._following = True
            for resource, root in self._roots.items():
                hub.listen(root, lambda events, resource=resource, root=root: self._changed(resource, root, events), self._lost)
        hub.catch_up()
        for resource, root in self._roots.items():
            for rec in self._store.range(root).records:
                if resource != "pods" or _ON_NODE in rec.json:
                    graph.put(resource, orjson.loads(rec.json))
        self._graph = graph
        return graph

    def _lost(self) -> None:
        """Events went missing: the next question builds the graph anew."""
        self._graph = None

    def _changed(self, resource: str, root: str, events: list[Any]) -> None:
        graph = self._graph
        if graph is None:
            return
        for e in events:
            rec = e.record
            if rec is not None and (resource != "pods" or _ON_NODE in rec.json):
                graph.put(resource, orjson.loads(rec.json))
            else:
                namespace, _, name = e.key[len(root) :].rpartition("/")
                graph.delete(resource, namespace, name)
