"""Computed defaults of batch/v1 (``pkg/apis/batch/v1/defaults.go``)."""

from __future__ import annotations

from typing import Any

from kas.api.defaults import defaults_for
from kas.api.defaults.early import early_defaults_for
from kas.api.defaults.podspec import pod_template

Obj = dict[str, Any]
MAX_INT32 = 2147483647


def _early_job_spec(spec: Obj) -> None:
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = spec["parallelism"] = 1
    if spec.get("backoffLimit") is None and spec.get("backoffLimitPerIndex") is not None:
        spec["backoffLimit"] = MAX_INT32
    # Pods of a failure policy are not replaced while they still terminate.
    if spec.get("podReplacementPolicy") is None:
        spec["podReplacementPolicy"] = "Failed" if spec.get("podFailurePolicy") is not None else "TerminatingOrFailed"


@early_defaults_for("batch", "v1", "Job")
def early_job(obj: Obj) -> None:
    spec = obj.get("spec")
    if spec is None:
        spec = obj["spec"] = {}
    _early_job_spec(spec)


@defaults_for("batch", "v1", "Job")
def default_job(obj: Obj) -> None:
    template = obj["spec"].setdefault("template", {})
    pod_template(template)
    labels = (template.get("metadata") or {}).get("labels")
    meta = obj.setdefault("metadata", {})
    if labels is not None and not meta.get("labels"):
        # One map, not a copy: the labels a new job's template is given become the job's own too.
        meta["labels"] = labels


# The defaults of a Job are not those of the job in a CronJob's template, which gets them when a job is made of it.
_JOB_CONSTANTS = (
    "parallelism", "backoffLimit", "manualSelector", "completionMode", "suspend", "podReplacementPolicy",
)  # fmt: skip
_ABSENT = "kas:absent"


@early_defaults_for("batch", "v1", "CronJob")
def early_cron_job(obj: Obj) -> None:
    """Note for ``default_cron_job`` what the constants are about to fill."""
    job = ((obj.get("spec") or {}).get("jobTemplate") or {}).get("spec") or {}
    obj[_ABSENT] = [key for key in _JOB_CONSTANTS if job.get(key) is None]


@defaults_for("batch", "v1", "CronJob")
def default_cron_job(obj: Obj) -> None:
    spec = obj.setdefault("spec", {})
    job = spec.setdefault("jobTemplate", {})
    job_spec = job.get("spec")
    if job_spec is None:
        job_spec = job["spec"] = {}
    for key in obj.pop(_ABSENT, ()):
        job_spec.pop(key, None)
    pod_template(job_spec.setdefault("template", {}))
