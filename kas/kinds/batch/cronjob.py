"""CronJobs (upstream ``pkg/registry/batch/cronjob/strategy.go``, ``pkg/apis/batch/validation``)."""

from __future__ import annotations

import re
from typing import Any

from kas.kinds.batch import cron
from kas.kinds.batch.job import validation as jobs
from kas.kinds.batch.job.warnings import job_warnings
from kas.kinds.core.objectmeta import object_meta, object_meta_update
from kas.kinds.core.pod.defaults import pod_template
from kas.kinds.core.pod.options import DEFAULT, Options, options_for_template
from kas.kinds.core.workload.strategy import Workload
from kas.kinds.core.workload.validation import counts
from kas.meta import field, names
from kas.meta.age import age, since
from kas.meta.checks import unsupported
from kas.meta.field import FieldError
from kas.registry.printing.cells import NONE, UNSET, containers, part, selector
from kas.registry.printing.rows import printer
from kas.registry.strategy import Context, Obj, strategy_for
from kas.types.defaults import defaults_for
from kas.types.early import early_defaults_for
from kas.types.gostruct import render

# The controller appends eleven characters to form the names of jobs.
MAX_NAME = 52
CONCURRENCY = ("Allow", "Forbid", "Replace")


def _schedule(schedule: str, zone: str | None, allow_zone: bool) -> list[FieldError]:
    errs: list[FieldError] = []
    try:
        cron.check(schedule)
    except cron.ScheduleError as err:
        errs.append(field.invalid("spec.schedule", schedule, str(err)))
    if "TZ" in schedule:
        if not allow_zone:
            message = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
            errs.append(field.invalid("spec.schedule", schedule, message))
        elif zone is not None:
            message = "cannot use both timeZone field and TZ or CRON_TZ in schedule"
            errs.append(field.invalid("spec.schedule", schedule, message))
    return errs


_ZONE_PART = re.compile(r"[A-Za-z.\-_0-9+]{1,14}", re.ASCII)


def _zone(zone: str | None) -> list[FieldError]:
    """``validateTimeZone``: a valid name that is in the time zone database."""
    if zone is None:
        return []
    if not zone:
        return [field.invalid("spec.timeZone", zone, "timeZone must be nil or non-empty string")]
    for step in zone.split("/"):
        if step in (".", "..") or step.startswith("-") or not _ZONE_PART.fullmatch(step):
            return [field.invalid("spec.timeZone", zone, f"unknown time zone {zone}")]
    errs: list[FieldError] = []
    if zone.lower() == "local":
        message = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"
        errs.append(field.invalid("spec.timeZone", zone, message))
    message = cron.zone_error(zone)
    if message:
        errs.append(field.invalid("spec.timeZone", zone, message))
    return errs


def _spec(spec: dict[str, Any], old: dict[str, Any] | None, options: Options) -> list[FieldError]:
    schedule, zone = spec.get("schedule") or "", spec.get("timeZone")
    errs: list[FieldError] = []
    if not schedule:
        errs.append(field.required("spec.schedule"))
    else:
        errs += _schedule(schedule, zone, "TZ" in ((old or {}).get("schedule") or ""))
    errs += counts(spec, "spec", "startingDeadlineSeconds")
    if old is None or old.get("timeZone") != zone:
        errs += _zone(zone)
    policy, at = spec.get("concurrencyPolicy") or "", "spec.concurrencyPolicy"
    if policy not in CONCURRENCY:
        errs.append(unsupported(at, policy, CONCURRENCY) if policy else field.required(at))
    job = (spec.get("jobTemplate") or {}).get("spec") or {}
    errs += jobs.job_spec(job, "spec.jobTemplate.spec", options)
    if job.get("selector") is not None:
        shown = render("meta.LabelSelector", job["selector"])
        errs.append(field.invalid("spec.jobTemplate.spec.selector", shown, "`selector` will be auto-generated"))
    if job.get("manualSelector"):
        errs.append(unsupported("spec.jobTemplate.spec.manualSelector", True, ("nil", "false")))
    return errs + counts(spec, "spec", "successfulJobsHistoryLimit", "failedJobsHistoryLimit")


