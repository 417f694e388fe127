"""Services (upstream ``pkg/registry/core/service/strategy.go``, ``storage.go``, ``pkg/api/service/warnings.go``).

The caller's Begin hooks allocate addresses and ports; ``normalize_cluster_ips`` and ``carry_over_allocated`` are their parts without I/O.
"""

from __future__ import annotations

from kas.kinds.core.objectmeta import object_meta_update
from kas.kinds.core.service import validation as services
from kas.kinds.core.service.defaults import externally_accessible
from kas.meta.field import FieldError, go_quote
from kas.meta.ipchecks import cidr_warnings, ip_warnings
from kas.registry.strategy import Context, Obj, Strategy, strategy_for


def needs_cluster_ip(spec: Obj) -> bool:
    """``NeedsClusterIP``: every type but ExternalName, headless services included."""
    return spec.get("type") != "ExternalName"


def may_have_node_port(spec: Obj) -> bool:
    """Whether ports may be node ports. A load balancer without allocation may still keep those it has."""
    return spec.get("type") in ("NodePort", "LoadBalancer")


def needs_node_port(spec: Obj) -> bool:
    """Whether ports get node ports without a request. When this is switched off, a service keeps the ones it has."""
    kind = spec.get("type")
    return kind == "NodePort" or (kind == "LoadBalancer" and spec.get("allocateLoadBalancerNodePorts") is not False)


def _node_ports(spec: Obj) -> set[int]:
    return {p["nodePort"] for p in spec.get("ports") or () if p.get("nodePort")}


def normalize_cluster_ips(obj: Obj, old: Obj | None) -> None:
    """Make ``clusterIPs`` follow ``clusterIP`` for a client that only knows the latter; other conflicts are left to validation."""
    spec = obj["spec"]
    one, many = spec.get("clusterIP") or "", spec.get("clusterIPs") or []
    if old is None:
        if one and not many:
            spec["clusterIPs"] = [one]
        return
    was_one, was_many = old["spec"].get("clusterIP") or "", old["spec"].get("clusterIPs") or []
    if one == was_one:
        if was_many and not many:
            spec["clusterIPs"] = list(was_many)
    elif many == was_many:
        if one:
            spec["clusterIPs"] = [one]
        else:
            spec.pop("clusterIPs", None)


def carry_over_allocated(obj: Obj, old: Obj) -> None:
    """Keep allocated values that an update omits (``patchAllocatedValues``)."""
    spec, was = obj["spec"], old["spec"]
    if needs_cluster_ip(was) and needs_cluster_ip(spec):
        if not spec.get("clusterIP") and was.get("clusterIP"):
            spec["clusterIP"] = was["clusterIP"]
        if not spec.get("clusterIPs") and was.get("clusterIPs"):
            # Also if clusterIP changed: ``normalize_cluster_ips`` then replaces them, and the change is refused.
            spec["clusterIPs"] = list(was["clusterIPs"])
    if needs_node_port(was) and needs_node_port(spec):
        used = _node_ports(was) & _node_ports(spec)
        by_name = {p.get("name") or "": p.get("nodePort") or 0 for p in was.get("ports") or ()}
        for port in spec.get("ports") or ():
            if not port.get("nodePort"):
                known = by_name.get(port.get("name") or "", 0)
                if known and known not in used:
                    port["nodePort"] = known
    if services.needs_health_check(was) and services.needs_health_check(spec):
        if not spec.get("healthCheckNodePort") and was.get("healthCheckNodePort"):
            spec["healthCheckNodePort"] = was["healthCheckNodePort"]


def _same(spec: Obj, was: Obj, key: str) -> bool:
    return (spec.get(key) or None) == (was.get(key) or None)


def _load_balanced(spec: Obj) -> bool:
    return spec.get("type") == "LoadBalancer"


def drop_type_dependent(obj: Obj, old: Obj) -> None:
    """Drop fields that the new type does not use, unless the client set them itself."""
    spec, was = obj["spec"], old["spec"]
    if needs_cluster_ip(was) and not needs_cluster_ip(spec):
        if _same(spec, was, "clusterIP") and _same(spec, was, "clusterIPs"):
            spec.pop("clusterIP", None)
            spec.pop("clusterIPs", None)
        for key in ("ipFamilies", "ipFamilyPolicy"):
            if _same(spec, was, key):
                spec.pop(key, None)
    if may_have_node_port(was) and not may_have_node_port(spec) and _node_ports(spec) <= _node_ports(was):
        for port in spec.get("ports") or ():
            port.pop("nodePort", None)
    for needs, key in (
        (services.needs_health_check, "healthCheckNodePort"),
        (_load_balanced, "allocateLoadBalancerNodePorts"),
        (_load_balanced, "loadBalancerClass"),
        (externally_accessible, "externalTrafficPolicy"),
        (needs_cluster_ip, "internalTrafficPolicy"),
    ):
        if needs(was) and not needs(spec) and spec.get(key) == was.get(key):
            spec.pop(key, None)
    if not _load_balanced(spec) and (obj.get("status") or {}).get("loadBalancer"):
        obj["status"] = {**obj["status"], "loadBalancer": {}}


