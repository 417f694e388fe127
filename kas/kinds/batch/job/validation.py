"""Job specs, in Jobs and in CronJobs (``pkg/apis/batch/validation``)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from kas import checks
from kas.kinds.core.pod.options import Options
from kas.kinds.core.pod.spec import template
from kas.kinds.core.workload.validation import COUNT, NO_MATCH, counts, template_labels
from kas.meta import field, names
from kas.meta.checks import unsupported
from kas.meta.equality import semantic_equal
from kas.meta.field import FieldError
from kas.meta.labelselectors import converted, label_selector
from kas.meta.records import NamedTuple
from kas.meta.scalars import decimal
from kas.types.checktables import ANY, ENUM, Checked
from kas.types.gostruct import render, sorted_map
from kas.types.scheme import builtin_field, builtin_type

Spec = Mapping[str, Any]
MAX_PARALLELISM = MAX_FAILED_INDEXES = COMPLETIONS_SOFT_LIMIT = 100_000
HIGH_COMPLETIONS_LIMIT = 10_000
MAX_RULES = MAX_PATTERNS = 20
MAX_EXIT_CODES = 255
MAX_INDEXES_LENGTH = 64 * 1024
ACTIONS = ("Count", "FailIndex", "FailJob", "Ignore")
IMMUTABLE = "field is immutable"
NEEDS_INDEXED = "requires indexed completion mode"
UID_LABELS = ("controller-uid", "batch.kubernetes.io/controller-uid")
NAME_LABELS = ("job-name", "batch.kubernetes.io/job-name")


def _valid_values(values: tuple[str, ...]) -> str:
    return "valid values: [" + " ".join(field.go_quote(v) for v in values) + "]"


# -- policies ----------------------------------------------------------------------------------------------------------


def _exit_codes(rule: Spec, containers: set[str], path: str) -> list[FieldError]:
    operator, name, values = rule.get("operator") or "", rule.get("containerName"), rule.get("values") or []
    errs: list[FieldError] = []
    if not operator:
        errs.append(field.required(f"{path}.operator", _valid_values(("In", "NotIn"))))
    elif operator not in ("In", "NotIn"):
        errs.append(unsupported(f"{path}.operator", operator, ("In", "NotIn")))
    if name is not None and name not in containers:
        message = "must be one of the container or initContainer names in the pod template"
        errs.append(field.invalid(f"{path}.containerName", name, message))
    if not values:
        errs.append(field.invalid(f"{path}.values", rule.get("values"), "at least one value is required"))
    elif len(values) > MAX_EXIT_CODES:
        errs.append(field.too_many(f"{path}.values", len(values), MAX_EXIT_CODES))
    seen: set[int] = set()
    for i, code in enumerate(values):
        if operator == "In" and code == 0:
            errs.append(field.invalid(f"{path}.values[{i}]", code, "must not be 0 for the In operator"))
        if code in seen:
            errs.append(field.duplicate(f"{path}.values[{i}]", code))
        seen.add(code)
    if any(a > b for a, b in pairwise(values)):
        errs.append(field.invalid(f"{path}.values", values, "must be ordered"))
    return errs


def _pod_conditions(patterns: list[dict[str, Any]], path: str) -> list[FieldError]:
    errs: list[FieldError] = []
    if len(patterns) > MAX_PATTERNS:
        errs.append(field.too_many(path, len(patterns), MAX_PATTERNS))
    valid = ("False", "True", "Unknown")
    for i, pattern in enumerate(patterns):
        kind, status, at = pattern.get("type") or "", pattern.get("status") or "", f"{path}[{i}].status"
        errs += [field.invalid(f"{path}[{i}].type", kind, m) for m in names.is_qualified_name(kind)]
        if status not in valid:
            errs.append(unsupported(at, status, valid) if status else field.required(at, _valid_values(valid)))
    return errs


def _failure_policy(spec: Spec, path: str) -> list[FieldError]:
    rules = spec["podFailurePolicy"].get("rules") or []
    pod = (spec.get("template") or {}).get("spec") or {}
    containers = {c.get("name") or "" for kind in ("containers", "initContainers") for c in pod.get(kind) or ()}
    errs: list[FieldError] = []
    if len(rules) > MAX_RULES:
        errs.append(field.too_many(f"{path}.rules", len(rules), MAX_RULES))
    for i, rule in enumerate(rules):
        at, action = f"{path}.rules[{i}]", rule.get("action") or ""
        codes, conditions = rule.get("onExitCodes"), rule.get("onPodConditions") or []
        if not action:
            errs.append(field.required(f"{at}.action", _valid_values(ACTIONS)))
        elif action == "FailIndex":
            if spec.get("backoffLimitPerIndex") is None:
                errs.append(field.invalid(f"{at}.action", action, "requires the backoffLimitPerIndex to be set"))
        elif action not in ACTIONS:
            errs.append(unsupported(f"{at}.action", action, ACTIONS))
        if codes is not None:
            errs += _exit_codes(codes, containers, f"{at}.onExitCodes")
        if conditions:
            errs += _pod_conditions(conditions, f"{at}.onPodConditions")
        if codes is not None and conditions:
            message = "specifying both OnExitCodes and OnPodConditions is not supported"
            errs.append(field.invalid(at, field.OMIT_VALUE, message))
        if codes is None and not conditions:
            message = "specifying one of OnExitCodes and OnPodConditions is required"
            errs.append(field.invalid(at, field.OMIT_VALUE, message))
    return errs


class _IndexesError(ValueError):
    """A list of completed indexes is malformed."""


def _index(text: str, completions: int) -> int:
    number = decimal(text) if re.fullmatch(r"[+-]?[0-9]+", text, re.ASCII) else 1 << 63
    if not -(1 << 63) <= number < 1 << 63:
        raise _IndexesError(f"cannot convert string to integer for index: {field.go_quote(text)}")
    if number >= completions:
        raise _IndexesError(f"too large index: {field.go_quote(text)}")
    return number


def _interval(part: str, completions: int) -> tuple[int, int]:
    bounds = part.split("-")
    if len(bounds) > 2:
        rule = "violates the requirement that an index interval can have at most two parts separated by '-'"
        raise _IndexesError(f"the fragment {field.go_quote(part)} {rule}")
    low = _index(bounds[0], completions)
    if len(bounds) == 1:
        return low, low
    high = _index(bounds[1], completions)
    if low >= high:
        raise _IndexesError(f"non-increasing order, previous: {low}, current: {high}")
    return low, high


def index_interval(part: str, completions: int) -> tuple[int, int] | None:
    """Return the first and last index of ``3`` or ``3-5``; None for an invalid interval."""
    try:
        return _interval(part, completions)
    except _IndexesError:
        return None


def count_indexes(text: str, completions: int) -> int:
    """Return the number of indexes in ``1,3-5``; they must increase. Raises ValueError with upstream's message."""
    total, last = 0, None
    for part in text.split(",") if text else ():
        low, high = _interval(part, completions)
        if last is not None and last >= low:
            raise _IndexesError(f"non-increasing order, previous: {last}, current: {low}")
        total, last = total + high - low + 1, high
    return total


