"""Strategies of IPAddress and ServiceCIDR (upstream ``pkg/registry/networking/{ipaddress,servicecidr}``)."""

from __future__ import annotations

from kas.api import field
from kas.api.field import FieldError
from kas.api.validation import names
from kas.api.validation.checks import IMMUTABLE, dns_subdomain, go_struct, immutable, invalid_each, required_path_segment
from kas.api.validation.coremeta import object_meta, object_meta_update
from kas.api.validation.ip import parse_cidr, validate_cidr, validate_ip
from kas.registry.strategy import Context, Obj, Strategy, strategy_for


def name_is_ip(name: str, prefix: bool = False) -> list[str]:
    """An IPAddress is named by its address in canonical form."""
    return [e.detail for e in validate_ip("", name)]


@strategy_for("networking.k8s.io", "ipaddresses")
class IPAddressStrategy(Strategy):
    def generate_name(self, base: str) -> str:
        """An address with something random behind it is none: the base is the name."""
        return base

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
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
        errs = self.validate(ctx, obj) + object_meta_update(obj["metadata"], old["metadata"])
        new, before = ((o.get("spec") or {}).get("parentRef") for o in (obj, old))
        shown = go_struct(
            new, ("Group", "group", ""), ("Resource", "resource", ""), ("Namespace", "namespace", ""), ("Name", "name", "")
        )
        return errs + immutable(new, before, "spec.parentRef", shown)


@strategy_for("networking.k8s.io", "servicecidrs")
class ServiceCIDRStrategy(Strategy):
    """One range, or one of each family; the second may be added later, nothing else changes."""

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        errs = object_meta(obj["metadata"], False, names.dns_subdomain)
        return errs + _cidrs((obj.get("spec") or {}).get("cidrs"))

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
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
        return object_meta_update(obj["metadata"], old["metadata"])


def _cidrs(cidrs: list[str] | None) -> list[FieldError]:
    path = "spec.cidrs"
    if not cidrs:
        return [field.required(path, "at least one CIDR required")]
    if len(cidrs) > 2:
        return [field.invalid(path, {"CIDRs": cidrs}, "may only hold up to 2 values")]
    errs: list[FieldError] = []
    for i, cidr in enumerate(cidrs):
        errs += validate_cidr(field.index(path, i), cidr)
    if len(cidrs) == 2:
        first, second = parse_cidr(cidrs[0]), parse_cidr(cidrs[1])
        if first is not None and second is not None and first.ip.family == second.ip.family:
            text = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"
            errs.append(field.invalid(path, {"CIDRs": cidrs}, text))
    return errs
