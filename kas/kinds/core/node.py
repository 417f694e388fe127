"""Nodes (upstream ``pkg/registry/core/node/strategy.go``, ``pkg/apis/core/validation``)."""

from __future__ import annotations

import re
from typing import Any

from kas import checks
from kas.kinds.core.defaults import mirror_first
from kas.kinds.core.objectmeta import object_meta, object_meta_update
from kas.kinds.core.pod.defaults import round_up
from kas.kinds.core.pod.scheduling import taint_effect
from kas.kinds.core.resources import resource_quantity
from kas.meta import field, gojson, names
from kas.meta.age import age
from kas.meta.checks import legacy_cidr, repeats
from kas.meta.field import FieldError
from kas.meta.ip import parse_cidr
from kas.meta.ipchecks import cidr_warnings
from kas.meta.labelselectors import label_name
from kas.registry.printing.cells import NONE, part
from kas.registry.printing.rows import printer
from kas.registry.strategy import Context, Obj, Strategy, strategy_for
from kas.types.checktables import ANY, Checked, Message, whole
from kas.types.defaults import defaults_for
from kas.types.gostruct import render

TAINTS = "scheduler.alpha.kubernetes.io/taints"
AVOID_PODS = "scheduler.alpha.kubernetes.io/preferAvoidPods"
_TAINT = {"Key": "string", "Value": "string", "Effect": "core.TaintEffect"}
MAX_FEATURE = 253
FEATURE_FORMAT = (
    "must start with an UpperCamelCase segment, with subsequent segments separated by '/' "
    "(e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric characters and slashes"
)
_FEATURE = re.compile("[A-Z][a-zA-Z0-9]*(/[a-zA-Z][a-zA-Z0-9]*)*")
KEPT_CIDR = 'node updates may not change podCIDR except from "" to valid'
KEPT_PROVIDER = 'node updates may not change providerID except from "" to valid'


_AMOUNT, _WHOLE = checks.amount(), checks.amount(whole=True)
_AMOUNTS = whole(
    checks.record(
        {"cpu": _AMOUNT, **dict.fromkeys(("memory", "ephemeral-storage", "pods", "hugepages-1Gi", "hugepages-2Mi"), _WHOLE)}
    )
)  # fmt: skip
STATUS_CHECK = Checked("core.v1.NodeStatus", Message({"capacity": _AMOUNTS, "allocatable": _AMOUNTS}, rest=ANY))


def _taints(items: list[dict[str, Any]], path: str) -> list[FieldError]:
    errs: list[FieldError] = []
    seen: set[tuple] = set()
    for i, taint in enumerate(items):
        at, key, value, effect = f"{path}[{i}]", taint.get("key") or "", taint.get("value") or "", taint.get("effect") or ""
        errs += label_name(key, f"{at}.key")
        messages = names.is_label_value(value)
        if messages:
            errs.append(field.invalid(f"{at}.value", value, ";".join(messages)))
        errs += taint_effect(effect, False, f"{at}.effect")
        if (effect, key) in seen:
            detail = "taints must be unique by key and effect pair"
            errs.append(FieldError(field.DUPLICATE, at, render("core.Taint", taint), detail))
        seen.add((effect, key))
    return errs


def _avoided_pods(text: str, path: str) -> list[FieldError]:
    errs: list[FieldError] = []
    entries = gojson.members(gojson.loads(text), "v1.AvoidPods").get("preferavoidpods")
    if entries is not None and not isinstance(entries, list):
        into = "Go struct field AvoidPods.preferAvoidPods of type []v1.PreferAvoidPodsEntry"
        raise gojson.JSONError(f"json: cannot unmarshal {gojson.go_type(entries)} into {into}")
    for i, entry in enumerate(entries or ()):
        at = f"{path}.{AVOID_PODS}[{i}].PodSignature"
        signature = gojson.members(gojson.members(entry, "v1.PreferAvoidPodsEntry").get("podsignature"), "v1.PodSignature")
        if signature.get("podcontroller") is None:
            errs.append(field.required(at))
        elif gojson.members(signature["podcontroller"], "v1.OwnerReference").get("controller") is False:
            errs.append(field.invalid(f"{at}.PodController.Controller", False, "must point to a controller"))
    return errs


def _annotations(meta: dict[str, Any]) -> list[FieldError]:
    """Validate two annotations of old schedulers that contain JSON."""
    annotations, path = meta.get("annotations") or {}, "metadata.annotations"
    errs: list[FieldError] = []
    if annotations.get(TAINTS):
        try:
            errs += _taints(gojson.structs(annotations[TAINTS], "core.Taint", _TAINT), f"{path}.{TAINTS}")
        except gojson.JSONError as err:
            errs.append(field.invalid(path, TAINTS, str(err)))
    if annotations.get(AVOID_PODS):
        try:
            errs += _avoided_pods(annotations[AVOID_PODS], path)
        except gojson.JSONError as err:
            errs.append(field.invalid(f"{path}.AvoidPods", AVOID_PODS, str(err)))
    return errs


