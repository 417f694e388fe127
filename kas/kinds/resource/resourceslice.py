"""Strategy of ResourceSlice (upstream ``pkg/registry/resource/resourceslice``)."""

from __future__ import annotations

import re
from typing import Any

from kas.kinds.core.objectmeta import object_meta, object_meta_update
from kas.kinds.core.pod.scheduling import node_selector
from kas.kinds.resource.devices import (
    MAX_DOMAIN,
    MAX_ID,
    binding_conditions,
    device_qualified_name,
    each,
    each_entry,
    each_unique,
    pool_name,
    request_policy,
    taint,
)  # fmt: skip
from kas.meta import field, names
from kas.meta.age import age
from kas.meta.checks import csi_driver_name, dns_label, dns_subdomain, immutable
from kas.meta.equality import semantic_equal
from kas.meta.field import FieldError
from kas.registry.gated import NOTHING_GATED
from kas.registry.printing.cells import part
from kas.registry.printing.rows import printer
from kas.registry.strategy import Context, Obj, Strategy, strategy_for
from kas.types.gostruct import render
from kas.types.scheme import Resource, builtin_field

MAX_DEVICES, MAX_ADVANCED_DEVICES = 128, 64
MAX_PROPERTIES = 32  # attributes and capacities of a device together
MAX_ATTRIBUTE_VALUES = 48  # of all attributes of a device, counting each item of a list
MAX_VALUE = 64
MAX_TAINTS = 16
MAX_COUNTER_SETS, MAX_COUNTERS, MAX_CONSUMPTIONS = 8, 32, 2
MAX_KEY = MAX_DOMAIN + 1 + MAX_ID
_SEMVER = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    r"(-(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(\.(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*)?"
    r"(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?",
    re.ASCII,
)
_LIST_ATTRIBUTES = ("bools", "ints", "strings", "versions")


@strategy_for("resource.k8s.io", "resourceslices")
class ResourceSliceStrategy(Strategy):
    """ResourceSlices; driver, pool and node are immutable, the devices may change."""

    def __init__(self, resource: Resource) -> None:
        super().__init__(resource)
        self._disabled, self.gated = self.gated, NOTHING_GATED  # dropped after the generation is set

    def prepare_for_create(self, ctx: Context, obj: Obj) -> None:
        """Set the generation and drop disabled fields."""
        super().prepare_for_create(ctx, obj)
        self._disabled.drop(obj, None)

    def prepare_for_update(self, ctx: Context, obj: Obj, old: Obj) -> None:
        """Increment the generation if due, then drop disabled fields: a change of those counts, too."""
        super().prepare_for_update(ctx, obj, old)
        self._disabled.drop(obj, old)

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        """``ValidateResourceSlice``."""
        return object_meta(obj["metadata"], False, names.dns_subdomain) + _spec(obj.get("spec") or {}, None)

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """``ValidateResourceSliceUpdate``: errors that the stored spec already has are tolerated; driver, pool and node may not change."""
        return object_meta_update(obj["metadata"], old["metadata"]) + _spec(obj.get("spec") or {}, old.get("spec") or {})

    def warnings_on_create(self, ctx: Context, obj: Obj) -> list[str]:
        """Return a warning for a driver name with capitals: names that only differ in case are different drivers."""
        driver = (obj.get("spec") or {}).get("driver") or ""
        if driver == driver.lower():
            return []
        return [f"spec.driver: driver names should be lowercase; {field.go_quote(driver)} contains uppercase characters"]

    def warnings_on_update(self, ctx: Context, obj: Obj, old: Obj) -> list[str]:
        """Return the warnings that creating the new object would give."""
        return self.warnings_on_create(ctx, obj)