@strategy_for("batch", "cronjobs")
class CronJobStrategy(Workload):
    """A Workload whose pod template stands within one of a Job."""

    def pod_template(self, obj: Obj) -> Obj | None:
        """Return the pod template of the job template; None if there is none."""
        return (((obj.get("spec") or {}).get("jobTemplate") or {}).get("spec") or {}).get("template")

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        """``ValidateCronJobCreate``; the name must be short enough for a job's name, with its suffix, to be a label."""
        name = obj["metadata"].get("name") or ""
        errs = object_meta(obj["metadata"], True, names.dns_subdomain)
        errs += _spec(obj.get("spec") or {}, None, DEFAULT)
        if names.byte_length(name) > MAX_NAME:
            errs.append(field.invalid("metadata.name", name, f"must be no more than {MAX_NAME} characters"))
        return errs

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """``ValidateCronJobUpdate``: errors that the stored schedule and pod template already have are tolerated."""
        options = options_for_template(self.pod_template(old))
        errs = object_meta_update(obj["metadata"], old["metadata"])
        return errs + _spec(obj.get("spec") or {}, old.get("spec") or {}, options)

    def warnings(self, obj: Obj) -> list[str]:
        """Return the warnings of the job template."""
        job = ((obj.get("spec") or {}).get("jobTemplate") or {}).get("spec") or {}
        return job_warnings(job, "spec.jobTemplate.spec")

    def warnings_on_update(self, ctx: Context, obj: Obj, old: Obj) -> list[str]:
        """Return the warnings of a changed job template, and one for a time zone in the schedule."""
        out = super().warnings_on_update(ctx, obj, old)
        if "TZ" in ((obj.get("spec") or {}).get("schedule") or ""):
            page = "https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/"
            out.append(f"cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see {page} for more details")
        return out


# The job in a CronJob's template does not get a Job's defaults; the Job that is made from it does.
_JOB_CONSTANTS = (
    "parallelism", "backoffLimit", "manualSelector", "completionMode", "suspend", "podReplacementPolicy",
)  # fmt: skip
_ABSENT = "kas:absent"


@early_defaults_for("batch", "v1", "CronJob")
def early_cron_job(obj: Obj) -> None:
    """Record for ``default_cron_job`` the fields that the constant defaults are about to fill."""
    job = ((obj.get("spec") or {}).get("jobTemplate") or {}).get("spec") or {}
    obj[_ABSENT] = [key for key in _JOB_CONSTANTS if job.get(key) is None]


@defaults_for("batch", "v1", "CronJob")
def default_cron_job(obj: Obj) -> None:
    """Apply computed defaults of the pod template; remove constant defaults of the job that its early form did not have."""
    spec = obj.setdefault("spec", {})
    job = spec.setdefault("jobTemplate", {})
    job_spec = job.get("spec")
    if job_spec is None:
        job_spec = job["spec"] = {}
    for key in obj.pop(_ABSENT, ()):
        job_spec.pop(key, None)
    pod_template(job_spec.setdefault("template", {}))


@printer("batch", "CronJob")
def cron_job_row(obj: Obj, now: float) -> list[Any]:
    """The cells of a Table row: name, schedule, zone, suspend, active jobs, time since the last run, age, containers, images, selector."""
    spec, status = part(obj, "spec"), part(obj, "status")
    job_spec, last = part(spec, "jobTemplate", "spec"), status.get("lastScheduleTime")
    suspend = spec.get("suspend")
    return [
        obj["metadata"].get("name", ""), spec.get("schedule", ""), spec.get("timeZone", NONE),
        UNSET if suspend is None else str(suspend), len(status.get("active") or ()), since(last, now) if last else NONE,
        age(obj, now), *containers(part(job_spec, "template")), selector(job_spec.get("selector")),
    ]  # fmt: skip
