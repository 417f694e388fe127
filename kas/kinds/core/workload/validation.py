"""Validation that the workload kinds share: selectors that must match their template, replica counts, name warnings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from kas import checks
from kas.kinds.core.pod.options import Options
from kas.kinds.core.pod.spec import template
from kas.meta import field, names
from kas.meta.checks import immutable, nonnegative, unsupported
from kas.meta.field import FieldError
from kas.meta.labelselectors import converted, is_empty, label_selector
from kas.meta.scalars import decimal
from kas.types.checktables import ANY, each, need
from kas.types.gostruct import render, sorted_map
from kas.types.scheme import builtin_field

Spec = Mapping[str, Any]
# Common parts of the workloads' check tables. Selectors are validated separately where they must match the template, and templates by the
# tables of pods (``kas.kinds.core.pod.checks``).
COUNT = checks.integer(0)
SELECTOR = {"matchLabels": need(each(checks.label_value(), 1, key=checks.qualified_name()))}
SELECTED = {"selector": need(SELECTOR), "template": ANY}
SHARE = checks.by_kind(integer=COUNT, text=checks.matching(re.compile(r"(?:0|[1-9][0-9]?|100)%").fullmatch))
SOME_SHARE = checks.by_kind(integer=checks.integer(1), text=checks.matching(re.compile(r"(?:[1-9][0-9]?|100)%").fullmatch))
_NUMBER = re.compile(r"[+-]?[0-9]+")
NO_MATCH = "`selector` does not match template `labels`"


def counts(obj: Spec, path: str, *keys: str) -> list[FieldError]:
    """Check that none of these fields is negative; absent ones count as 0."""
    errs: list[FieldError] = []
    for key in keys:
        n = obj.get(key)
        if n is not None and n < 0:
            errs += nonnegative(n, f"{path}.{key}")
    return errs


def selector(spec: Spec, path: str, empty_message: str) -> list[FieldError]:
    """Check that the selector is present, valid and not empty."""
    chosen = spec.get("selector")
    if chosen is None:
        return [field.required(f"{path}.selector")]
    errs = label_selector(chosen, f"{path}.selector")
    if is_empty(chosen):
        errs.append(field.invalid(f"{path}.selector", render("meta.LabelSelector", chosen), empty_message))
    return errs


def immutable_selector(spec: Spec, old: Spec) -> list[FieldError]:
    """Check that ``spec.selector`` does not change."""
    now, before = spec.get("selector"), old.get("selector")
    shown = None if now is None else render("meta.LabelSelector", now)
    return immutable(now, before, "spec.selector", shown, builtin_field("apps.v1.DeploymentSpec", "selector"))


def template_labels(spec: Spec) -> Any:
    """Return the labels of the pod template; None if it has none."""
    return ((spec.get("template") or {}).get("metadata") or {}).get("labels")


def selected_template(spec: Spec, path: str, bad_selector: str, kind: str, options: Options, whole: bool = True) -> list[FieldError]:
    """Check that the template matches a convertible selector, is valid if ``whole``, and restarts its pods always."""
    chosen = spec.get("selector")
    selects = converted(chosen)
    if selects is None:
        return [field.invalid(f"{path}.selector", render("meta.LabelSelector", chosen), bad_selector)]
    errs: list[FieldError] = []
    labels = template_labels(spec)
    if (chosen is None or not is_empty(chosen)) and not selects.matches(labels):
        errs.append(field.invalid(f"{path}.template.metadata.labels", sorted_map(labels), NO_MATCH))
    if whole:
        errs += template(spec.get("template") or {}, f"{path}.template", options)
    return errs + always_restarted(spec, path, kind)


def always_restarted(spec: Spec, path: str, kind: str) -> list[FieldError]:
    """Check that the pods of a controller of this ``kind`` always restart and have no deadline."""
    pod = (spec.get("template") or {}).get("spec") or {}
    errs: list[FieldError] = []
    if pod.get("restartPolicy") != "Always":
        at = f"{path}.template.spec.restartPolicy"
        errs.append(unsupported(at, pod.get("restartPolicy") or "", ("Always",)))
    if pod.get("activeDeadlineSeconds") is not None:
        at = f"{path}.template.spec.activeDeadlineSeconds"
        errs.append(field.forbidden(at, f"activeDeadlineSeconds in {kind} is not Supported"))
    return errs


def percent_or_int(value: Any) -> int:
    """``getIntOrPercentValue``: return the number, also of a text that is one, a percentage without its sign, or 0 for other texts."""
    if isinstance(value, str):
        number = value if names.is_percent(value) else value[:-1]
        return decimal(number) if _NUMBER.fullmatch(number) else 0
    return value or 0


def at_most(status: Spec, key: str, limit: str, message: str) -> list[FieldError]:
    """Check that the status count ``key`` does not exceed the count ``limit``; ``message`` is the error text."""
    n = status.get(key) or 0
    return [field.invalid(f"status.{key}", n, message)] if n > (status.get(limit) or 0) else []


def not_decremented(status: Spec, old: Spec) -> list[FieldError]:
    """Check that status.collisionCount only grows, and is never unset."""
    now, before = status.get("collisionCount"), old.get("collisionCount")
    if before is not None and (now is None or now < before):
        return [field.invalid("status.collisionCount", now or 0, "cannot be decremented")]
    return []


def name_warning(name: str) -> list[str]:
    """Return a warning for a name that is not a DNS label, which gives pods odd hostnames."""
    messages = names.is_dns1123_label(name)
    if not messages:
        return []
    text = "this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is recommended"
    return [f"metadata.name: {text}: [{' '.join(messages)}]"]
