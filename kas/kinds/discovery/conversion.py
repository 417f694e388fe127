"""Endpoint slices as discovery.k8s.io/v1beta1 stored them, which is not served any more (``pkg/apis/discovery/v1beta1/conversion.go``)."""

from __future__ import annotations

from kas.types.conversion import Obj, converts

GROUP = "discovery.k8s.io"
ZONE, HOSTNAME = "topology.kubernetes.io/zone", "kubernetes.io/hostname"


def _endpoint(old: Obj) -> Obj:
    out = dict(old)
    topology = dict(out.pop("topology", None) or {})
    if ZONE in topology:
        out["zone"] = topology.pop(ZONE)
    if HOSTNAME in topology and out.get("nodeName") in (None, topology[HOSTNAME]):
        out["nodeName"] = topology.pop(HOSTNAME)
    if topology:
        out["deprecatedTopology"] = topology
    return out


@converts((GROUP, "v1beta1", "EndpointSlice"), (GROUP, "v1", "EndpointSlice"))
def endpoint_slice(obj: Obj) -> Obj:
    """Zone and node were in a map."""
    return {**obj, "endpoints": [_endpoint(endpoint) for endpoint in obj.get("endpoints") or ()]}
