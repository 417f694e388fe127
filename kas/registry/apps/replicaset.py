"""ReplicaSets (upstream ``pkg/registry/apps/replicaset``, ``pkg/apis/apps/validation``)."""

from __future__ import annotations

from typing import Any

from kas.api.field import FieldError
from kas.api.gostruct import in_order
from kas.api.validation import names
from kas.api.validation.checks import immutable
from kas.api.validation.coremeta import object_meta, object_meta_update
from kas.api.validation.podoptions import DEFAULT, Options, options_for_template
from kas.api.validation.workloads import at_most, counts, selected_template, selector
from kas.registry.strategy import Context, Obj, strategy_for
from kas.registry.workload import Workload


def _spec(spec: dict[str, Any], options: Options) -> list[FieldError]:
    errs = counts(spec, "spec", "replicas", "minReadySeconds")
    errs += selector(spec, "spec", "empty selector is invalid for deployment")
    return errs + selected_template(spec, "spec", "invalid label selector", "ReplicaSet", options)


@strategy_for("apps", "replicasets")
class ReplicaSetStrategy(Workload):
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
