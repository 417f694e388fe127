"""Content of a namespace in other API servers: found by their discovery and deleted there, as upstream's deleter does with every
discovered group (``pkg/controller/namespace/deletion/namespaced_resources_deleter.go``)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import orjson

from kas.aggregator.aggregator import Aggregator
from kas.aggregator.apiservices import APIService
from kas.client.http import BackendError
from kas.controllers.backends import Backends
from kas.controllers.namespace_conditions import Findings

PAGE = 500
_BACKGROUND = orjson.dumps({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"})
NOT_FOUND, NOT_ALLOWED = 404, 405
Resource = tuple[APIService, str, frozenset[str]]  # the serving backend, name, verbs


class RemoteContent:
    """Deletes content in the backends known to the worker's ``aggregator``."""

    def __init__(self, aggregator: Aggregator) -> None:
        self._aggregator, self._backends = aggregator, Backends(aggregator, "namespace-controller")

    async def empty(self, namespace: str, found: Findings) -> None:
        """Delete everything deletable in the namespace; record in ``found`` what remains, what failed, and which servers did not answer
        discovery."""
        if not self._aggregator.active:
            return
        for service, resource, verbs in list(self._resources(found)):
            failure = await self._empty(service, f"{service.path}/namespaces/{namespace}/{resource}", resource, verbs, found)
            if failure:
                found.failures.append(failure)

    def _resources(self, found: Findings) -> Iterator[Resource]:
        """Yield each resource once, in its group's preferred version."""
        seen: set[tuple[str, str]] = set()
        services = {s.group_version: s for s in self._aggregator.services.remote.values()}
        for version in sorted(self._aggregator.discovery.versions(), key=lambda v: (v.group, -v.version_priority, v.version)):
            service = services.get((version.group, version.version))
            if service is None:
                continue
            if version.freshness != "Current":
                found.undiscovered.append(version.group_version)
                continue
            for r in version.discovered or ():
                name, verbs = r.get("resource") or "", frozenset(r.get("verbs") or ())
                if r.get("scope") == "Namespaced" and "delete" in verbs and (version.group, name) not in seen:
                    seen.add((version.group, name))
                    yield service, name, verbs

    async def _empty(self, service: APIService, path: str, resource: str, verbs: frozenset[str], found: Findings) -> str:
        """Delete the objects of a resource; return an error text, or ""."""
        try:
            done = NOT_ALLOWED
            if "deletecollection" in verbs:
                done, _ = await self._ask(service, "DELETE", path)
            left = await self._list(service, path) if "list" in verbs else []
            if done == NOT_ALLOWED:
                for name in [str(meta.get("name") or "") for meta in left]:
                    status, said = await self._ask(service, "DELETE", f"{path}/{quote(name)}")
                    if status >= 400 and status != NOT_FOUND:
                        return _message(status, said)
                left = await self._list(service, path)
            elif done >= 400 and done != NOT_FOUND:
                return f"{resource}.{service.group}: the server answered {done}"
        except BackendError as e:
            return f"{resource}.{service.group}: {e}"
        if left:
            found.remaining[f"{resource}.{service.group}"] += len(left)
            for meta in left:
                found.finalizers.update(set(meta.get("finalizers") or ()))
        return ""

    async def _list(self, service: APIService, path: str) -> list[dict[str, Any]]:
        """Return the metadata of the first page of objects."""
        status, value = await self._ask(service, "GET", path, f"limit={PAGE}")
        if status in (NOT_FOUND, NOT_ALLOWED):
            return []
        if status != 200:
            raise BackendError(_message(status, value))
        items = value.get("items") if isinstance(value, dict) else None
        return [i.get("metadata") or {} for i in items or () if isinstance(i, dict)]

    async def _ask(self, service: APIService, method: str, path: str, query: str = "") -> tuple[int, Any]:
        return await self._backends.ask(service, method, path, query, _BACKGROUND if method == "DELETE" else b"")


def _message(status: int, value: Any) -> str:
    said = value.get("message") if isinstance(value, dict) else None
    return said if isinstance(said, str) else f"the server answered {status}"