def _resources(status: dict[str, Any]) -> list[FieldError]:
    if STATUS_CHECK.passes(status):
        return []
    errs: list[FieldError] = []
    for kind in ("capacity", "allocatable"):
        for name in sorted(status.get(kind) or ()):
            errs += resource_quantity(name, status[kind][name], f"status.{kind}.{name}")
    return errs


def _declared_features(status: dict[str, Any]) -> list[FieldError]:
    """Check that declared features are names of feature gates, with parts after slashes, and sorted (``validateNodeDeclaredFeatures``)."""
    errs: list[FieldError] = []
    features = [name or "" for name in status.get("declaredFeatures") or ()]
    for i, name in enumerate(features):
        at, was = f"status.declaredFeatures[{i}]", features[i - 1] if i else ""
        if i and name == was:
            errs.append(field.duplicate(at, name))
        elif name.encode() < was.encode():
            errs.append(field.invalid(at, name, "list must be sorted alphabetically"))
        wrong = ""
        if names.byte_length(name) > MAX_FEATURE:
            wrong = f"must be no more than {MAX_FEATURE} characters"
        elif not _FEATURE.fullmatch(name):
            wrong = FEATURE_FORMAT
        if wrong:
            errs.append(field.invalid(at, name, f"invalid feature name {field.go_quote(name)}: {wrong}"))
    return errs


def _validate(obj: Obj) -> list[FieldError]:
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    errs = object_meta(obj["metadata"], False, names.dns_subdomain) + _annotations(obj["metadata"])
    if spec.get("taints"):
        errs += _taints(spec["taints"], "metadata.taints")
    errs += _resources(status)
    swap = ((status.get("nodeInfo") or {}).get("swap") or {}).get("capacity")
    if swap is not None and swap <= 0:
        errs.append(field.invalid("metadata.nodeSwapStatus.capacity", swap, "must be greater than zero"))
    errs += _declared_features(status)
    cidrs = spec.get("podCIDRs") or []
    for i, cidr in enumerate(cidrs):
        errs += legacy_cidr(f"spec.podCIDRs[{i}]", cidr)  # including stored ones
    if len(cidrs) > 1:
        parsed = [parse_cidr(cidr) for cidr in cidrs]
        if None in parsed:
            bad = cidrs[parsed.index(None)]
            message = f"invalid PodCIDRs. failed to check with dual stack with error:invalid CIDR[{parsed.index(None)}]: <nil>"
            message += f" (invalid CIDR address: {bad})"
            errs.append(field.internal("spec.podCIDRs", message))
        families = {c.ip.family for c in parsed if c}
        if len(families) != 2 or len(cidrs) > 2:
            message = "may specify no more than one CIDR for each IP family"
            errs.append(field.invalid("spec.podCIDRs", cidrs, message))
    return errs


def _config_source(source: dict[str, Any] | None, path: str, in_status: bool) -> list[FieldError]:
    """Validate the configuration of the removed dynamic kubelet configuration feature."""
    if source is None:
        return []
    ref = source.get("configMap")
    if ref is None:
        message = "exactly one reference subfield must be non-nil"
        return [field.invalid(path, render("core.NodeConfigSource", source), message)]
    path += ".configMap"
    errs: list[FieldError] = []
    for key in ("uid", "resourceVersion"):
        if in_status and not ref.get(key):
            errs.append(field.required(f"{path}.{key}"))
        if not in_status and ref.get(key):
            errs.append(field.forbidden(f"{path}.{key}", f"{key} must not be set in spec"))
    checks = {"namespace": names.is_dns1123_label, "name": names.is_dns1123_subdomain, "kubeletConfigKey": names.is_config_map_key}
    for key, check in checks.items():
        value = ref.get(key) or ""
        if not value:
            errs.append(field.required(f"{path}.{key}"))
        else:
            errs += [field.invalid(f"{path}.{key}", value, m) for m in check(value)]
    return errs


def _update(obj: Obj, old: Obj) -> list[FieldError]:
    spec, status, before = obj.get("spec") or {}, obj.get("status") or {}, old.get("spec") or {}
    errs = object_meta_update(obj["metadata"], old["metadata"]) + _annotations(obj["metadata"])
    errs += _resources(status) + _declared_features(status)
    addresses = status.get("addresses") or ()
    for i in repeats([tuple(sorted(address.items())) for address in addresses]):
        errs.append(field.duplicate(f"status.addresses[{i}]", render("core.NodeAddress", addresses[i])))
    cidrs, was = spec.get("podCIDRs") or [], before.get("podCIDRs") or []
    if was:
        if len(was) != len(cidrs):
            errs.append(field.forbidden("spec.podCIDRs", KEPT_CIDR))
        else:
            errs += [field.forbidden("spec.podCIDRs", KEPT_CIDR) for a, b in zip(was, cidrs, strict=True) if a != b]
    if before.get("providerID") and before["providerID"] != (spec.get("providerID") or ""):
        errs.append(field.forbidden("spec.providerID", KEPT_PROVIDER))
    errs += _config_source(spec.get("configSource"), "spec.configSource", False)
    config = status.get("config") or {}
    for key in ("assigned", "active", "lastKnownGood"):
        errs += _config_source(config.get(key), f"status.config.{key}", True)
    if spec.get("taints"):
        errs += _taints(spec["taints"], "metadata.taints")
    if (spec.get("externalID") or "") != (before.get("externalID") or ""):
        errs.append(field.forbidden("spec.externalID", "may not be updated"))
    return errs