def _warnings(obj: Obj) -> list[str]:
    spec, annotations = obj.get("spec") or {}, obj["metadata"].get("annotations") or {}
    out = []
    if services.TOPOLOGY_HINTS in annotations:
        out.append(f"annotation {services.TOPOLOGY_HINTS} is deprecated, please use {services.TOPOLOGY_MODE} instead")
    external, kind = spec.get("externalIPs") or [], spec.get("type")
    headless = kind == "ClusterIP" and spec.get("clusterIP") == "None"
    if spec.get("clusterIP") not in (None, "", "None"):
        for i, ip in enumerate(spec.get("clusterIPs") or ()):
            out += ip_warnings(f"spec.clusterIPs[{i}]", ip)
    if headless:
        if spec.get("loadBalancerIP"):
            out.append("spec.loadBalancerIP is ignored for headless services")
        if external:
            out.append("spec.externalIPs is ignored for headless services")
        if spec.get("sessionAffinity") != "None":
            out.append("spec.SessionAffinity is ignored for headless services")
    for i, ip in enumerate(external):
        out += ip_warnings(f"spec.externalIPs[{i}]", ip)
    if external and not headless and kind != "ExternalName":
        out.append("spec.externalIPs is deprecated and may no longer be implemented in some clusters")
    if spec.get("loadBalancerIP"):
        out += ip_warnings("spec.loadBalancerIP", spec["loadBalancerIP"])
    for i, cidr in enumerate(spec.get("loadBalancerSourceRanges") or ()):
        out += cidr_warnings(f"spec.loadBalancerSourceRanges[{i}]", cidr)
    if kind == "ExternalName" and external:
        out.append('spec.externalIPs is ignored when spec.type is "ExternalName"')
    if kind != "ExternalName" and spec.get("externalName"):
        out.append('spec.externalName is ignored when spec.type is not "ExternalName"')
    if spec.get("trafficDistribution") == "PreferClose":
        out.append(f"spec.trafficDistribution: {go_quote('PreferClose')} is deprecated; use {go_quote('PreferSameZone')}")
    return out


def _families_of(spec: Obj) -> tuple[list[str], str]:
    """Return families and policy of a stored service without them; IPv4 first if headless, as the cluster's default is unknown here."""
    if spec["clusterIP"] == "None":
        found = list(services.FAMILIES[: 1 if spec.get("selector") else 2])
    else:
        found = ["IPv6" if ":" in ip else "IPv4" for ip in spec["clusterIPs"]]
    return found, "SingleStack" if len(found) == 1 else "RequireDualStack"


@strategy_for("", "services")
class ServiceStrategy(Strategy):
    """Services; they keep allocated values as long as their type uses them."""

    def prepare_for_update(self, ctx: Context, obj: Obj, old: Obj) -> None:
        """Carry over the status, and drop fields of a type that the service no longer has."""
        super().prepare_for_update(ctx, obj, old)
        obj.setdefault("spec", {})
        drop_type_dependent(obj, old)

    def canonicalize(self, obj: Obj) -> None:
        """Drop the traffic policy as in ``as_read``, so that applying the same service again is not a change."""
        spec = obj.get("spec") or {}
        if spec.get("type") == "ExternalName":
            spec.pop("internalTrafficPolicy", None)

    def as_read(self, obj: Obj) -> None:
        """Hide an ExternalName service's traffic policy, and complete services stored before dual-stack (``defaultOnRead``)."""
        self.canonicalize(obj)
        spec = obj.get("spec") or {}
        if spec.get("type") != "ExternalName" and spec.get("clusterIP") and not (spec.get("clusterIPs") and spec.get("ipFamilies")):
            normalize_cluster_ips(obj, None)
            if not spec.get("ipFamilies"):
                spec["ipFamilies"], spec["ipFamilyPolicy"] = _families_of(spec)

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        """``ValidateServiceCreate``."""
        return services.service(obj)

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """``ValidateServiceUpdate``."""
        return services.service_update(obj, old)

    def validate_status_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """``ValidateServiceStatusUpdate``: metadata and the load balancer's addresses, stored ones tolerated."""
        errs = object_meta_update(obj["metadata"], old["metadata"])
        status = (obj.get("status") or {}).get("loadBalancer") or {}
        before = (old.get("status") or {}).get("loadBalancer") or {}
        return errs + services.load_balancer_status(status, before, obj.get("spec") or {})

    def warnings_on_create(self, ctx: Context, obj: Obj) -> list[str]:
        """Return a warning for each deprecated annotation, ignored field, or address in a form that will be refused in future."""
        return _warnings(obj)

    def warnings_on_update(self, ctx: Context, obj: Obj, old: Obj) -> list[str]:
        """Return the warnings that creating the new object would give."""
        return _warnings(obj)

    def warnings_on_status_update(self, ctx: Context, obj: Obj, old: Obj) -> list[str]:
        """Return a warning for each load balancer address in a form that will be refused in future."""
        out: list[str] = []
        for i, point in enumerate(((obj.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()):
            if point.get("ip"):
                out += ip_warnings(f"status.loadBalancer.ingress[{i}]", point["ip"])
        return out
