"""Owners that other API servers keep: whether they are there is asked when somebody's reference names them.

Upstream watches what aggregated servers serve as it watches everything. Here their objects are asked for one by one, again as long as
something is owned by them, so that a deletion is seen late. Their objects' own references are not looked at.
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
    """Of the backends that the ``aggregator`` of the worker knows."""

    def __init__(self, aggregator: Aggregator) -> None:
        self._backends = Backends(aggregator, "generic-garbage-collector")

    def keep(self, ref: dict[str, Any]) -> bool:
        """Whether the group version that a reference names is another server's."""
        return self._service(ref) is not None

    def _service(self, ref: dict[str, Any]) -> APIService | None:
        group, _, version = str(ref.get("apiVersion") or "").partition("/")
        remote = self._backends.aggregator.services.remote.values()
        return next((s for s in remote if s.group_version == (group, version)), None)

    async def state(self, namespace: str, ref: dict[str, Any]) -> str | None:
        """solid, dangling, waiting or invalid, as ``GarbageCollector._owner_state`` says it; None when nobody can tell now."""
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
        """Where the owner is below its group version, "invalid" where it cannot be; None for a kind that is not known to be served now."""
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