def _warnings(obj: Obj) -> list[str]:
    spec = obj.get("spec") or {}
    out = []
    if spec.get("configSource") is not None:
        out.append("spec.configSource: the feature is removed")
    if spec.get("externalID"):
        out.append("spec.externalID: this field is deprecated, and is unused by Kubernetes")
    for i, cidr in enumerate(spec.get("podCIDRs") or ()):
        out += cidr_warnings(f"spec.podCIDRs[{i}]", cidr)
    return out


@strategy_for("", "nodes")
class NodeStrategy(Strategy):
    """Nodes, which are created with their status, since kubelets register themselves."""

    def prepare_for_create(self, ctx: Context, obj: Obj) -> None:
        """Drop the fields of dynamic kubelet configuration; the status is kept, since a kubelet registers its node with it."""
        (obj.get("spec") or {}).pop("configSource", None)
        (obj.get("status") or {}).pop("config", None)

    def prepare_for_update(self, ctx: Context, obj: Obj, old: Obj) -> None:
        """Carry over the status; configSource cannot be newly set."""
        super().prepare_for_update(ctx, obj, old)
        if (old.get("spec") or {}).get("configSource") is None:
            (obj.get("spec") or {}).pop("configSource", None)

    def prepare_for_status_update(self, ctx: Context, obj: Obj, old: Obj) -> None:
        """Carry over the spec; the status' config cannot be newly set."""
        super().prepare_for_status_update(ctx, obj, old)
        if (old.get("status") or {}).get("config") is None:
            (obj.get("status") or {}).pop("config", None)

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        """``ValidateNode``."""
        return _validate(obj)

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """``ValidateNode`` and ``ValidateNodeUpdate``."""
        return _validate(obj) + _update(obj, old)

    def validate_status_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """``ValidateNodeUpdate``, which also validates the spec."""
        return _update(obj, old)

    def warnings_on_create(self, ctx: Context, obj: Obj) -> list[str]:
        """Return a warning for each field that is deprecated or in a form that will be refused in future."""
        return _warnings(obj)

    def warnings_on_update(self, ctx: Context, obj: Obj, old: Obj) -> list[str]:
        """Return the warnings that creating the new object would give."""
        return _warnings(obj)

    def as_read(self, obj: Obj) -> None:
        """Show the capacity if an empty allocatable is stored."""
        # An empty allocatable is neither defaulted on write nor kept on read.
        status = obj.get("status") or {}
        if status.get("capacity") and not status.get("allocatable"):
            status["allocatable"] = dict(status["capacity"])


@defaults_for("", "v1", "Node")
def default_node(obj: Obj) -> None:
    """Apply computed defaults: allocatable from capacity, rounded quantities, podCIDR and podCIDRs from each other."""
    status = obj.get("status")
    if status:
        if status.get("allocatable") is None and status.get("capacity") is not None:
            status["allocatable"] = dict(status["capacity"])
        round_up(status.get("capacity"))
        round_up(status.get("allocatable"))
    if obj.get("spec"):
        mirror_first(obj["spec"], "podCIDR", "podCIDRs")


_ROLE_PREFIX = "node-role.kubernetes.io/"


def _node_status(obj: Obj) -> str:
    ready = next((c for c in reversed(part(obj, "status").get("conditions") or ()) if c.get("type") == "Ready"), None)
    text = "Unknown" if ready is None else "Ready" if ready.get("status") == "True" else "NotReady"
    return text + (",SchedulingDisabled" if part(obj, "spec").get("unschedulable") else "")


def _node_roles(found: dict[str, str]) -> str:
    roles = {k[len(_ROLE_PREFIX) :] for k in found if k.startswith(_ROLE_PREFIX)} | {found.get("kubernetes.io/role", "")}
    return ",".join(sorted(roles - {""})) or NONE


@printer("", "Node")
def node_row(obj: Obj, now: float) -> list[Any]:
    """The cells of a Table row: name, status, roles, age, kubelet, internal and external address, OS image, kernel, container runtime."""
    status = part(obj, "status")
    info, addresses = part(status, "nodeInfo"), status.get("addresses") or ()

    def address(kind: str) -> str:
        return next((a.get("address", "") for a in addresses if a.get("type") == kind), NONE)

    kernel = info.get("kernelVersion") or "<unknown>"
    if info.get("architecture"):
        kernel += f" ({info['architecture']})"
    return [
        obj["metadata"].get("name", ""), _node_status(obj), _node_roles(part(obj, "metadata", "labels")), age(obj, now),
        info.get("kubeletVersion", ""), address("InternalIP"), address("ExternalIP"), info.get("osImage") or "<unknown>",
        kernel, info.get("containerRuntimeVersion") or "<unknown>",
    ]  # fmt: skip
