"""Validation of Job status updates: contradictions with itself, the spec or the previous status (``pkg/apis/batch/validation``,
``getStatusValidationOptions``).

Most rules only apply if their subject has changed: a status that a change of the spec made invalid can still be written until the
controller has corrected it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kas.kinds.batch.job.validation import count_indexes, index_interval
from kas.kinds.core.workload.validation import counts
from kas.meta import field
from kas.meta.equality import semantic_equal
from kas.meta.field import FieldError
from kas.types.gostruct import render
from kas.types.scheme import builtin_field

Spec = Mapping[str, Any]
COMPLETE, FAILED, FAILURE_TARGET, CRITERIA_MET = "Complete", "Failed", "FailureTarget", "SuccessCriteriaMet"


def condition_is(status: Spec, kind: str, value: str = "True") -> bool:
    """Whether some condition of this type has this status."""
    return any(c.get("type") == kind and c.get("status") == value for c in status.get("conditions") or ())


def _conditions(message: str) -> FieldError:
    return field.invalid("status.conditions", field.OMIT_VALUE, message)


def _finished(status: Spec) -> bool:
    return condition_is(status, COMPLETE) or condition_is(status, FAILED)


def _uncounted(status: Spec) -> list[FieldError]:
    """Check that the uids of pods whose end is not counted yet are neither empty nor repeated."""
    errs: list[FieldError] = []
    seen: set[str] = set()
    for key in ("succeeded", "failed"):
        for i, uid in enumerate((status.get("uncountedTerminatedPods") or {}).get(key) or ()):
            at = f"status.uncountedTerminatedPods.{key}[{i}]"
            if not uid:
                errs.append(field.invalid(at, uid, "must not be empty"))
            elif uid in seen:
                errs.append(field.duplicate(at, uid))
            seen.add(uid)
    return errs


class _Change:
    """A status and the previous one; ``any`` tells whether fields or the truth of conditions differ."""

    def __init__(self, job: Spec, old: Spec) -> None:
        self.spec: Spec = job.get("spec") or {}
        self.now: Spec = job.get("status") or {}
        self.before: Spec = old.get("status") or {}

    def any(self, *keys: str) -> bool:
        return any((self.now.get(k) or 0) != (self.before.get(k) or 0) for k in keys)

    def conditions(self, *kinds: str) -> bool:
        return any(condition_is(self.now, k) != condition_is(self.before, k) for k in kinds)

    @property
    def finished(self) -> bool:
        return _finished(self.now) != _finished(self.before)


def _completion(change: _Change) -> list[FieldError]:
    now, errs = change.now, []
    complete, failed = condition_is(now, COMPLETE), condition_is(now, FAILED)
    start, end = now.get("startTime"), now.get("completionTime")
    if change.conditions(COMPLETE, FAILED) and complete and failed:
        errs.append(_conditions("cannot set Complete=True and Failed=true conditions"))
    if change.conditions(COMPLETE, FAILURE_TARGET) and complete and condition_is(now, FAILURE_TARGET):
        errs.append(_conditions("cannot set Complete=True and FailureTarget=true conditions"))
    if change.conditions(COMPLETE) or change.any("completionTime"):
        if end and not complete:
            message = "cannot set completionTime when there is no Complete=True condition"
            errs.append(field.invalid("status.completionTime", end, message))
        if complete and not end:
            errs.append(field.required("status.completionTime", "completionTime is required for Complete jobs"))
    if change.any("startTime", "completionTime") and start and end and end < start:
        errs.append(field.invalid("status.completionTime", end, "must be equal to or after `startTime`"))
    if (change.conditions(FAILED) or _indexes_differ(change, "failedIndexes")) and failed and not condition_is(now, FAILURE_TARGET):
        errs.append(_conditions("cannot set Failed=True condition without the FailureTarget=true condition"))
    if change.conditions(COMPLETE, CRITERIA_MET) and complete and not condition_is(now, CRITERIA_MET):
        errs.append(_conditions("cannot set Complete=True condition without the SuccessCriteriaMet=true condition"))
    return errs


def _end(change: _Change) -> list[FieldError]:
    """Check that a finished job has no active pods and did start."""
    now, spec, errs = change.now, change.spec, []
    if not _finished(now):
        return []
    if (change.finished or change.any("active")) and (now.get("active") or 0) > 0:
        errs.append(field.invalid("status.active", now["active"], "active>0 is invalid for finished job"))
    nothing_to_do = bool(spec.get("suspend")) and spec.get("completions") == 0
    if (change.finished or change.any("startTime")) and not nothing_to_do and not now.get("startTime"):
        errs.append(field.required("status.startTime", "startTime is required for finished job"))
    pods = now.get("uncountedTerminatedPods")
    of = builtin_field("batch.v1.JobStatus", "uncountedTerminatedPods")
    if change.finished or not semantic_equal(pods, change.before.get("uncountedTerminatedPods"), of):
        if pods and (pods.get("succeeded") or pods.get("failed")):
            shown = render("batch.UncountedTerminatedPods", pods)
            errs.append(field.invalid("status.uncountedTerminatedPods", shown, "must be empty for finished job"))
    return errs


def _indexes_differ(change: _Change, key: str) -> bool:
    now, before = change.now.get(key), change.before.get(key)
    return (now or "") != (before or "") if key == "completedIndexes" else now != before


def _overlap(completed: str, failed: str, completions: int) -> str:
    """Return the first index in both lists; invalid intervals are reported elsewhere."""
    lists = []
    for text in (completed, failed):
        lists.append([b for b in (index_interval(part, completions) for part in text.split(",")) if b is not None])
    done, lost = lists
    i = j = 0
    while i < len(done) and j < len(lost):
        if done[i][0] <= lost[j][1] and lost[j][0] <= done[i][1]:
            return f"failedIndexes and completedIndexes overlap at index: {max(done[i][0], lost[j][0])}"
        if done[i][0] <= lost[j][0]:
            i += 1
        else:
            j += 1
    return ""


def _indexes(change: _Change) -> list[FieldError]:
    now, spec = change.now, change.spec
    done, lost = now.get("completedIndexes") or "", now.get("failedIndexes")
    new_done, new_lost = _indexes_differ(change, "completedIndexes"), _indexes_differ(change, "failedIndexes")
    completions, per_index = spec.get("completions"), spec.get("backoffLimitPerIndex")
    errs: list[FieldError] = []
    for key, text, look in (
        ("completedIndexes", done, new_done), ("failedIndexes", lost, new_lost and per_index is not None and lost is not None),
    ):  # fmt: skip
        if look and completions is not None:
            try:
                count_indexes(text or "", completions)
            except ValueError as err:
                errs.append(field.invalid(f"status.{key}", text, f"error parsing {key}: {err}"))
    if new_done and done and spec.get("completionMode") != "Indexed":
        message = "cannot set non-empty completedIndexes when non-indexed completion mode"
        errs.append(field.invalid("status.completedIndexes", done, message))
    if new_lost and lost is not None and per_index is None:
        message = "cannot set non-null failedIndexes when backoffLimitPerIndex is null"
        errs.append(field.invalid("status.failedIndexes", lost, message))
    if (new_lost or new_done) and completions is not None and lost:
        message = _overlap(done, lost, completions)
        if message:
            errs.append(field.invalid("status.failedIndexes", lost, message))
    return errs


def _pods(change: _Change) -> list[FieldError]:
    now, errs = change.now, []
    terminating, ready, active = now.get("terminating") or 0, now.get("ready"), now.get("active") or 0
    if (change.finished or now.get("terminating") != change.before.get("terminating")) and terminating > 0 and _finished(now):
        errs.append(field.invalid("status.terminating", terminating, "terminating>0 is invalid for finished job"))
    if (now.get("ready") != change.before.get("ready") or change.any("active")) and ready is not None and ready > active:
        errs.append(field.invalid("status.ready", ready, "cannot set more ready pods than active"))
    met = condition_is(now, CRITERIA_MET)
    if met and condition_is(now, FAILED):
        errs.append(_conditions("cannot set SuccessCriteriaMet=True and Failed=true conditions"))
    if met and condition_is(now, FAILURE_TARGET):
        errs.append(_conditions("cannot set SuccessCriteriaMet=True and FailureTarget=true conditions"))
    if change.spec.get("successPolicy") is not None and not met and condition_is(now, COMPLETE):
        errs.append(_conditions("cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True"))
    return errs


def _history(change: _Change) -> list[FieldError]:
    """Check what must never be reverted: ends, counters, times, the criteria once met."""
    now, before, spec, errs = change.now, change.before, change.spec, []
    for kind in (FAILED, COMPLETE, FAILURE_TARGET):
        if condition_is(before, kind) and not condition_is(now, kind):
            errs.append(_conditions(f"cannot disable the terminal {kind}=True condition"))
    # An indexed job whose completions equal its parallelism can be scaled down.
    scales = spec.get("completionMode") == "Indexed" and spec.get("completions") == spec.get("parallelism")
    for key, kept in (("failed", True), ("succeeded", not scales)):
        if kept and (now.get(key) or 0) < (before.get(key) or 0):
            errs.append(field.invalid(f"status.{key}", now.get(key) or 0, f"cannot decrease the {key} counter"))
    end, was = now.get("completionTime"), before.get("completionTime")
    if end and was and end != was:
        errs.append(field.invalid("status.completionTime", end, "field is immutable"))
    resumes = condition_is(before, "Suspended") and condition_is(now, "Suspended", "False")
    if before.get("startTime") and change.any("startTime") and not resumes and not spec.get("suspend"):
        message = "field is immutable for unsuspended job once set"
        errs.append(field.invalid("status.startTime", now.get("startTime"), message))
    met = condition_is(now, CRITERIA_MET)
    if condition_is(before, CRITERIA_MET) and not met:
        errs.append(_conditions("cannot disable the SuccessCriteriaMet=True condition"))
    if condition_is(before, COMPLETE) and not condition_is(before, CRITERIA_MET) and met:
        errs.append(_conditions("cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions"))
    return errs


def status_update(job: Spec, old: Spec) -> list[FieldError]:
    """``ValidateJobStatusUpdate`` with the options of upstream's status strategy."""
    change = _Change(job, old)
    errs = counts(change.now, "status", "active", "succeeded", "failed", "ready", "terminating")
    errs += _uncounted(change.now) + _completion(change) + _end(change) + _indexes(change) + _pods(change)
    return errs + _history(change)