def _success_policy(spec: Spec, path: str) -> list[FieldError]:
    rules, completions = spec["successPolicy"].get("rules") or [], spec.get("completions") or 0
    errs: list[FieldError] = []
    if not rules:
        message = "at least one rules must be specified when the successPolicy is specified"
        errs.append(field.required(f"{path}.rules", message))
    if len(rules) > MAX_RULES:
        errs.append(field.too_many(f"{path}.rules", len(rules), MAX_RULES))
    for i, rule in enumerate(rules):
        at, count, indexes = f"{path}.rules[{i}]", rule.get("succeededCount"), rule.get("succeededIndexes")
        total = 0
        if count is None and indexes is None:
            errs.append(field.required(at, "at least one of succeededCount or succeededIndexes must be specified"))
        if indexes is not None:
            if len(indexes) > MAX_INDEXES_LENGTH:
                errs.append(field.too_long(f"{at}.succeededIndexes", MAX_INDEXES_LENGTH))
            try:
                total = count_indexes(indexes, completions)
            except _IndexesError as err:
                errs.append(field.invalid(f"{at}.succeededIndexes", indexes, f"error parsing succeededIndexes: {err}"))
        if count is not None:
            errs += counts(rule, at, "succeededCount")
            if count > completions:
                message = f"must be less than or equal to {completions} (the number of specified completions)"
                errs.append(field.invalid(f"{at}.succeededCount", count, message))
            if indexes is not None and count > total:
                message = f"must be less than or equal to {total} (the number of indexes in the specified succeededIndexes field)"
                errs.append(field.invalid(f"{at}.succeededCount", count, message))
    return errs


