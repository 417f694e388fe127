"""Strategy of EndpointSlice (upstream ``pkg/registry/discovery/endpointslice``)."""

from __future__ import annotations

from typing import Any

from kas import checks
from kas.checks import Scope
from kas.kinds.core.objectmeta import object_meta
from kas.meta import field, names
from kas.meta.age import age
from kas.meta.checks import (
    dns_label,
    dns_subdomain,
    immutable,
    invalid_each,
    legacy_ip,
    non_special_ip,
    qualified_name,
    unsupported,
)  # fmt: skip
from kas.meta.equality import semantic_equal
from kas.meta.field import FieldError
from kas.meta.ip import parse_ip
from kas.meta.ipchecks import ip_warnings
from kas.meta.labelselectors import labels
from kas.registry.printing.cells import UNSET, first_three
from kas.registry.printing.rows import printer
from kas.registry.strategy import Context, Obj, Strategy, strategy_for
from kas.types.checktables import ANY, EMPTY, ENUM, TOP, Checked, Message, each, either, need
from kas.types.scheme import builtin_field

ADDRESS_TYPES = ("FQDN", "IPv4", "IPv6")
PROTOCOLS = ("SCTP", "TCP", "UDP")
MAX_ENDPOINTS, MAX_ADDRESSES, MAX_PORTS, MAX_TOPOLOGY, MAX_HINTS = 1000, 100, 20000, 16, 8
HOSTNAME_LABEL = "kubernetes.io/hostname"
MANAGED_BY = "endpointslice.kubernetes.io/managed-by"
CONTROLLERS = ("endpointslice-controller.k8s.io", "endpointslicemirroring-controller.k8s.io")
ZONE_LABEL = "topology.kubernetes.io/zone"


_SLICE_PORT = {"port": ANY, "protocol": need(ENUM), "appProtocol": checks.qualified_name()}
_NAMED = Message({**_SLICE_PORT, "name": need(checks.dns_label().claim(_NAMES := Scope("names")))})
_HINT, _NODE_HINT = {"name": need(checks.label_value().claim(_NAMES))}, {"name": need(checks.dns_subdomain().claim(_NAMES))}
_ENDPOINT = {
    "addresses": need(each(checks.ipv4(), 1, MAX_ADDRESSES)), "conditions": ANY, "hostname": checks.dns_label(), "targetRef": ANY,
    "nodeName": checks.dns_subdomain(), "zone": ANY, "hints": {
        "forZones": each(_HINT, 0, MAX_HINTS, opens=[_NAMES]), "forNodes": each(_NODE_HINT, 0, MAX_HINTS, opens=[_NAMES]),
    },
}  # fmt: skip
# IPv4 addresses only; a slice's single port may have no name.
CHECK = Checked(
    "discovery.v1.EndpointSlice",
    {
        **TOP, "addressType": need(checks.option("IPv4")), "endpoints": each(_ENDPOINT, 0, MAX_ENDPOINTS), "ports": either(
            each(_NAMED, 0, MAX_PORTS, opens=[_NAMES]), each({**_SLICE_PORT, "name": EMPTY}, 1, 1),
        ),
    },
)  # fmt: skip


@strategy_for("discovery.k8s.io", "endpointslices")
class EndpointSliceStrategy(Strategy):
    """EndpointSlices; the address type is immutable, and stored forms of addresses are tolerated."""

    def prepare_for_create(self, ctx: Context, obj: Obj) -> None:
        """Start the generation, and drop the topology, which v1 does not have."""
        super().prepare_for_create(ctx, obj)
        _drop_topology(obj, None)

    def prepare_for_update(self, ctx: Context, obj: Obj, old: Obj) -> None:
        """Increment the generation if due; the topology is kept only while the endpoints do not change."""
        super().prepare_for_update(ctx, obj, old)
        _drop_topology(obj, old)

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        """``ValidateEndpointSliceCreate``."""
        return self._validate(obj, None)

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """``ValidateEndpointSliceUpdate``: the address type may not change; addresses stored already may keep their form."""
        return self._validate(obj, old) + immutable(obj.get("addressType") or "", old.get("addressType") or "", "addressType")

    def warnings_on_create(self, ctx: Context, obj: Obj) -> list[str]:
        """A warning for the address type FQDN, and those of an update."""
        old = ["spec.addressType: FQDN endpoints are deprecated"] if obj.get("addressType") == "FQDN" else []
        return old + self.warnings_on_update(ctx, obj, obj)

    def warnings_on_update(self, ctx: Context, obj: Obj, old: Obj) -> list[str]:
        """Return warnings about addresses, except in slices of controllers, which write canonical ones."""
        if (obj["metadata"].get("labels") or {}).get(MANAGED_BY) in CONTROLLERS:
            return []
        found: list[str] = []
        for i, endpoint in enumerate(obj.get("endpoints") or ()):
            for j, address in enumerate(endpoint.get("addresses") or ()):
                found += ip_warnings(f"endpoints[{i}].addresses[{j}]", address)
        return found

    def _validate(self, obj: Obj, old: Obj | None) -> list[FieldError]:
        errs = object_meta(obj["metadata"], True, names.dns_subdomain)
        if CHECK.passes(obj):
            return errs
        kind = obj.get("addressType") or ""
        if not kind:
            errs.append(field.required("addressType"))
        elif kind not in ADDRESS_TYPES:
            errs.append(unsupported("addressType", kind, ADDRESS_TYPES))
        errs += _ports(obj.get("ports") or [])
        endpoints = obj.get("endpoints") or []
        # stored endpoints were validated by earlier rules
        if old is None or not semantic_equal(endpoints, old.get("endpoints"), builtin_field("discovery.v1.EndpointSlice", "endpoints")):
            errs += _endpoints(endpoints, kind)
        return errs