def _spec(spec: dict[str, Any], old: dict[str, Any] | None) -> list[FieldError]:
    pool = spec.get("pool") or {}
    errs = csi_driver_name(spec.get("driver") or "", "spec.driver") + _pool(pool, "spec.pool")
    if old is not None:
        errs += immutable(pool.get("name") or "", (old.get("pool") or {}).get("name") or "", "spec.pool.name")
        errs += immutable(spec.get("driver") or "", old.get("driver") or "", "spec.driver")
        errs += immutable(spec.get("nodeName"), old.get("nodeName"), "spec.nodeName")
    errs += _placement(spec)
    if spec.get("sharedCounters") is not None and spec.get("devices") is not None:
        errs.append(field.invalid("spec", "", "only one of `sharedCounters` or `devices` is allowed"))
    devices = spec.get("devices") or []
    advanced = any(d.get("taints") or d.get("consumesCounters") for d in devices) or any(
        a.get(name) is not None for d in devices for a in (d.get("attributes") or {}).values() for name in _LIST_ATTRIBUTES
    )
    stored = {d.get("name") or "": d for d in (old or {}).get("devices") or ()}
    per_device = bool(spec.get("perDeviceNodeSelection"))

    def device(item: dict[str, Any], path: str) -> list[FieldError]:
        return _device(item, stored.get(item.get("name") or ""), per_device, path)

    limit = MAX_ADVANCED_DEVICES if advanced else MAX_DEVICES
    errs += each_unique(devices, limit, device, lambda d: d.get("name") or "", "spec.devices")
    counters = spec.get("sharedCounters")
    return errs + each_unique(counters, MAX_COUNTER_SETS, _counter_set, lambda s: s.get("name") or "", "spec.sharedCounters")


def _pool(pool: dict[str, Any], path: str) -> list[FieldError]:
    errs = pool_name(pool.get("name") or "", field.child(path, "name"))
    count, generation = pool.get("resourceSliceCount") or 0, pool.get("generation") or 0
    if count <= 0:
        errs.append(field.invalid(field.child(path, "resourceSliceCount"), count, "must be greater than zero"))
    if generation < 0:
        errs.append(field.invalid(field.child(path, "generation"), generation, "must be greater than or equal to zero"))
    return errs


def _placement(spec: dict[str, Any]) -> list[FieldError]:
    """Check that exactly one field says which nodes can access the devices."""
    errs: list[FieldError] = []
    present: list[str] = []
    node, selector = spec.get("nodeName"), spec.get("nodeSelector")
    if node is not None:
        if node:
            present.append("`nodeName`")
            errs += dns_subdomain(node, "spec.nodeName")
        else:
            errs.append(field.invalid("spec.nodeName", node, "must be either unset or set to a non-empty string"))
    if selector is not None:
        present.append("`nodeSelector`")
        errs += node_selector(selector, False, "spec.nodeSelector")
        terms = selector.get("nodeSelectorTerms") or []
        if len(terms) != 1:  # one term, so that selectors of several slices can be merged
            path = "spec.nodeSelector.nodeSelectorTerms"
            shown = render("core.NodeSelector", selector)["NodeSelectorTerms"]
            errs.append(field.invalid(path, shown, "must have exactly one node selector term"))
    for name in ("allNodes", "perDeviceNodeSelection"):
        value = spec.get(name)
        if value:
            present.append(f"`{name}`")
        elif value is not None:
            errs.append(field.invalid(f"spec.{name}", value, "must be either unset or set to true"))
    text = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
    if not present:
        errs.append(field.required("spec", text))
    elif len(present) > 1:
        errs.append(field.invalid("spec", "{" + ", ".join(present) + "}", text + ", but multiple fields are set"))
    return errs


def _counter_set(counters: dict[str, Any], path: str) -> list[FieldError]:
    name, at = counters.get("name") or "", field.child(path, "name")
    errs = dns_label(name, at) if name else [field.required(at)]
    return errs + _counters(counters.get("counters"), field.child(path, "counters"))


def _counters(counters: dict[str, Any] | None, path: str) -> list[FieldError]:
    if not counters:
        return [field.required(path)]
    return each_entry(counters, MAX_COUNTERS, 63, dns_label, lambda counter, at: [], path)


def _consumption(item: dict[str, Any], path: str) -> list[FieldError]:
    name, at = item.get("counterSet") or "", field.child(path, "counterSet")
    errs = dns_label(name, at) if name else [field.required(at)]
    return errs + _counters(item.get("counters"), field.child(path, "counters"))