# -- spec --------------------------------------------------------------------------------------------------------------


def _indexed(spec: Spec, path: str) -> list[FieldError]:
    completions, parallelism, failed = spec.get("completions"), spec.get("parallelism"), spec.get("maxFailedIndexes")
    errs: list[FieldError] = []
    if completions is None:
        errs.append(field.required(f"{path}.completions", "when completion mode is Indexed"))
    if parallelism is not None and parallelism > MAX_PARALLELISM:
        message = f"must be less than or equal to {MAX_PARALLELISM} when completion mode is Indexed"
        errs.append(field.invalid(f"{path}.parallelism", parallelism, message))
    if completions is not None and failed is not None and failed > completions:
        errs.append(field.invalid(f"{path}.maxFailedIndexes", failed, "must be less than or equal to completions"))
    if failed is not None and failed > MAX_FAILED_INDEXES:
        errs.append(field.invalid(f"{path}.maxFailedIndexes", failed, f"must be less than or equal to {MAX_FAILED_INDEXES}"))
    if completions is not None and completions > COMPLETIONS_SOFT_LIMIT and spec.get("backoffLimitPerIndex") is not None:
        above = f"completions are above {COMPLETIONS_SOFT_LIMIT} and used with backoff limit per index"
        message = f"must be less than or equal to {HIGH_COMPLETIONS_LIMIT} when {above}"
        if failed is None:
            need = f"must be specified when completions is above {COMPLETIONS_SOFT_LIMIT}"
            errs.append(field.required(f"{path}.maxFailedIndexes", need))
        if parallelism is not None and parallelism > HIGH_COMPLETIONS_LIMIT:
            errs.append(field.invalid(f"{path}.parallelism", parallelism, message))
        if failed is not None and failed > HIGH_COMPLETIONS_LIMIT:
            errs.append(field.invalid(f"{path}.maxFailedIndexes", failed, message))
    return errs


CHECK = Checked(
    "batch.v1.JobSpec",
    {
        "parallelism": COUNT, "completions": COUNT, "activeDeadlineSeconds": COUNT, "backoffLimit": COUNT, "ttlSecondsAfterFinished": COUNT,
        "completionMode": checks.option("NonIndexed"), "suspend": ANY, "podReplacementPolicy": ENUM, "manualSelector": ANY, "selector": ANY,
        "template": ANY,
    },
)  # fmt: skip


def job_spec(spec: Spec, path: str, options: Options) -> list[FieldError]:
    """``validateJobSpec``: everything except the selector."""
    errs = [] if CHECK.passes(spec) else _how_it_runs(spec, path)
    errs += template(spec.get("template") or {}, f"{path}.template", options)
    restart, at = ((spec.get("template") or {}).get("spec") or {}).get("restartPolicy") or "", f"{path}.template.spec.restartPolicy"
    if restart in ("", "Always"):
        # Always is the default's value, so it means that none was chosen.
        errs.append(field.required(at, 'valid values: "OnFailure", "Never"'))
    elif restart not in ("OnFailure", "Never"):
        errs.append(unsupported(at, restart, ("OnFailure", "Never")))
    elif spec.get("podFailurePolicy") is not None and restart != "Never":
        errs.append(field.invalid(at, restart, 'only "Never" is supported when podFailurePolicy is specified'))
    return errs


