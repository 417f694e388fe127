"""Rows of Tables of services."""

from __future__ import annotations

from typing import Any

from kas.meta.age import age
from kas.registry.printing.cells import NONE, labels, load_balancer, part
from kas.registry.printing.rows import printer

Obj = dict[str, Any]


def _external_ip(obj: Obj) -> str:
    spec = part(obj, "spec")
    external = list(spec.get("externalIPs") or ())
    match spec.get("type"):
        case "ClusterIP" | "NodePort":
            return ",".join(external) if external else NONE
        case "LoadBalancer":
            balanced = load_balancer(part(obj, "status"))
            return ",".join(([balanced] if balanced else []) + external) if balanced or external else "<pending>"
        case "ExternalName":
            return spec.get("externalName", "")
    return "<unknown>"


def _service_port(port: Obj) -> str:
    node = f":{port['nodePort']}" if port.get("nodePort", 0) > 0 else ""
    return f"{port.get('port', 0)}{node}/{port.get('protocol', '')}"


@printer("", "Service")
def service_row(obj: Obj, now: float) -> list[Any]:
    """The cells of a Table row: name, type, cluster address, external addresses, ports, age, selector."""
    spec = part(obj, "spec")
    ips = spec.get("clusterIPs")
    return [
        obj["metadata"].get("name", ""), spec.get("type", ""), ips[0] if ips else NONE, _external_ip(obj),
        ",".join(_service_port(p) for p in spec.get("ports") or ()) or NONE, age(obj, now), labels(spec.get("selector")),
    ]  # fmt: skip
