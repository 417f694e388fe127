"""Strategy of NetworkPolicy (upstream ``pkg/registry/networking/networkpolicy``)."""

from __future__ import annotations

from typing import Any

from kas.kinds.core.objectmeta import object_meta, object_meta_update
from kas.meta import field, names
from kas.meta.age import age
from kas.meta.checks import legacy_cidr, port_name, port_number, unsupported
from kas.meta.field import FieldError
from kas.meta.ip import CIDR, parse_cidr
from kas.meta.ipchecks import cidr_warnings
from kas.meta.labelselectors import label_selector
from kas.registry.printing.cells import part, selector
from kas.registry.printing.rows import printer
from kas.registry.strategy import Context, Obj, Strategy, strategy_for
from kas.types.defaults import defaults_for

PROTOCOLS = ("TCP", "UDP", "SCTP")
POLICY_TYPES = ("Ingress", "Egress")
_NO_CIDRS: frozenset[str] = frozenset()


@strategy_for("networking.k8s.io", "networkpolicies")
class NetworkPolicyStrategy(Strategy):
    """Stored values that would be refused today are tolerated."""

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        """``ValidateNetworkPolicy`` without tolerance for values or CIDRs that are now refused."""
        errs = object_meta(obj["metadata"], True, names.dns_subdomain)
        return errs + _spec(obj.get("spec") or {}, allow_invalid_values=False, stored=_NO_CIDRS)

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """Validate an update; stored CIDRs and label values are not validated again, as they may predate the checks."""
        old_spec = old.get("spec") or {}
        tolerated = bool(label_selector(old_spec.get("podSelector") or {}, ""))
        errs = object_meta_update(obj["metadata"], old["metadata"])
        return errs + _spec(obj.get("spec") or {}, tolerated, frozenset(_cidrs(old_spec)))

    def warnings_on_create(self, ctx: Context, obj: Obj) -> list[str]:
        """Return a warning for each block in a form that will be refused in future."""
        found: list[str] = []
        for direction, peers in (("ingress", "from"), ("egress", "to")):
            for i, rule in enumerate((obj.get("spec") or {}).get(direction) or ()):
                for j, peer in enumerate(rule.get(peers) or ()):
                    block = peer.get("ipBlock")
                    if block is not None:
                        path = f"spec.{direction}[{i}].{peers}[{j}].ipBlock"
                        found += cidr_warnings(field.child(path, "cidr"), block.get("cidr") or "")
                        for k, excepted in enumerate(block.get("except") or ()):
                            found += cidr_warnings(field.index(field.child(path, "except"), k), excepted)
        return found

    def warnings_on_update(self, ctx: Context, obj: Obj, old: Obj) -> list[str]:
        """Return the warnings that creating the new object would give."""
        return self.warnings_on_create(ctx, obj)


def _cidrs(spec: dict[str, Any]) -> list[str]:
    found = []
    for direction, peers in (("ingress", "from"), ("egress", "to")):
        for rule in spec.get(direction) or ():
            for peer in rule.get(peers) or ():
                block = peer.get("ipBlock")
                if block is not None:
                    found += [block.get("cidr") or "", *(block.get("except") or ())]
    return found


def _spec(spec: dict[str, Any], allow_invalid_values: bool, stored: frozenset[str]) -> list[FieldError]:
    errs = label_selector(spec.get("podSelector") or {}, "spec.podSelector", allow_invalid_values)
    for direction, peers in (("ingress", "from"), ("egress", "to")):
        for i, rule in enumerate(spec.get(direction) or ()):
            path = field.index(f"spec.{direction}", i)
            for j, port in enumerate(rule.get("ports") or ()):
                errs += _port(port, field.index(field.child(path, "ports"), j))
            for j, peer in enumerate(rule.get(peers) or ()):
                errs += _peer(peer, field.index(field.child(path, peers), j), allow_invalid_values, stored)
    types = spec.get("policyTypes") or []
    if len(types) > len(POLICY_TYPES):
        errs.append(field.invalid("spec.policyTypes", types, "may not specify more than two policyTypes"))
        return errs
    for i, policy_type in enumerate(types):
        if policy_type not in POLICY_TYPES:
            errs.append(unsupported(field.index("spec.policyTypes", i), policy_type, POLICY_TYPES))
    return errs


