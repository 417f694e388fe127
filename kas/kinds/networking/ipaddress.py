"""Strategies of IPAddress and ServiceCIDR (upstream ``pkg/registry/networking/{ipaddress,servicecidr}``)."""

from __future__ import annotations

from typing import Any

from kas.config import features
from kas.kinds.core.objectmeta import object_meta, object_meta_update
from kas.meta import field, names
from kas.meta.age import age
from kas.meta.checks import IMMUTABLE, dns_subdomain, immutable, invalid_each, required_path_segment
from kas.meta.field import FieldError
from kas.meta.ip import parse_cidr
from kas.meta.ipchecks import validate_cidr, validate_ip
from kas.registry.printing.cells import NONE, part
from kas.registry.printing.rows import printer
from kas.registry.strategy import Context, Obj, Strategy, strategy_for
from kas.types.gostruct import render
from kas.types.scheme import Resource, builtin_field


def name_is_ip(name: str, prefix: bool = False) -> list[str]:
    """A name check: an IPAddress is named by its address in canonical form."""
    return [e.detail for e in validate_ip("", name)]


@strategy_for("networking.k8s.io", "ipaddresses")
class IPAddressStrategy(Strategy):
    """IPAddresses, named by their address."""

    def generate_name(self, base: str) -> str:
        """Return the base as the name, because an address with a random suffix is not an address."""
        return base

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        """``ValidateIPAddress``: the name is an address in canonical form, and there is a parent."""
        errs = object_meta(obj["metadata"], False, name_is_ip)
        ref, path = (obj.get("spec") or {}).get("parentRef"), "spec.parentRef"
        if ref is None:
            return [*errs, field.required(path)]
        if ref.get("group"):  # the core group of services is the empty one
            errs += dns_subdomain(ref["group"], field.child(path, "group"))
        errs += required_path_segment(ref.get("resource") or "", field.child(path, "resource"))
        errs += required_path_segment(ref.get("name") or "", field.child(path, "name"))
        namespace = ref.get("namespace") or ""
        if namespace:
            errs += invalid_each(field.child(path, "namespace"), namespace, names.is_path_segment_name(namespace))
        return errs

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """``ValidateIPAddressUpdate``: the parent may not change."""
        errs = self.validate(ctx, obj) + object_meta_update(obj["metadata"], old["metadata"])
        new, before = ((o.get("spec") or {}).get("parentRef") for o in (obj, old))
        shown = None if new is None else render("networking.ParentReference", new)
        return errs + immutable(new, before, "spec.parentRef", shown, builtin_field("networking.v1.IPAddressSpec", "parentRef"))


@strategy_for("networking.k8s.io", "servicecidrs")
class ServiceCIDRStrategy(Strategy):
    """ServiceCIDRs: one range, or one of each family. The second may be added later, nothing else may change."""

    def __init__(self, resource: Resource) -> None:
        super().__init__(resource)
        if not features.DEFAULT.enabled("ServiceCIDRStatusFieldWiping"):
            self.reset = ()

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        """``ValidateServiceCIDR``."""
        errs = object_meta(obj["metadata"], False, names.dns_subdomain)
        return errs + _cidrs((obj.get("spec") or {}).get("cidrs"))

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """``ValidateServiceCIDRUpdate``: a block of the other family may join a single one; nothing else may change."""
        errs = object_meta_update(obj["metadata"], old["metadata"])
        new, before = ((o.get("spec") or {}).get("cidrs") or [] for o in (obj, old))
        if len(new) == len(before):
            for i, (now, then) in enumerate(zip(new, before, strict=True)):
                if now != then:
                    errs.append(field.invalid(field.index("spec.cidrs", i), now, IMMUTABLE))
        elif len(before) == 1 and len(new) == 2:
            if new[0] != before[0]:
                errs.append(field.invalid("spec.cidrs[0]", new[0], IMMUTABLE))
            errs += _cidrs(new)
        else:
            errs.append(field.invalid("spec.cidrs", (obj.get("spec") or {}).get("cidrs"), IMMUTABLE))
        return errs

    def validate_status_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """``ValidateServiceCIDRStatusUpdate``: metadata only."""
        return object_meta_update(obj["metadata"], old["metadata"])


def _cidrs(cidrs: list[str] | None) -> list[FieldError]:
    path = "spec.cidrs"
    if not cidrs:
        return [field.required(path, "at least one CIDR required")]
    if len(cidrs) > 2:
        return [field.invalid(path, render("networking.ServiceCIDRSpec", {"cidrs": cidrs}), "may only hold up to 2 values")]
    errs: list[FieldError] = []
    for i, cidr in enumerate(cidrs):
        errs += validate_cidr(field.index(path, i), cidr)
    if len(cidrs) == 2:
        first, second = parse_cidr(cidrs[0]), parse_cidr(cidrs[1])
        if first is not None and second is not None and first.ip.family == second.ip.family:
            text = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"
            errs.append(field.invalid(path, cidrs, text))
    return errs


@printer("networking.k8s.io", "ServiceCIDR")
def service_cidr_row(obj: Obj, now: float) -> list[Any]:
    """The cells of a Table row: name, blocks, age."""
    return [obj["metadata"].get("name", ""), ",".join(part(obj, "spec").get("cidrs") or ()), age(obj, now)]


@printer("networking.k8s.io", "IPAddress")
def ip_address_row(obj: Obj, now: float) -> list[Any]:
    """Return the cells of a Table row; as upstream's, it has one cell, the age, more than the kind has columns."""
    ref, text = part(obj, "spec").get("parentRef"), NONE
    if ref is not None:
        group, namespace = ref.get("group"), ref.get("namespace")
        resource = ref.get("resource", "") + (f".{group}" if group else "")
        text = "/".join([resource.lower(), *([namespace] if namespace else []), ref.get("name", "")])
    return [obj["metadata"].get("name", ""), text, age(obj, now)]
