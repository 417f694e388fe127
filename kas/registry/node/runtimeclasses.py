"""Strategy of RuntimeClass (upstream ``pkg/registry/node/runtimeclass``)."""

from __future__ import annotations

from typing import Any

from kas.api import field
from kas.api.field import FieldError
from kas.api.gostruct import render
from kas.api.podwarnings import DEPRECATED_NODE_LABELS
from kas.api.validation import names
from kas.api.validation.checks import dns_label, immutable
from kas.api.validation.labelselectors import labels
from kas.api.validation.metadata import validate_object_meta, validate_object_meta_update
from kas.api.validation.resources import container_requirements
from kas.api.validation.scheduling import tolerations
from kas.registry.strategy import Context, Obj, Strategy, strategy_for


@strategy_for("node.k8s.io", "runtimeclasses")
class RuntimeClassStrategy(Strategy):
    """The handler is fixed: running pods were started with it."""

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        errs = validate_object_meta(obj["metadata"], False, names.dns_subdomain)
        handler = obj.get("handler") or ""
        errs += dns_label(handler, "handler") if handler else [field.required("handler")]
        overhead = obj.get("overhead")
        if overhead is not None:
            errs += container_requirements({"limits": overhead.get("podFixed") or {}}, frozenset(), "overhead")
        if obj.get("scheduling") is not None:
            errs += _scheduling(obj["scheduling"], "scheduling")
        return errs

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        errs = self.validate(ctx, obj) + validate_object_meta_update(obj["metadata"], old["metadata"])
        return errs + immutable(obj.get("handler") or "", old.get("handler") or "", "handler")

    def warnings_on_create(self, ctx: Context, obj: Obj) -> list[str]:
        return _warnings(obj)

    def warnings_on_update(self, ctx: Context, obj: Obj, old: Obj) -> list[str]:
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
            errs.append(field.duplicate(field.index(at, i), render("Toleration", item)))
        seen.add(key)
    return errs
