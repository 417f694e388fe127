"""DaemonSets (upstream ``pkg/registry/apps/daemonset``, ``pkg/apis/apps/validation``, ``pkg/apis/apps/v1/conversion.go``).

``spec.templateGeneration`` of older versions is now an annotation, which clients can see but not set.
"""

from __future__ import annotations

from typing import Any

from kas import checks
from kas.kinds.apps.defaults import default_rolling_update, default_template
from kas.kinds.core.objectmeta import object_meta, object_meta_update
from kas.kinds.core.pod.options import DEFAULT, Options, options_for_template
from kas.kinds.core.pod.spec import template
from kas.kinds.core.workload.strategy import Workload
from kas.kinds.core.workload.validation import (
    COUNT,
    NO_MATCH,
    SELECTED,
    SOME_SHARE,
    always_restarted,
    counts,
    immutable_selector,
    not_decremented,
    percent_or_int,
    selected_template,
    template_labels,
)
from kas.meta import field, names
from kas.meta.age import age
from kas.meta.checks import not_more_than_100_percent, positive_int_or_percent, unsupported
from kas.meta.equality import semantic_equal
from kas.meta.field import FieldError
from kas.meta.labelselectors import converted, is_empty, label_selector
from kas.meta.scalars import int64
from kas.registry.printing.cells import containers, labels, part, selector
from kas.registry.printing.rows import printer
from kas.registry.strategy import Context, Obj, strategy_for
from kas.types.checktables import Checked, either, need
from kas.types.defaults import defaults_for
from kas.types.gostruct import render, sorted_map
from kas.types.scheme import builtin_type

_NONE = checks.integer(0, 0)
_ROLLING = either({"maxUnavailable": need(SOME_SHARE), "maxSurge": _NONE}, {"maxUnavailable": _NONE, "maxSurge": need(SOME_SHARE)})
CHECK = Checked(
    "apps.v1.DaemonSetSpec",
    {
        **SELECTED, "minReadySeconds": COUNT, "revisionHistoryLimit": COUNT, "updateStrategy": need(either(
            {"type": need(checks.option("RollingUpdate")), "rollingUpdate": need(_ROLLING)}, {"type": need(checks.option("OnDelete"))},
        )),
    },
)  # fmt: skip


def _strategy(strategy: dict[str, Any]) -> list[FieldError]:
    kind, body, path = strategy.get("type"), strategy.get("rollingUpdate"), "spec.updateStrategy"
    if kind == "OnDelete":
        return []
    if kind != "RollingUpdate":
        return [unsupported(path, render("apps.DaemonSetUpdateStrategy", strategy), ("RollingUpdate", "OnDelete"))]
    path += ".rollingUpdate"
    if body is None:
        return [field.required(path)]
    # An empty text is not a number and is refused as an invalid percentage.
    unavailable, surge = (0 if body.get(name) is None else body[name] for name in ("maxUnavailable", "maxSurge"))
    errs = positive_int_or_percent(unavailable, f"{path}.maxUnavailable")
    errs += positive_int_or_percent(surge, f"{path}.maxSurge")
    errs += not_more_than_100_percent(unavailable, f"{path}.maxUnavailable")
    errs += not_more_than_100_percent(surge, f"{path}.maxSurge")
    has_unavailable, has_surge = percent_or_int(unavailable) != 0, percent_or_int(surge) != 0
    if has_unavailable and has_surge:
        errs.append(field.invalid(f"{path}.maxSurge", surge, "may not be set when maxUnavailable is non-zero"))
    if not has_unavailable and not has_surge:
        errs.append(field.required(f"{path}.maxUnavailable", "cannot be 0 when maxSurge is 0"))
    return errs


def _spec(spec: dict[str, Any], options: Options) -> list[FieldError]:
    if CHECK.passes(spec):
        return selected_template(spec, "spec", "", "DaemonSet", options)
    chosen = spec.get("selector")
    errs = label_selector(chosen, "spec.selector", options.affinity_values)
    selects = converted(chosen)
    if selects is not None and not selects.matches(template_labels(spec)):
        errs.append(field.invalid("spec.template.metadata.labels", sorted_map(template_labels(spec)), NO_MATCH))
    if chosen is not None and is_empty(chosen):
        errs.append(field.invalid("spec.selector", render("meta.LabelSelector", chosen), "empty selector is invalid for daemonset"))
    errs += template(spec.get("template") or {}, "spec.template", options)
    errs += always_restarted(spec, "spec", "DaemonSet")
    errs += counts(spec, "spec", "minReadySeconds")
    errs += _strategy(spec.get("updateStrategy") or {})
    return errs + counts(spec, "spec", "revisionHistoryLimit")


