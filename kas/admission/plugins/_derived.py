"""Objects a plug-in needs at every request, kept decoded: no read of the store and no decoding on the hot path."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson


class Followed:
    """All objects of one resource, as ``make`` makes them, by namespace ("" when it has none) and name.

    Loaded at the first use and kept by a listener of the store's hub, so it is as new as any derived state: the request's
    catch-up has happened before admission runs. Values are shared; do not change them.
    """

    def __init__(self, server: Any, group: str, resource: str, make: Callable[[dict[str, Any]], Any] = lambda obj: obj) -> None:
        self._server, self._group, self._resource, self._make = server, group, resource, make
        self._spaces: dict[str, dict[str, Any]] = {}
        self._loaded = False

    def namespace(self, namespace: str) -> dict[str, Any]:
        """Name to value, sorted by name."""
        if not self._loaded:
            self._load()
        return self._spaces.get(namespace) or {}

    def all(self) -> dict[str, Any]:
        """What a cluster-scoped resource has, sorted by name."""
        return self.namespace("")

    def _load(self) -> None:
        registry = self._server.registry(self._group, self._resource)
        # Listening comes first: an event that the scan has seen already is applied twice, none is missed.
        self._server.store.hub.listen(registry.root, self._changed, self._rebuild)
        self._loaded = True
        self._rebuild()

    def _rebuild(self) -> None:
        self._spaces.clear()
        root = self._server.registry(self._group, self._resource).root
        for rec in self._server.store.range(root).records:
            self._put(orjson.loads(rec.json))

    def _changed(self, events: list[Any]) -> None:
        root = self._server.registry(self._group, self._resource).root
        for e in events:
            if e.record is not None:
                self._put(orjson.loads(e.record.json))
                continue
            namespace, _, name = e.key[len(root) :].rpartition("/")
            space = self._spaces.get(namespace)
            if space is not None and space.pop(name, None) is not None and not space:
                del self._spaces[namespace]

    def _put(self, obj: dict[str, Any]) -> None:
        meta = obj["metadata"]
        name, space = meta["name"], self._spaces.setdefault(meta.get("namespace") or "", {})
        misplaced = name not in space and bool(space) and name < next(reversed(space))
        space[name] = self._make(obj)
        if misplaced:
            ordered = sorted(space.items())
            space.clear()
            space.update(ordered)