def _drop_topology(obj: Obj, old: Obj | None) -> None:
    """Drop the topology map, which v1 replaces by nodeName and zone, unless the endpoints are unchanged.

    A hostname label that named a stored endpoint's node becomes that endpoint's nodeName.
    """
    before, now = (old or {}).get("endpoints") or [], obj.get("endpoints") or []
    if old is not None and semantic_equal(before, now, builtin_field("discovery.v1.EndpointSlice", "endpoints")):
        return
    known = {(e.get("deprecatedTopology") or {}).get(HOSTNAME_LABEL) for e in before} - {None}
    kept = []
    for endpoint in now:
        endpoint = dict(endpoint)
        node = (endpoint.pop("deprecatedTopology", None) or {}).get(HOSTNAME_LABEL)
        if node and node in known and endpoint.get("nodeName") is None and not names.is_dns1123_subdomain(node):
            endpoint["nodeName"] = node
        kept.append(endpoint)
    if now:
        obj["endpoints"] = kept


def _endpoints(endpoints: list[dict[str, Any]], kind: str) -> list[FieldError]:
    if len(endpoints) > MAX_ENDPOINTS:
        return [field.too_many("endpoints", len(endpoints), MAX_ENDPOINTS)]
    errs: list[FieldError] = []
    for i, endpoint in enumerate(endpoints):
        path = field.index("endpoints", i)
        errs += _addresses(endpoint.get("addresses") or [], kind, field.child(path, "addresses"))
        if endpoint.get("nodeName") is not None:
            errs += dns_subdomain(endpoint["nodeName"], field.child(path, "nodeName"))
        topology, at = endpoint.get("deprecatedTopology") or {}, field.child(path, "deprecatedTopology")
        if len(topology) > MAX_TOPOLOGY:
            errs.append(field.too_many(at, len(topology), MAX_TOPOLOGY))
        errs += labels(topology, at)
        if ZONE_LABEL in topology:
            errs.append(field.internal(field.key(at, ZONE_LABEL), "reserved key was not removed in conversion"))
        if endpoint.get("hostname") is not None:
            errs += dns_label(endpoint["hostname"], field.child(path, "hostname"))
        if endpoint.get("hints") is not None:
            errs += _hints(endpoint["hints"], field.child(path, "hints"))
    return errs


def _addresses(addresses: list[str], kind: str, path: str) -> list[FieldError]:
    errs: list[FieldError] = []
    if not addresses:
        errs.append(field.required(path, "must contain at least 1 address"))
    elif len(addresses) > MAX_ADDRESSES:
        errs.append(field.too_many(path, len(addresses), MAX_ADDRESSES))
    for i, address in enumerate(addresses):
        at = field.index(path, i)
        if kind == "FQDN":
            errs += names.fully_qualified_domain_name(at, address)
        elif kind in ADDRESS_TYPES:
            found = legacy_ip(at, address)
            if not found:
                parsed = parse_ip(address)
                if parsed is not None and parsed.family != int(kind[-1]):
                    found.append(field.invalid(path, address, f"must be an {kind} address"))
                found += non_special_ip(address, at)
            errs += found
    return errs


def _ports(ports: list[dict[str, Any]]) -> list[FieldError]:
    if len(ports) > MAX_PORTS:
        return [field.too_many("ports", len(ports), MAX_PORTS)]
    errs: list[FieldError] = []
    seen: set[str] = set()
    for i, port in enumerate(ports):
        path, name = field.index("ports", i), port.get("name") or ""
        if name:
            errs += dns_label(name, field.child(path, "name"))
        if name in seen:
            errs.append(field.duplicate(field.child(path, "name"), name))
        seen.add(name)
        protocol = port.get("protocol")
        if protocol is None:
            errs.append(field.required(field.child(path, "protocol")))
        elif protocol not in PROTOCOLS:
            errs.append(unsupported(field.child(path, "protocol"), protocol, PROTOCOLS))
        if port.get("appProtocol") is not None:
            errs += qualified_name(port["appProtocol"], field.child(path, "appProtocol"))
    return errs


def _hints(hints: dict[str, Any], path: str) -> list[FieldError]:
    errs: list[FieldError] = []
    for name, check in (("forZones", names.is_label_value), ("forNodes", names.is_dns1123_subdomain)):
        items, at = hints.get(name) or [], field.child(path, name)
        if len(items) > MAX_HINTS:
            errs.append(field.too_many(at, len(items), MAX_HINTS))
            return errs
        seen: set[str] = set()
        for i, item in enumerate(items):
            here, value = field.child(field.index(at, i), "name"), item.get("name") or ""
            if value in seen:
                errs.append(field.duplicate(here, value))
            seen.add(value)
            errs += invalid_each(here, value, check(value))
    return errs


def _slice_port(port: Obj) -> str:
    number = port.get("port")
    return str(port.get("name", "*") if number is None else number)


@printer("discovery.k8s.io", "EndpointSlice")
def endpoint_slice_row(obj: Obj, now: float) -> list[Any]:
    """The cells of a Table row: name, address type, the first three ports, the first three addresses, age."""
    ports = [_slice_port(p) for p in obj.get("ports") or ()]
    addresses = [a for e in obj.get("endpoints") or () for a in e.get("addresses") or ()]
    return [
        obj["metadata"].get("name", ""), obj.get("addressType", ""), first_three(ports) if ports else UNSET,
        first_three(addresses) if addresses else UNSET, age(obj, now),
    ]  # fmt: skip
