"""Owners in other API servers: their existence is checked when an object's reference names them.

Upstream watches aggregated resources like all others. Here owners are requested one by one, repeatedly while something is owned by them,
so a deletion is noticed late. The references of those objects themselves are not examined.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from kas.aggregator.aggregator import Aggregator
from kas.aggregator.apiservices import APIService
from kas.client.http import BackendError
from kas.controllers.backends import Backends
from kas.controllers.graph import FOREGROUND

OK, NOT_FOUND = 200, 404


class RemoteOwners:
    """Looks up owners in the backends known to the worker's ``aggregator``."""

    def __init__(self, aggregator: Aggregator) -> None:
        self._backends = Backends(aggregator, "generic-garbage-collector")

    def keep(self, ref: dict[str, Any]) -> bool:
        """Return whether a reference's group version is served by another server."""
        return self._service(ref) is not None

    def _service(self, ref: dict[str, Any]) -> APIService | None:
        group, _, version = str(ref.get("apiVersion") or "").partition("/")
        remote = self._backends.aggregator.services.remote.values()
        return next((s for s in remote if s.group_version == (group, version)), None)

    async def state(self, namespace: str, ref: dict[str, Any]) -> str | None:
        """Return solid, dangling, waiting or invalid, as ``GarbageCollector._owner_state`` does; None if it cannot be determined now."""
        service = self._service(ref)
        path = self._find(service, namespace, ref) if service is not None else None
        if service is None or path is None or path == "invalid":
            return path
        try:
            status, owner = await self._backends.ask(service, "GET", service.path + path)
        except BackendError:
            return None
        if status == NOT_FOUND:
            return "dangling"
        meta = owner.get("metadata") if isinstance(owner, dict) else None
        if status != OK or not isinstance(meta, dict):
            return None
        if meta.get("uid") != ref.get("uid"):
            return "dangling"
        return "waiting" if meta.get("deletionTimestamp") and FOREGROUND in (meta.get("finalizers") or ()) else "solid"

    def _find(self, service: APIService, namespace: str, ref: dict[str, Any]) -> str | None:
        """Return the owner's path below its group version; "invalid" if it cannot exist, None if the kind is not known to be served
        now."""
        for v in self._backends.aggregator.discovery.versions():
            if (v.group, v.version) != service.group_version or v.freshness != "Current":
                continue
            for r in v.discovered or ():
                if (r.get("responseKind") or {}).get("kind") != ref.get("kind") or "get" not in (r.get("verbs") or ()):
                    continue
                where = f"/{r['resource']}/{quote(str(ref.get('name') or ''), safe='')}"
                if r.get("scope") != "Namespaced":
                    return where
                return f"/namespaces/{namespace}{where}" if namespace else "invalid"
        return None
