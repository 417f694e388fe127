"""Where a Service is reached: upstream's ``apiserver/pkg/util/proxy`` (``ResolveCluster``, ``ResolveEndpoint``).

By the address of the Service (or its external name), which a kube-proxy on this host translates; or, with
``--enable-aggregator-routing``, by that of one of its endpoints.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Protocol

from kas.client.http import BackendError
from kas.meta.field import go_quote

Obj = dict[str, Any]
ROUTED = ("ClusterIP", "LoadBalancer", "NodePort")
# (namespace, name, port) -> host and port to connect to. Raises BackendError.
Resolve = Callable[[str, str, int], tuple[str, int]]


class Objects(Protocol):
    """Stored objects by resource; see ``kas.informers``."""

    def get(self, group: str, resource: str, namespace: str, name: str) -> Obj | None:
        """The object, None when absent."""
        ...


def resolver(objects: Objects, to_endpoints: bool) -> Resolve:
    """The resolver of a server; ``to_endpoints`` is ``--enable-aggregator-routing``."""

    def resolve(namespace: str, name: str, port: int) -> tuple[str, int]:
        service = objects.get("", "services", namespace, name)
        if service is None:
            raise BackendError(f"service {go_quote(name)} not found")
        return _endpoint(objects, service, port) if to_endpoints else _cluster(service, port)

    return resolve


def _cluster(service: Obj, port: int) -> tuple[str, int]:
    spec, kind = service["spec"], service["spec"].get("type") or ""
    if kind == "ExternalName":
        return spec.get("externalName") or "", port
    if kind == "ClusterIP" and spec.get("clusterIP") == "None":
        raise BackendError('cannot route to service with ClusterIP "None"')
    if kind not in ROUTED:
        raise BackendError(f"unsupported service type {go_quote(kind)}")
    return spec.get("clusterIP") or "", _port(service, port)["port"]


def _endpoint(objects: Objects, service: Obj, port: int) -> tuple[str, int]:
    meta, wanted = service["metadata"], _port(service, port)
    kind, name = service["spec"].get("type") or "", meta["name"]
    if kind not in ROUTED:
        raise BackendError(f"unsupported service type {go_quote(kind)}")
    endpoints = objects.get("", "endpoints", meta["namespace"], name)
    if endpoints is None:
        raise BackendError(f"endpoints {go_quote(name)} not found")
    found = [
        (address["ip"], p["port"])
        for subset in endpoints.get("subsets") or ()
        for p in subset.get("ports") or ()
        if (p.get("name") or "") == (wanted.get("name") or "")
        for address in subset.get("addresses") or ()
    ]
    if not found:
        raise BackendError(f"no endpoints available for service {go_quote(name)}")
    return random.choice(found)


def _port(service: Obj, port: int) -> Obj:
    for p in service["spec"].get("ports") or ():
        if p.get("port") == port:
            return dict(p)
    raise BackendError(f"no service port {port} found for service {go_quote(service['metadata']['name'])}")
