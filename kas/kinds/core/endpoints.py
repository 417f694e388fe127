"""Endpoints (upstream ``pkg/registry/core/endpoint``, ``pkg/apis/core/validation``). Nothing is sorted or repacked."""

from __future__ import annotations

from typing import Any

from kas.kinds.core.objectmeta import object_meta, object_meta_update
from kas.kinds.core.service.validation import port_and_protocol
from kas.meta import field, names
from kas.meta.age import age
from kas.meta.checks import legacy_ip, non_special_ip
from kas.meta.equality import semantic_equal
from kas.meta.field import FieldError
from kas.meta.ipchecks import ip_warnings
from kas.registry.printing.cells import NONE, first_three
from kas.registry.printing.rows import printer
from kas.registry.strategy import Context, Obj, Strategy, strategy_for
from kas.types.scheme import builtin_field

MANAGED_BY = "endpoints.kubernetes.io/managed-by"

def _address(address: dict[str, Any], path: str) -> list[FieldError]:
    ip, host, node = address.get("ip") or "", address.get("hostname"), address.get("nodeName")
    errs = legacy_ip(f"{path}.ip", ip)
    if host:
        errs += [field.invalid(f"{path}.hostname", host, m) for m in names.is_dns1123_label(host)]
    if node is not None:
        errs += [field.invalid(f"{path}.nodeName", node, m) for m in names.is_dns1123_subdomain(node)]
    return errs + non_special_ip(ip, f"{path}.ip")


def _port(port: dict[str, Any], need_name: bool, path: str) -> list[FieldError]:
    name, number, protocol = port.get("name") or "", port.get("port") or 0, port.get("protocol") or ""
    errs: list[FieldError] = []
    if name:
        errs += [field.invalid(f"{path}.name", name, m) for m in names.is_dns1123_label(name)]
    elif need_name:
        errs.append(field.required(f"{path}.name"))
    errs += port_and_protocol(number, protocol, path)
    app = port.get("appProtocol")
    if app is not None:
        errs += [field.invalid(f"{path}.appProtocol", app, m) for m in names.is_qualified_name(app)]
    return errs


def _subsets(obj: Obj) -> list[FieldError]:
    errs: list[FieldError] = []
    for i, subset in enumerate(obj.get("subsets") or ()):
        at, ports = f"subsets[{i}]", subset.get("ports") or []
        if not subset.get("addresses") and not subset.get("notReadyAddresses"):
            errs.append(field.required(at, "must specify `addresses` or `notReadyAddresses`"))
        for kind in ("addresses", "notReadyAddresses"):
            for j, address in enumerate(subset.get(kind) or ()):
                errs += _address(address, f"{at}.{kind}[{j}]")
        for j, port in enumerate(ports):
            errs += _port(port, len(ports) > 1, f"{at}.ports[{j}]")
    return errs


@strategy_for("", "endpoints")
class EndpointsStrategy(Strategy):
    """Endpoints; unchanged subsets are not validated again."""

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        """``ValidateEndpointsCreate``."""
        return object_meta(obj["metadata"], True, names.dns_subdomain) + _subsets(obj)

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """``ValidateEndpointsUpdate``: unchanged subsets are tolerated, as they may have been valid in an older release."""
        errs = object_meta_update(obj["metadata"], old["metadata"]) + object_meta(obj["metadata"], True, names.dns_subdomain)
        found = _subsets(obj)
        if found and semantic_equal(obj.get("subsets"), old.get("subsets"), builtin_field("core.v1.Endpoints", "subsets")):
            return errs
        return errs + found

    def warnings_on_create(self, ctx: Context, obj: Obj) -> list[str]:
        """Return a warning for each address in a form that will be refused in future; none for the controller's Endpoints."""
        out: list[str] = []
        if (obj["metadata"].get("labels") or {}).get(MANAGED_BY) == "endpoint-controller":
            return out  # the controller writes canonical addresses
        for i, subset in enumerate(obj.get("subsets") or ()):
            for kind in ("addresses", "notReadyAddresses"):
                for j, address in enumerate(subset.get(kind) or ()):
                    out += ip_warnings(f"subsets[{i}].{kind}[{j}].ip", address.get("ip") or "")
        return out

    def warnings_on_update(self, ctx: Context, obj: Obj, old: Obj) -> list[str]:
        """Return the warnings that creating the new object would give."""
        return self.warnings_on_create(ctx, obj)


def _endpoints(subsets: list[Obj]) -> str:
    shown: list[str] = []
    count = 0
    for subset in subsets:
        addresses = subset.get("addresses") or ()
        for port in subset.get("ports") or (None,):
            count += len(addresses)
            for address in addresses[: 3 - len(shown)]:
                ip = address.get("ip", "")
                if port is not None:
                    ip = f"[{ip}]:{port.get('port', 0)}" if ":" in ip else f"{ip}:{port.get('port', 0)}"
                shown.append(ip)
    return first_three(shown, count)


@printer("", "Endpoints")
def endpoints_row(obj: Obj, now: float) -> list[Any]:
    """The cells of a Table row: name, the first addresses with their ports, age."""
    subsets = obj.get("subsets")
    return [obj["metadata"].get("name", ""), _endpoints(subsets) if subsets else NONE, age(obj, now)]