def _template_generation(obj: Obj) -> int:
    """Return the template generation, 0 if absent; decoding only accepts a number."""
    return int((obj["metadata"].get("annotations") or {}).get(TEMPLATE_GENERATION) or 0)


def _annotate(obj: Obj, generation: int) -> None:
    meta = obj["metadata"]
    meta["annotations"] = {**(meta.get("annotations") or {}), TEMPLATE_GENERATION: str(generation)}


@strategy_for("apps", "daemonsets")
class DaemonSetStrategy(Workload):
    """DaemonSets: a Workload with a second generation, that of its template."""

    def prepare_for_create(self, ctx: Context, obj: Obj) -> None:
        """Drop the status, start the generation; the template generation is at least 1."""
        super().prepare_for_create(ctx, obj)
        _annotate(obj, max(_template_generation(obj), 1))

    def prepare_for_update(self, ctx: Context, obj: Obj, old: Obj) -> None:
        """Carry over the status and increment the generations: the template's only if the template changed, whatever the request says."""
        super().prepare_for_update(ctx, obj, old)
        generation = _template_generation(old)
        template, before = ((one.get("spec") or {}).get("template") for one in (obj, old))
        if not semantic_equal(template, before, builtin_type("core.v1.PodTemplateSpec")):
            generation += 1
        _annotate(obj, generation)

    def prepare_for_status_update(self, ctx: Context, obj: Obj, old: Obj) -> None:
        """Carry over the spec and the template generation."""
        super().prepare_for_status_update(ctx, obj, old)
        _annotate(obj, _template_generation(old))

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        """``ValidateDaemonSet``."""
        return object_meta(obj["metadata"], True, names.dns_subdomain) + _spec(obj.get("spec") or {}, DEFAULT)

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """``ValidateDaemonSetUpdate``: the selector may not change, and errors that the stored pod template already has are tolerated."""
        spec, before = obj.get("spec") or {}, old.get("spec") or {}
        options = options_for_template(before.get("template"))
        errs = object_meta_update(obj["metadata"], old["metadata"])
        errs += immutable_selector(spec, before)
        return errs + _spec(spec, options)

    def validate_status_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """``ValidateDaemonSetStatusUpdate``: no count is negative, and collisionCount never smaller than it was."""
        errs = object_meta_update(obj["metadata"], old["metadata"])
        status = obj.get("status") or {}
        errs += counts(
            status, "status", "currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady",
            "observedGeneration", "updatedNumberScheduled", "numberAvailable", "numberUnavailable", "collisionCount",
        )  # fmt: skip
        return errs + not_decremented(status, old.get("status") or {})

    def warnings_on_create(self, ctx: Context, obj: Obj) -> list[str]:
        """The warnings of the pod template."""
        return self.warnings(obj)  # without a warning for a name that is not a DNS label


TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"


@defaults_for("apps", "v1", "DaemonSet")
def default_daemon_set(obj: Obj) -> None:
    """Apply computed defaults: those of the pod template, and a rolling update with one pod unavailable and no surplus.

    Without a template generation it becomes 0, as upstream's conversion writes it. So a write that omits the annotation changes it for
    managed fields, whatever the strategy does. Raises DecodeError for a generation that is not an int64.
    """
    meta = obj.get("metadata")
    if meta is not None:
        notes = meta.get("annotations")
        if notes is None:
            notes = meta["annotations"] = {}
        notes[TEMPLATE_GENERATION] = str(int64(notes.get(TEMPLATE_GENERATION, "0")))
    default_rolling_update(default_template(obj).setdefault("updateStrategy", {}), 1, 0)


@printer("apps", "DaemonSet")
def daemon_set_row(obj: Obj, now: float) -> list[Any]:
    """The cells of a Table row: name, the five counts of the status, node selector, age, containers, images, selector."""
    spec, status = part(obj, "spec"), part(obj, "status")
    template = part(spec, "template")
    return [
        obj["metadata"].get("name", ""), status.get("desiredNumberScheduled", 0), status.get("currentNumberScheduled", 0),
        status.get("numberReady", 0), status.get("updatedNumberScheduled", 0), status.get("numberAvailable", 0),
        labels(part(template, "spec").get("nodeSelector")), age(obj, now), *containers(template), selector(spec.get("selector")),
    ]  # fmt: skip
