"""DaemonSets (upstream ``pkg/registry/apps/daemonset``, ``pkg/apis/apps/validation``, ``pkg/apis/apps/v1/conversion.go``).

``spec.templateGeneration`` of older versions lives on in an annotation that clients see but cannot set.
"""

from __future__ import annotations

from typing import Any

from kas.api import field
from kas.api.defaults.apps import TEMPLATE_GENERATION
from kas.api.equality import semantic_equal
from kas.api.field import FieldError
from kas.api.gostruct import in_order, render
from kas.api.validation import names
from kas.api.validation.checks import immutable, not_more_than_100_percent, positive_int_or_percent, unsupported
from kas.api.validation.coremeta import object_meta, object_meta_update
from kas.api.validation.labelselectors import convertible, is_empty, label_selector, matches
from kas.api.validation.podoptions import DEFAULT, Options, options_for_template
from kas.api.validation.podspec import template
from kas.api.validation.workloads import NO_MATCH, always_restarted, counts, not_decremented, percent_or_int, template_labels
from kas.registry.strategy import Context, Obj, strategy_for
from kas.registry.workload import Workload


def _strategy(strategy: dict[str, Any]) -> list[FieldError]:
    kind, body, path = strategy.get("type"), strategy.get("rollingUpdate"), "spec.updateStrategy"
    if kind == "OnDelete":
        return []
    if kind != "RollingUpdate":
        return [unsupported(path, render("DeploymentStrategy", strategy), ("RollingUpdate", "OnDelete"))]
    path += ".rollingUpdate"
    if body is None:
        return [field.required(path)]
    unavailable, surge = body.get("maxUnavailable"), body.get("maxSurge")
    errs = positive_int_or_percent(unavailable or 0, f"{path}.maxUnavailable")
    errs += positive_int_or_percent(surge or 0, f"{path}.maxSurge")
    errs += not_more_than_100_percent(unavailable, f"{path}.maxUnavailable")
    errs += not_more_than_100_percent(surge, f"{path}.maxSurge")
    has_unavailable, has_surge = percent_or_int(unavailable) != 0, percent_or_int(surge) != 0
    if has_unavailable and has_surge:
        errs.append(field.invalid(f"{path}.maxSurge", surge, "may not be set when maxUnavailable is non-zero"))
    if not has_unavailable and not has_surge:
        errs.append(field.required(f"{path}.maxUnavailable", "cannot be 0 when maxSurge is 0"))
    return errs


def _spec(spec: dict[str, Any], options: Options) -> list[FieldError]:
    chosen = spec.get("selector")
    errs = label_selector(chosen, "spec.selector", options.affinity_values)
    if not convertible(chosen) and not matches(chosen, template_labels(spec)):
        errs.append(field.invalid("spec.template.metadata.labels", in_order(template_labels(spec)), NO_MATCH))
    if chosen is not None and is_empty(chosen):
        errs.append(field.invalid("spec.selector", chosen, "empty selector is invalid for daemonset"))
    errs += template(spec.get("template") or {}, "spec.template", options)
    errs += always_restarted(spec, "spec", "DaemonSet")
    errs += counts(spec, "spec", "minReadySeconds")
    errs += _strategy(spec.get("updateStrategy") or {})
    return errs + counts(spec, "spec", "revisionHistoryLimit")


def _template_generation(obj: Obj) -> int:
    """0 when absent; decoding took nothing but a number."""
    return int((obj["metadata"].get("annotations") or {}).get(TEMPLATE_GENERATION) or 0)


def _annotate(obj: Obj, generation: int) -> None:
    meta = obj["metadata"]
    meta["annotations"] = {**(meta.get("annotations") or {}), TEMPLATE_GENERATION: str(generation)}


@strategy_for("apps", "daemonsets")
class DaemonSetStrategy(Workload):
    def prepare_for_create(self, ctx: Context, obj: Obj) -> None:
        super().prepare_for_create(ctx, obj)
        _annotate(obj, max(_template_generation(obj), 1))

    def prepare_for_update(self, ctx: Context, obj: Obj, old: Obj) -> None:
        super().prepare_for_update(ctx, obj, old)
        generation = _template_generation(old)
        if not semantic_equal((obj.get("spec") or {}).get("template"), (old.get("spec") or {}).get("template")):
            generation += 1
        _annotate(obj, generation)

    def prepare_for_status_update(self, ctx: Context, obj: Obj, old: Obj) -> None:
        super().prepare_for_status_update(ctx, obj, old)
        _annotate(obj, _template_generation(old))

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        return object_meta(obj["metadata"], True, names.dns_subdomain) + _spec(obj.get("spec") or {}, DEFAULT)

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        spec, before = obj.get("spec") or {}, old.get("spec") or {}
        options = options_for_template(before.get("template"))
        errs = object_meta_update(obj["metadata"], old["metadata"])
        errs += immutable(in_order(spec.get("selector")), before.get("selector"), "spec.selector")
        return errs + _spec(spec, options)

    def validate_status_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        errs = object_meta_update(obj["metadata"], old["metadata"])
        status = obj.get("status") or {}
        errs += counts(
            status, "status", "currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady",
            "observedGeneration", "updatedNumberScheduled", "numberAvailable", "numberUnavailable", "collisionCount",
        )  # fmt: skip
        return errs + not_decremented(status, old.get("status") or {})

    def warnings_on_create(self, ctx: Context, obj: Obj) -> list[str]:
        return self.warnings(obj)  # a name that is no DNS label is not told of