def _port(port: dict[str, Any], path: str) -> list[FieldError]:
    errs: list[FieldError] = []
    protocol, number, end = port.get("protocol"), port.get("port"), port.get("endPort")
    at_port, at_end = field.child(path, "port"), field.child(path, "endPort")
    if protocol is not None and protocol not in PROTOCOLS:
        errs.append(unsupported(field.child(path, "protocol"), protocol, PROTOCOLS))
    if number is None:
        if end is not None:
            errs.append(field.invalid(at_end, end, "may not be specified when `port` is not specified"))
    elif isinstance(number, str):
        if end is not None:
            errs.append(field.invalid(at_end, end, "may not be specified when `port` is non-numeric"))
        errs += port_name(number, at_port)
    else:
        errs += port_number(number, at_port)
        if end is not None:
            if end < number:
                # Upstream reports the port, not the end port.
                errs.append(field.invalid(at_end, number, "must be greater than or equal to `port`"))
            errs += port_number(end, at_end)
    return errs


def _peer(peer: dict[str, Any], path: str, allow_invalid_values: bool, stored: frozenset[str]) -> list[FieldError]:
    errs: list[FieldError] = []
    count = 0
    for name in ("podSelector", "namespaceSelector"):
        if peer.get(name) is not None:
            count += 1
            errs += label_selector(peer[name], field.child(path, name), allow_invalid_values)
    block = peer.get("ipBlock")
    if block is not None:
        count += 1
        errs += _ip_block(block, field.child(path, "ipBlock"), stored)
    if count == 0:
        errs.append(field.required(path, "must specify a peer"))
    elif count > 1 and block is not None:
        errs.append(field.forbidden(path, "may not specify both ipBlock and another peer"))
    return errs


def _inside(inner: CIDR, outer: CIDR) -> bool:
    """Whether ``inner`` is strictly inside: ``net.IPNet.Contains`` of its network address, and a longer mask as written."""
    address, network = inner.network, outer.network
    shift = outer.ip.bits - outer.prefix
    if inner.prefix <= outer.prefix or address.family != network.family:
        return False
    if address.family == 4:
        shift = min(shift, 32)
        return (address.number & 0xFFFFFFFF) >> shift == (network.number & 0xFFFFFFFF) >> shift
    return address.number >> shift == network.number >> shift


def _ip_block(block: dict[str, Any], path: str, stored: frozenset[str]) -> list[FieldError]:
    cidr = block.get("cidr") or ""
    if not cidr:
        return [field.required(field.child(path, "cidr"))]
    errs = legacy_cidr(field.child(path, "cidr"), cidr, stored)
    outer = parse_cidr(cidr)
    if outer is None:
        return errs
    for i, text in enumerate(block.get("except") or ()):
        at = field.index(field.child(path, "except"), i)
        errs += legacy_cidr(at, text, stored)
        inner = parse_cidr(text)
        if inner is None:
            continue
        if not _inside(inner, outer):
            errs.append(field.invalid(at, text, "must be a strict subset of `cidr`"))
    return errs


@defaults_for("networking.k8s.io", "v1", "NetworkPolicy")
def default_network_policy(obj: dict[str, Any]) -> None:
    """Apply computed defaults: every policy has type Ingress; one with egress rules has Egress, too."""
    spec = obj.get("spec")
    if spec is not None and not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]
    elif spec is None:
        obj["spec"] = {"policyTypes": ["Ingress"]}


@printer("networking.k8s.io", "NetworkPolicy")
def network_policy_row(obj: Obj, now: float) -> list[Any]:
    """The cells of a Table row: name, pod selector, age."""
    return [obj["metadata"].get("name", ""), selector(part(obj, "spec").get("podSelector")), age(obj, now)]
