"""Strategy of RuntimeClass (upstream ``pkg/registry/node/runtimeclass``)."""

from __future__ import annotations

from typing import Any

from kas.kinds.core.pod.defaults import round_up
from kas.kinds.core.pod.scheduling import tolerations
from kas.kinds.core.pod.warnings import DEPRECATED_NODE_LABELS
from kas.kinds.core.resources import NO_CLAIMS, container_requirements
from kas.meta import field, names
from kas.meta.age import age
from kas.meta.checks import dns_label, immutable
from kas.meta.field import FieldError
from kas.meta.labelselectors import labels
from kas.meta.objectmeta import validate_object_meta, validate_object_meta_update
from kas.registry.printing.rows import printer
from kas.registry.strategy import Context, Obj, Strategy, strategy_for
from kas.types.defaults import defaults_for
from kas.types.gostruct import render


@strategy_for("node.k8s.io", "runtimeclasses")
class RuntimeClassStrategy(Strategy):
    """RuntimeClasses; the handler is immutable, because running pods were started with it."""

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        """``ValidateRuntimeClass``: the handler is a DNS label; overhead and scheduling as in a pod."""
        errs = validate_object_meta(obj["metadata"], False, names.dns_subdomain)
        handler = obj.get("handler") or ""
        errs += dns_label(handler, "handler") if handler else [field.required("handler")]
        overhead = obj.get("overhead")
        if overhead is not None:
            errs += container_requirements({"limits": overhead.get("podFixed") or {}}, NO_CLAIMS, "overhead")
        if obj.get("scheduling") is not None:
            errs += _scheduling(obj["scheduling"], "scheduling")
        return errs

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """``ValidateRuntimeClassUpdate``: the handler may not change."""
        errs = self.validate(ctx, obj) + validate_object_meta_update(obj["metadata"], old["metadata"])
        return errs + immutable(obj.get("handler") or "", old.get("handler") or "", "handler")

    def warnings_on_create(self, ctx: Context, obj: Obj) -> list[str]:
        """Return a warning for each deprecated node label in the scheduling constraints."""
        return _warnings(obj)

    def warnings_on_update(self, ctx: Context, obj: Obj, old: Obj) -> list[str]:
        """Return the warnings that creating the new object would give."""
        return _warnings(obj)


def _warnings(obj: Obj) -> list[str]:
    selector = (obj.get("scheduling") or {}).get("nodeSelector") or {}
    return [f"scheduling.nodeSelector: {DEPRECATED_NODE_LABELS[key]}" for key in sorted(selector) if key in DEPRECATED_NODE_LABELS]


def _scheduling(scheduling: dict[str, Any], path: str) -> list[FieldError]:
    errs: list[FieldError] = []
    if scheduling.get("nodeSelector") is not None:
        errs += labels(scheduling["nodeSelector"], field.child(path, "nodeSelector"))
    items, at = scheduling.get("tolerations") or [], field.child(path, "tolerations")
    errs += tolerations(items, at)
    seen: set[tuple[str, ...]] = set()
    for i, item in enumerate(items):
        key = tuple(item.get(name) or "" for name in ("key", "operator", "value", "effect"))
        if key in seen:
            errs.append(field.duplicate(field.index(at, i), render("core.Toleration", item)))
        seen.add(key)
    return errs


@defaults_for("node.k8s.io", "v1", "RuntimeClass")
def default_runtime_class(obj: dict[str, Any]) -> None:
    """Computed defaults: the overhead is rounded up to thousandths."""
    round_up((obj.get("overhead") or {}).get("podFixed"))


@printer("node.k8s.io", "RuntimeClass")
def runtime_class_row(obj: Obj, now: float) -> list[Any]:
    """The cells of a Table row: name, handler, age."""
    return [obj["metadata"].get("name", ""), obj.get("handler", ""), age(obj, now)]
