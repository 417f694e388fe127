"""Ingresses and network policies stored before networking.k8s.io/v1 (``pkg/apis/networking/v1beta1/conversion.go``).

Those versions are no longer served, but nothing rewrites what an older server has left in etcd.
"""

from __future__ import annotations

from kas.types.conversion import Obj, converts

GROUP = "networking.k8s.io"
V1 = (GROUP, "v1", "Ingress")


def _backend(old: Obj) -> Obj:
    out = {"resource": old["resource"]} if old.get("resource") else {}
    name, port = old.get("serviceName") or "", old.get("servicePort", 0)
    if name or port or port == "":
        out["service"] = {"name": name, "port": ({"name": port} if port else {}) if isinstance(port, str) else {"number": port}}
    return out


def _path(old: Obj) -> Obj:
    return {"pathType": "ImplementationSpecific", **old, "backend": _backend(old.get("backend") or {})}  # the old versions' default


def _rule(old: Obj) -> Obj:
    http = old.get("http")
    return {**old, "http": {**http, "paths": [_path(path) for path in http.get("paths") or ()]}} if http else old


@converts((GROUP, "v1beta1", "Ingress"), V1)
@converts(("extensions", "v1beta1", "Ingress"), V1)
def ingress(obj: Obj) -> Obj:
    """Convert backends, which named a service and its port in flat fields, and rename the default backend."""
    spec = dict(obj.get("spec") or {})
    backend = spec.pop("backend", None)
    if backend is not None:
        spec["defaultBackend"] = _backend(backend)
    if spec.get("rules"):
        spec["rules"] = [_rule(rule) for rule in spec["rules"]]
    return {**obj, "spec": spec}


@converts(("extensions", "v1beta1", "NetworkPolicy"), (GROUP, "v1", "NetworkPolicy"))
def policy(obj: Obj) -> Obj:
    """Rename the version; the contents are the same."""
    return obj