def _device(device: dict[str, Any], old: dict[str, Any] | None, per_device: bool, path: str) -> list[FieldError]:
    errs = dns_label(device.get("name") or "", field.child(path, "name"))
    attributes, capacity = device.get("attributes") or {}, device.get("capacity") or {}
    total = len(attributes) + len(capacity)
    if total > MAX_PROPERTIES:
        errs.append(field.invalid(path, total, f"the total number of attributes and capacities must not exceed {MAX_PROPERTIES}"))
    values = sum(sum(len(a.get(name) or ()) for name in _LIST_ATTRIBUTES) or 1 for a in attributes.values())
    if values > MAX_ATTRIBUTE_VALUES:
        errs.append(field.invalid(path, values, f"the total number of attribute values must not exceed {MAX_ATTRIBUTE_VALUES}"))
    errs += each_entry(attributes, -1, MAX_KEY, device_qualified_name, _attribute, field.child(path, "attributes"))
    shared = bool(device.get("allowMultipleAllocations"))
    if old is None or not semantic_equal(old.get("capacity"), device.get("capacity"), builtin_field("resource.v1.Device", "capacity")):

        def one_capacity(item: dict[str, Any], at: str) -> list[FieldError]:
            policy, here = item.get("requestPolicy"), field.child(at, "requestPolicy")
            if policy is None:
                return []
            if not shared:
                return [field.forbidden(here, "allowMultipleAllocations must be true")]
            return request_policy(policy, item.get("value") or "0", here)

        errs += each_entry(capacity, -1, MAX_KEY, device_qualified_name, one_capacity, field.child(path, "capacity"))
    if old is None or not semantic_equal(old.get("taints"), device.get("taints"), builtin_field("resource.v1.Device", "taints")):
        errs += each(device.get("taints"), MAX_TAINTS, taint, field.child(path, "taints"))
    consumed, at = device.get("consumesCounters"), field.child(path, "consumesCounters")
    errs += each_unique(consumed, MAX_CONSUMPTIONS, _consumption, lambda c: c.get("counterSet") or "", at)
    errs += _device_placement(device, path) if per_device else _no_placement(device, path)
    return errs + binding_conditions(device, path)


def _device_placement(device: dict[str, Any], path: str) -> list[FieldError]:
    errs: list[FieldError] = []
    present: list[str] = []
    node, selector, everywhere = device.get("nodeName"), device.get("nodeSelector"), device.get("allNodes")
    if node:
        present.append("`nodeName`")
        errs += dns_subdomain(node, field.child(path, "nodeName"))
    elif node is not None:
        errs.append(field.invalid(field.child(path, "nodeName"), node, "must not be empty"))
    if selector is not None:
        present.append("`nodeSelector`")
        errs += node_selector(selector, False, field.child(path, "nodeSelector"))
    if everywhere:
        present.append("`allNodes`")
    elif everywhere is not None:
        errs.append(field.invalid(field.child(path, "allNodes"), everywhere, "must be either unset or set to true"))
    text = (
        "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true in the "
        "ResourceSlice spec"
    )
    if not present:
        errs.append(field.required(path, text))
    elif len(present) > 1:
        errs.append(field.invalid(path, "{" + ", ".join(present) + "}", text))
    return errs


def _no_placement(device: dict[str, Any], path: str) -> list[FieldError]:
    if all(device.get(name) is None for name in ("nodeName", "nodeSelector", "allNodes")):
        return []
    text = "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec"
    return [field.invalid(path, None, text)]


def _text_value(text: str, path: str) -> list[FieldError]:
    return [field.too_long(path, MAX_VALUE)] if names.byte_length(text) > MAX_VALUE else []


def _version_value(version: str, path: str) -> list[FieldError]:
    errs = [] if _SEMVER.fullmatch(version) else [field.invalid(path, version, "must be a string compatible with semver.org spec 2.0.0")]
    return errs + _text_value(version, path)


_VALUES = {"string": _text_value, "version": _version_value}


def _attribute(attribute: dict[str, Any], path: str) -> list[FieldError]:
    """Check that an attribute has one typed value, or a list of values of one type."""
    errs: list[FieldError] = []
    present = [name for name in ("bool", "int", "string", "version", *_LIST_ATTRIBUTES) if attribute.get(name) is not None]
    for name, check in _VALUES.items():
        if attribute.get(name) is not None:
            errs += check(attribute[name], field.child(path, name))
    for name in _LIST_ATTRIBUTES:
        items, at = attribute.get(name), field.child(path, name)
        if items is not None and not items:
            errs.append(field.invalid(at, items, "must not be empty if specified"))
        if name[:-1] in _VALUES:
            errs += each(items, -1, _VALUES[name[:-1]], at)
    if not present:
        errs.append(field.invalid(path, "", "exactly one value must be specified"))
    elif len(present) > 1:
        errs.append(field.invalid(path, render("resource.DeviceAttribute", attribute), "exactly one value must be specified"))
    return errs


@printer("resource.k8s.io", "ResourceSlice")
def resource_slice_row(obj: Obj, now: float) -> list[Any]:
    """The cells of a Table row: name, node, driver, pool, age."""
    spec = part(obj, "spec")
    return [
        obj["metadata"].get("name", ""), spec.get("nodeName") or "", spec.get("driver", ""), part(spec, "pool").get("name", ""),
        age(obj, now),
    ]  # fmt: skip