def _how_it_runs(spec: Spec, path: str) -> list[FieldError]:
    """Validate everything except the selector and the template."""
    get = spec.get
    errs = counts(
        spec, path, "parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished",
        "backoffLimitPerIndex", "maxFailedIndexes",
    )  # fmt: skip
    if get("maxFailedIndexes") is not None and get("backoffLimitPerIndex") is None:
        errs.append(field.required(f"{path}.backoffLimitPerIndex", "when maxFailedIndexes is specified"))
    manager, mode = get("managedBy"), get("completionMode")
    if manager is not None:
        errs += names.domain_prefixed_path(f"{path}.managedBy", manager)
        if len(manager.encode()) > 63:
            errs.append(field.too_long(f"{path}.managedBy", 63))
    if mode is not None and mode not in ("NonIndexed", "Indexed"):
        errs.append(unsupported(f"{path}.completionMode", mode, ("NonIndexed", "Indexed")))
    if mode == "Indexed":
        errs += _indexed(spec, path)
    if mode in (None, "NonIndexed"):
        for key in ("backoffLimitPerIndex", "maxFailedIndexes"):
            if get(key) is not None:
                errs.append(field.invalid(f"{path}.{key}", get(key), NEEDS_INDEXED))
    policy, success, replacement = get("podFailurePolicy"), get("successPolicy"), get("podReplacementPolicy")
    if policy is not None:
        errs += _failure_policy(spec, f"{path}.podFailurePolicy")
    if success is not None:
        if mode != "Indexed":
            errs.append(field.invalid(f"{path}.successPolicy", render("batch.SuccessPolicy", success), NEEDS_INDEXED))
        else:
            errs += _success_policy(spec, f"{path}.successPolicy")
    if replacement is not None:
        valid = ("Failed",) if policy is not None else ("Failed", "TerminatingOrFailed")
        if replacement not in valid:
            errs.append(unsupported(f"{path}.podReplacementPolicy", replacement, valid))
    return errs


def job_spec_with_selector(spec: Spec, options: Options) -> list[FieldError]:
    """``ValidateJobSpec``: the spec, and a selector that selects the labels of the pod template."""
    errs = job_spec(spec, "spec", options)
    chosen = spec.get("selector")
    if chosen is None:
        errs.append(field.required("spec.selector"))
    else:
        errs += label_selector(chosen, "spec.selector", options.affinity_values)
    selects = converted(chosen)
    if selects is not None and not selects.matches(template_labels(spec)):
        errs.append(field.invalid("spec.template.metadata.labels", sorted_map(template_labels(spec)), NO_MATCH))
    return errs


def generated_selector(job: Spec, prefixed: bool) -> list[FieldError]:
    """Check that selector and labels were generated from the job's uid and name, unless the client chose them."""
    meta, spec = job["metadata"], job.get("spec") or {}
    if spec.get("manualSelector") or spec.get("selector") is None:
        return []
    uid, name = meta.get("uid") or "", meta.get("name") or ""
    errs: list[FieldError] = []
    if not uid:
        errs.append(field.required("metadata.uid"))
    labels, expected = template_labels(spec), {}
    for i in (0, 1) if prefixed else (0,):
        for key, value in ((UID_LABELS[i], uid), (NAME_LABELS[i], name)):
            expected[key] = value
            errs += _has_label(labels, key, value)
    selects = converted(spec["selector"])
    if selects is not None and not selects.matches(expected):
        errs.append(field.invalid("spec.selector", render("meta.LabelSelector", spec["selector"]), "`selector` not auto-generated"))
    return errs


def _has_label(labels: Mapping[str, str] | None, key: str, value: str) -> list[FieldError]:
    at, message = f"spec.template.metadata.labels[{key}]", f"must be '{value}'"
    if labels is None or key not in labels:
        return [field.required(at, message)]
    return [] if labels[key] == value else [field.invalid(at, sorted_map(labels), message)]


def indexed_host_names(job: Spec) -> list[FieldError]:
    """Check that the hostname of an indexed job's last pod is a DNS label."""
    spec, name = job.get("spec") or {}, job["metadata"].get("name") or ""
    completions = spec.get("completions") or 0
    if spec.get("completionMode") != "Indexed" or completions <= 0:
        return []
    last = f"{name}-{completions - 1}"
    if not names.is_dns1123_label(last):
        return []
    return [field.invalid("metadata.name", name, f"will not able to create pod with invalid DNS label: {last}")]


# -- updates -----------------------------------------------------------------------------------------------------------


