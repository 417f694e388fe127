"""Strategy of APIService (upstream ``kube-aggregator/pkg/registry/apiservice``)."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

from kas.meta import field, names
from kas.meta.age import age
from kas.meta.checks import invalid_each, unsupported
from kas.meta.field import FieldError, go_quote
from kas.meta.objectmeta import validate_object_meta, validate_object_meta_update
from kas.registry.printing.cells import is_true, part
from kas.registry.printing.rows import printer
from kas.registry.strategy import Context, Obj, Strategy, strategy_for

CONDITION_STATUS = ("True", "False", "Unknown")


@strategy_for("apiregistration.k8s.io", "apiservices")
class APIServiceStrategy(Strategy):
    """APIServices; one without a Service is served by this server itself."""

    def prepare_for_create(self, ctx: Context, obj: Obj) -> None:
        """Make an APIService without a Service available from the start, as this server serves it."""
        super().prepare_for_create(ctx, obj)
        if (obj.get("spec") or {}).get("service") is None:
            condition = {
                "type": "Available",
                "status": "True",
                "lastTransitionTime": ctx.now,
                "reason": "Local",
                "message": "Local APIServices are always available",
            }
            obj["status"] = {"conditions": [condition]}

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        """``ValidateAPIService``: the name is ``version.group``, priorities are in range, TLS settings fit the service or its absence."""
        spec = obj.get("spec") or {}
        group, version = spec.get("group") or "", spec.get("version") or ""
        errs = validate_object_meta(obj["metadata"], False, name_check(f"{version}.{group}"))
        if not group and version != "v1":
            errs.append(field.required("spec.group", "only v1 may have an empty group and it better be legacy kube"))
        if group:
            errs += invalid_each("spec.group", group, names.is_dns1123_subdomain(group))
        errs += invalid_each("spec.version", version, names.is_dns1035_label(version))
        for name, most in (("groupPriorityMinimum", 20000), ("versionPriority", 1000)):
            value = spec.get(name) or 0
            if not 0 < value <= most:
                errs.append(field.invalid(f"spec.{name}", value, f"must be positive and less than {most}"))
        bundle, insecure, service = spec.get("caBundle") or "", bool(spec.get("insecureSkipTLSVerify")), spec.get("service")
        if service is None:
            if bundle:
                size = len(base64.b64decode(bundle))
                errs.append(field.invalid("spec.caBundle", f"{size} bytes", "local APIServices may not have a caBundle"))
            if insecure:
                text = "local APIServices may not have insecureSkipTLSVerify"
                errs.append(field.invalid("spec.insecureSkipTLSVerify", insecure, text))
            return errs
        for name in ("namespace", "name"):
            if not service.get(name):
                errs.append(field.required(f"spec.service.{name}"))
        port = service.get("port")
        if port is not None and names.is_port_number(port):
            text = "port is not valid: " + ",".join(names.is_port_number(port))
            errs.append(field.invalid("spec.service.port", port, text))
        if insecure and bundle:
            errs.append(field.invalid("spec.insecureSkipTLSVerify", insecure, "may not be true if caBundle is present"))
        return errs

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """``ValidateAPIServiceUpdate``: the whole new object, and immutable metadata."""
        return validate_object_meta_update(obj["metadata"], old["metadata"]) + self.validate(ctx, obj)

    def validate_status_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """``ValidateAPIServiceStatusUpdate``: metadata, and True, False or Unknown as each condition's status."""
        errs = validate_object_meta_update(obj["metadata"], old["metadata"])
        for i, condition in enumerate((obj.get("status") or {}).get("conditions") or ()):
            status = condition.get("status") or ""
            if status not in CONDITION_STATUS:
                errs.append(unsupported(f"status.conditions[{i}].status", status, CONDITION_STATUS))
        return errs


def name_check(required: str) -> Callable[[str, bool], list[str]]:
    """Return the check that the name is ``<spec.version>.<spec.group>``."""

    def check(name: str, prefix: bool) -> list[str]:
        found = names.is_path_segment_name(name)
        if found:
            return found
        return [] if name == required else [f'must be `spec.version+"."+spec.group`: {go_quote(required)}']

    return check


@printer("apiregistration.k8s.io", "APIService")
def api_service_row(obj: Obj, now: float) -> list[Any]:
    """The cells of a Table row: name, service ("Local" for none), the Available condition with its reason when not true, age."""
    service, conditions = part(obj, "spec").get("service"), part(obj, "status").get("conditions") or ()
    available = next((c for c in conditions if c.get("type") == "Available"), None)
    text = "Unknown" if available is None else available.get("status", "")
    if available is not None and not is_true([available], "Available") and available.get("reason"):
        text += f" ({available['reason']})"
    where = "Local" if service is None else f"{service.get('namespace', '')}/{service.get('name', '')}"
    return [obj["metadata"].get("name", ""), where, text, age(obj, now)]
