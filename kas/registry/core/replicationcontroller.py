"""ReplicationControllers (upstream ``pkg/registry/core/replicationcontroller``, ``pkg/apis/core/validation``)."""

from __future__ import annotations

from typing import Any

from kas.api import field
from kas.api.field import FieldError
from kas.api.gostruct import in_order
from kas.api.validation import names
from kas.api.validation.coremeta import object_meta, object_meta_update
from kas.api.validation.podoptions import DEFAULT, Options, options_for_template
from kas.api.validation.podspec import template
from kas.api.validation.workloads import NO_MATCH, always_restarted, at_most, counts, template_labels
from kas.registry.strategy import Context, Obj, strategy_for
from kas.registry.workload import Workload

NON_CONVERTIBLE = "non-convertible.kubernetes.io"


def _spec(spec: dict[str, Any], options: Options) -> list[FieldError]:
    errs = counts(spec, "spec", "minReadySeconds")
    wanted = spec.get("selector") or {}
    if not wanted:
        errs.append(field.required("spec.selector"))
    errs += counts(spec, "spec", "replicas")
    if spec.get("template") is None:
        return [*errs, field.required("spec.template")]
    labels = template_labels(spec)
    if any((labels or {}).get(k) != v for k, v in wanted.items()):
        errs.append(field.invalid("spec.template.metadata.labels", in_order(labels), NO_MATCH))
    errs += template(spec["template"], "spec.template", options)
    return errs + always_restarted(spec, "spec", "ReplicationController")


def _not_convertible(obj: Obj, old: Obj) -> list[FieldError]:
    """Annotations name fields that lost something on the way from another version; those stay as they are."""
    errs = []
    for key, value in (old["metadata"].get("annotations") or {}).items():
        broken = key.split("/")[1:]
        if not key.startswith(NON_CONVERTIBLE) or len(broken) != 1:
            continue
        if "selector" not in broken[0]:
            errs.append(FieldError(field.NOT_FOUND, broken[0], value, "unknown non-convertible field"))
            continue
        before, after = ((o.get("spec") or {}).get("selector") for o in (old, obj))
        if (before or None) != (after or None):
            errs.append(field.invalid("spec.selector", in_order(after), "cannot update non-convertible selector"))
    return errs


@strategy_for("", "replicationcontrollers")
class ReplicationControllerStrategy(Workload):
    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        return object_meta(obj["metadata"], True, names.dns_subdomain) + _spec(obj.get("spec") or {}, DEFAULT)

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        options = options_for_template((old.get("spec") or {}).get("template"))
        errs = object_meta_update(obj["metadata"], old["metadata"])
        return errs + _spec(obj.get("spec") or {}, options) + _not_convertible(obj, old)

    def validate_status_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        status, above = obj.get("status") or {}, "cannot be greater than status.replicas"
        errs = object_meta_update(obj["metadata"], old["metadata"])
        keys = ("replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "observedGeneration")
        errs += counts(status, "status", *keys)
        for key in keys[1:4]:
            errs += at_most(status, key, "replicas", above)
        return errs + at_most(status, "availableReplicas", "readyReplicas", "cannot be greater than readyReplicas")

    def warnings_on_update(self, ctx: Context, obj: Obj, old: Obj) -> list[str]:
        # Upstream hands the two templates over the wrong way round, so it is the old one that is warned of.
        return super().warnings_on_update(ctx, old, obj)
