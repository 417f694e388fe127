"""ReplicaSets (upstream ``pkg/registry/apps/replicaset``, ``pkg/apis/apps/validation``)."""

from __future__ import annotations

from typing import Any

from kas.api.field import FieldError
from kas.api.gostruct import in_order
from kas.api.podwarnings import template_warnings
from kas.api.validation import names
from kas.api.validation.checks import immutable
from kas.api.validation.coremeta import object_meta, object_meta_update
from kas.api.validation.podspec import DEFAULT, Options, options_for_template
from kas.api.validation.workloads import at_most, counts, name_warning, selected_template, selector
from kas.registry.strategy import Context, Obj, Strategy, strategy_for


def _spec(spec: dict[str, Any], options: Options) -> list[FieldError]:
    errs = counts(spec, "spec", "replicas", "minReadySeconds")
    errs += selector(spec, "spec", "empty selector is invalid for deployment")
    return errs + selected_template(spec, "spec", "invalid label selector", "ReplicaSet", options)


@strategy_for("apps", "replicasets")
class ReplicaSetStrategy(Strategy):
    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        return object_meta(obj["metadata"], True, names.dns_subdomain) + _spec(obj.get("spec") or {}, DEFAULT)

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        spec, before = obj.get("spec") or {}, old.get("spec") or {}
        options = options_for_template(before.get("template"))
        errs = object_meta_update(obj["metadata"], old["metadata"]) + _spec(spec, options)
        return errs + immutable(in_order(spec.get("selector")), before.get("selector"), "spec.selector")

    def validate_status_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        status = obj.get("status") or {}
        errs = object_meta_update(obj["metadata"], old["metadata"])
        errs += counts(
            status, "status", "replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "terminatingReplicas",
            "observedGeneration",
        )  # fmt: skip
        for key in ("fullyLabeledReplicas", "readyReplicas", "availableReplicas"):
            errs += at_most(status, key, "replicas", "cannot be greater than status.replicas")
        return errs + at_most(status, "availableReplicas", "readyReplicas", "cannot be greater than readyReplicas")

    def warnings_on_create(self, ctx: Context, obj: Obj) -> list[str]:
        out = name_warning(obj["metadata"].get("name") or "")
        return out + template_warnings((obj.get("spec") or {}).get("template"), "spec.template")

    def warnings_on_update(self, ctx: Context, obj: Obj, old: Obj) -> list[str]:
        if obj["metadata"].get("generation") == old["metadata"].get("generation"):
            return []
        return template_warnings((obj.get("spec") or {}).get("template"), "spec.template")
