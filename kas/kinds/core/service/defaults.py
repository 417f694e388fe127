"""Computed defaults of services."""

from __future__ import annotations

from typing import Any

from kas.types.defaults import defaults_for

Obj = dict[str, Any]


@defaults_for("", "v1", "Service")
def default_service(obj: Obj) -> None:
    """Computed defaults: type, affinity and its timeout in seconds, target ports, traffic policies and what load balancers have."""
    spec = obj.setdefault("spec", {})
    affinity, kind = spec.get("sessionAffinity") or "None", spec.get("type") or "ClusterIP"
    spec["sessionAffinity"], spec["type"] = affinity, kind
    if affinity == "None":
        spec.pop("sessionAffinityConfig", None)
    elif affinity == "ClientIP":
        client = (spec.get("sessionAffinityConfig") or {}).get("clientIP") or {}
        if client.get("timeoutSeconds") is None:
            spec["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": 10800}}
    for port in spec.get("ports") or ():
        if not port.get("targetPort"):
            port["targetPort"] = port.get("port") or 0
    if not spec.get("externalTrafficPolicy") and externally_accessible(spec):
        spec["externalTrafficPolicy"] = "Cluster"
    if spec.get("internalTrafficPolicy") is None and kind in ("ClusterIP", "NodePort", "LoadBalancer"):
        spec["internalTrafficPolicy"] = "Cluster"
    if kind == "LoadBalancer":
        if spec.get("allocateLoadBalancerNodePorts") is None:
            spec["allocateLoadBalancerNodePorts"] = True
        for ingress in ((obj.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ():
            if ingress.get("ip") and ingress.get("ipMode") is None:
                ingress["ipMode"] = "VIP"


def externally_accessible(spec: Obj) -> bool:
    """``ExternallyAccessible``: whether traffic reaches the service from outside the cluster."""
    kind = spec.get("type")
    return kind in ("LoadBalancer", "NodePort") or (kind == "ClusterIP" and bool(spec.get("externalIPs")))
