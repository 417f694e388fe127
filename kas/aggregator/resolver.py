"""Where the Service of a backend is reached (upstream: ``kube-aggregator/pkg/apiserver/resolvers.go`` and ``apiserver/pkg/util/proxy``).

By the Service's own address, which something on this host translates, or its external name; with ``--enable-aggregator-routing`` by the
address of one of its ready endpoints.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

from kas.aggregator.apiservices import ServiceReference
from kas.informers import Informers, Objects
from kas.meta.field import go_quote

Obj = dict[str, Any]
SERVICE_NAME_LABEL = "kubernetes.io/service-name"
WITH_ADDRESS = ("ClusterIP", "LoadBalancer", "NodePort")


class ResolveError(Exception):
    """Why there is nowhere to go, in upstream's words."""


class ServiceResolver:
    """``routing``: to endpoints, not to the Service's address."""

    def __init__(self, objects: Objects, informers: Informers, routing: bool) -> None:
        self._objects, self._informers, self._routing = objects, informers, routing

    def resolve(self, service: ServiceReference) -> tuple[str, int]:
        """Host and port. Raises ResolveError."""
        obj = self._objects.get("", "services", service.namespace, service.name)
        if obj is None:
            raise ResolveError(f"service {go_quote(service.name)} not found")
        return self._endpoint(obj, service) if self._routing else _address(obj, service)

    def slices(self, namespace: str, name: str) -> list[Obj]:
        """The EndpointSlices of a Service; not to be changed."""
        found = self._informers.lister("discovery.k8s.io", "endpointslices", _slice, {"service": _service_of})
        return [s for _, s in sorted(found.by_index("service", f"{namespace}/{name}").items())]

    def _endpoint(self, obj: Obj, service: ServiceReference) -> tuple[str, int]:
        wanted = _port(obj, service)
        kind = obj["spec"].get("type") or ""
        if kind not in WITH_ADDRESS:
            raise ResolveError(f"unsupported service type {go_quote(kind)}")
        found = [
            (address, port["port"])
            for s in self.slices(service.namespace, service.name)
            for port in s["ports"]
            if port["port"] is not None and port["name"] == (wanted.get("name") or "")
            for address in s["ready"]
        ]
        if not found:
            raise ResolveError(f"no endpoints available for service {go_quote(service.name)}")
        return random.choice(found)


def _address(obj: Obj, service: ServiceReference) -> tuple[str, int]:
    spec = obj["spec"]
    kind = spec.get("type") or ""
    if kind == "ClusterIP" and spec.get("clusterIP") == "None":
        raise ResolveError('cannot route to service with ClusterIP "None"')
    if kind in WITH_ADDRESS:
        return spec.get("clusterIP") or "", _port(obj, service)["port"]
    if kind == "ExternalName":
        return spec.get("externalName") or "", service.port
    raise ResolveError(f"unsupported service type {go_quote(kind)}")


def _port(obj: Obj, service: ServiceReference) -> Obj:
    found: Obj | None = next((p for p in obj["spec"].get("ports") or () if p.get("port") == service.port), None)
    if found is None:
        raise ResolveError(f"no service port {service.port} found for service {go_quote(service.name)}")
    return found


def _slice(obj: Obj) -> Obj:
    """What of an EndpointSlice is kept: ``service`` ("namespace/name"), ``ready`` addresses, ``ports`` (name, port)."""
    meta = obj["metadata"]
    endpoints: Iterable[Obj] = obj.get("endpoints") or ()
    ready = [e["addresses"][0] for e in endpoints if (e.get("conditions") or {}).get("ready") is not False and e.get("addresses")]
    name = (meta.get("labels") or {}).get(SERVICE_NAME_LABEL) or ""
    return {
        "service": f"{meta.get('namespace', '')}/{name}" if name else "", "ready": ready,
        "ports": [{"name": p.get("name") or "", "port": p.get("port")} for p in obj.get("ports") or ()],
    }  # fmt: skip


def _service_of(kept: Obj) -> list[str]:
    return [kept["service"]] if kept["service"] else []
