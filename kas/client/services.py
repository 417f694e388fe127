"""Resolves Services: upstream's ``apiserver/pkg/util/proxy`` (``ResolveCluster``, ``ResolveEndpoint``) and the
resolvers of ``kube-aggregator/pkg/apiserver/resolvers.go``.

Webhooks and aggregated API servers are reached alike: at the cluster IP of their Service (or its external name),
which a kube-proxy on this host translates; or, with ``--enable-aggregator-routing``, at the address of one of its
ready endpoints. This server's own Service resolves to this server itself.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any

from kas.client.http import BackendError
from kas.informers import Informers, Objects
from kas.meta.field import go_quote

Obj = dict[str, Any]
Address = tuple[str, int]
SERVICE_NAME_LABEL = "kubernetes.io/service-name"
ROUTED = ("ClusterIP", "LoadBalancer", "NodePort")
OWN = "default", "kubernetes", 443
# (namespace, name, port) -> host and port to connect to. Raises ResolveError.
Resolve = Callable[[str, str, int], Address]


class ResolveError(BackendError):
    """Why there is no address to connect to, in upstream's words."""


class ServiceResolver:
    """``routing``: resolve to endpoints, not to the Service's address. ``own`` is the address of this server itself,
    None if it does not serve TLS."""

    def __init__(self, objects: Objects, informers: Informers, routing: bool, own: Address | None = None) -> None:
        self._objects, self._informers, self._routing, self._own = objects, informers, routing, own

    def resolve(self, namespace: str, name: str, port: int) -> Address:
        """Host and port to connect to. Raises ResolveError."""
        if self._own is not None and (namespace, name, port) == OWN:
            return self._own
        service = self._objects.get("", "services", namespace, name)
        if service is None:
            raise ResolveError(f"service {go_quote(name)} not found")
        return self._endpoint(service, port) if self._routing else _address(service, port)

    def slices(self, namespace: str, name: str) -> list[Obj]:
        """The EndpointSlices of a Service in the form of ``_slice``; not to be changed."""
        found = self._informers.lister("discovery.k8s.io", "endpointslices", _slice, {"service": _service_of})
        return [s for _, s in sorted(found.by_index("service", f"{namespace}/{name}").items())]

    def _endpoint(self, service: Obj, port: int) -> Address:
        meta, wanted, kind = service["metadata"], _port(service, port), service["spec"].get("type") or ""
        if kind not in ROUTED:
            raise ResolveError(f"unsupported service type {go_quote(kind)}")
        found = [
            (address, p["port"])
            for s in self.slices(meta["namespace"], meta["name"])
            for p in s["ports"]
            if p["port"] is not None and p["name"] == (wanted.get("name") or "")
            for address in s["ready"]
        ]
        if not found:
            raise ResolveError(f"no endpoints available for service {go_quote(meta['name'])}")
        return random.choice(found)


def _address(service: Obj, port: int) -> Address:
    spec = service["spec"]
    kind = spec.get("type") or ""
    if kind == "ExternalName":
        return spec.get("externalName") or "", port
    if kind == "ClusterIP" and spec.get("clusterIP") == "None":
        raise ResolveError('cannot route to service with ClusterIP "None"')
    if kind not in ROUTED:
        raise ResolveError(f"unsupported service type {go_quote(kind)}")
    return spec.get("clusterIP") or "", _port(service, port)["port"]


def _port(service: Obj, port: int) -> Obj:
    found: Obj | None = next((p for p in service["spec"].get("ports") or () if p.get("port") == port), None)
    if found is None:
        raise ResolveError(f"no service port {port} found for service {go_quote(service['metadata']['name'])}")
    return found


def _slice(obj: Obj) -> Obj:
    """The part of an EndpointSlice that is kept: ``service`` ("namespace/name"), ``ready`` addresses, ``ports`` (name, port)."""
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