def _frozen(spec: Spec, old: Spec, key: str, shown_type: str = "") -> list[FieldError]:
    now, before = spec.get(key), old.get(key)
    if semantic_equal(now, before, builtin_field("batch.v1.JobSpec", key)):
        return []
    shown = render(shown_type, now) if shown_type and now is not None else now
    return [field.invalid(f"spec.{key}", shown, IMMUTABLE)]


def _completions(spec: Spec, old: Spec) -> list[FieldError]:
    """Check that an indexed job's completions only change together with its parallelism."""
    now, before = spec.get("completions"), old.get("completions")
    if now == before:
        return []
    if spec.get("completionMode") != "Indexed":
        return [field.invalid("spec.completions", now, IMMUTABLE)]
    if now is not None and now != spec.get("parallelism"):
        return [field.invalid("spec.completions", now, "can only be modified in tandem with spec.parallelism")]
    return []


class Movable(NamedTuple):
    """The changeable parts of a template: the scheduling fields of its pods, and the resources of its containers."""

    scheduling: bool = False
    resources: bool = False


def _template(spec: Spec, old: Spec, may: Movable) -> list[FieldError]:
    """Check that the template does not change, except for what ``may`` allows; if resources may, only the pod spec is compared."""
    now, before = spec.get("template") or {}, old.get("template") or {}
    if may.scheduling:
        before = _with_scheduling_of(before, now)
    if not may.resources:
        if semantic_equal(now, before, builtin_type("core.v1.PodTemplateSpec")):
            return []
        return [field.invalid("spec.template", render("core.PodTemplateSpec", now), IMMUTABLE)]
    pod, was = now.get("spec") or {}, dict(before.get("spec") or {})
    for kind in ("containers", "initContainers"):
        new, kept = pod.get(kind) or (), was.get(kind) or ()
        if len(new) == len(kept):
            was[kind] = [_with_resources_of(a, b) if a.get("name") == b.get("name") else a for a, b in zip(kept, new, strict=True)]
    if semantic_equal(pod, was, builtin_type("core.v1.PodSpec")):
        return []
    return [field.invalid("spec.template.spec", render("core.PodSpec", pod), IMMUTABLE)]


def _with_scheduling_of(before: Spec, now: Spec) -> dict[str, Any]:
    """Return a copy of the old template with the scheduling fields of the new one."""
    meta, spec = dict(before.get("metadata") or {}), dict(before.get("spec") or {})
    new_meta, new_spec = now.get("metadata") or {}, now.get("spec") or {}
    for target, source, keys in (
        (meta, new_meta, ("annotations", "labels")),
        (spec, new_spec, ("nodeSelector", "tolerations", "schedulingGates")),
    ):
        for key in keys:
            if key in source:
                target[key] = source[key]
            else:
                target.pop(key, None)
    affinity = dict(spec.get("affinity") or {})
    chosen = (new_spec.get("affinity") or {}).get("nodeAffinity")
    if chosen is None:
        affinity.pop("nodeAffinity", None)
    else:
        affinity["nodeAffinity"] = chosen
    if affinity or new_spec.get("affinity") is not None:
        spec["affinity"] = affinity
    else:
        spec.pop("affinity", None)
    return {**before, "metadata": meta, "spec": spec}


def _with_resources_of(container: Spec, now: Spec) -> dict[str, Any]:
    return {**container, "resources": now.get("resources") or {}}


def job_spec_update(spec: Spec, old: Spec, options: Options, may: Movable) -> list[FieldError]:
    """``ValidateJobSpecUpdate``: the spec and its immutable fields; ``may`` says what of the template may change."""
    errs = job_spec_with_selector(spec, options)
    errs += _completions(spec, old)
    errs += _frozen(spec, old, "selector", "meta.LabelSelector")
    errs += _template(spec, old, may)
    errs += _frozen(spec, old, "completionMode")
    errs += _frozen(spec, old, "podFailurePolicy", "batch.PodFailurePolicy")
    errs += _frozen(spec, old, "backoffLimitPerIndex")
    errs += _frozen(spec, old, "managedBy")
    return errs + _frozen(spec, old, "successPolicy", "batch.SuccessPolicy")
