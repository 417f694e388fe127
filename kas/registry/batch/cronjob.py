"""CronJobs (upstream ``pkg/registry/batch/cronjob/strategy.go``, ``pkg/apis/batch/validation``)."""

from __future__ import annotations

import re
from typing import Any

from kas.api import cron, field
from kas.api.field import FieldError
from kas.api.gostruct import in_order
from kas.api.jobwarnings import job_warnings
from kas.api.validation import jobs, names
from kas.api.validation.checks import unsupported
from kas.api.validation.coremeta import object_meta, object_meta_update
from kas.api.validation.podoptions import DEFAULT, Options, options_for_template
from kas.api.validation.workloads import counts
from kas.registry.strategy import Context, Obj, strategy_for
from kas.registry.workload import Workload

# The controller appends eleven characters to make the names of jobs.
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
    """``validateTimeZone``: named by the rules of the time zone database, and in it."""
    if zone is None:
        return []
    if not zone:
        return [field.invalid("spec.timeZone", zone, "timeZone must be nil or non-empty string")]
    for part in zone.split("/"):
        if part in (".", "..") or part.startswith("-") or not _ZONE_PART.fullmatch(part):
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
        errs.append(field.invalid("spec.jobTemplate.spec.selector", in_order(job["selector"]), "`selector` will be auto-generated"))
    if job.get("manualSelector"):
        errs.append(unsupported("spec.jobTemplate.spec.manualSelector", True, ("nil", "false")))
    return errs + counts(spec, "spec", "successfulJobsHistoryLimit", "failedJobsHistoryLimit")


@strategy_for("batch", "cronjobs")
class CronJobStrategy(Workload):
    def pod_template(self, obj: Obj) -> Obj | None:
        return (((obj.get("spec") or {}).get("jobTemplate") or {}).get("spec") or {}).get("template")

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        name = obj["metadata"].get("name") or ""
        errs = object_meta(obj["metadata"], True, names.dns_subdomain)
        errs += _spec(obj.get("spec") or {}, None, DEFAULT)
        if len(name) > MAX_NAME:
            errs.append(field.invalid("metadata.name", name, f"must be no more than {MAX_NAME} characters"))
        return errs

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        options = options_for_template(self.pod_template(old))
        errs = object_meta_update(obj["metadata"], old["metadata"])
        return errs + _spec(obj.get("spec") or {}, old.get("spec") or {}, options)

    def warnings(self, obj: Obj) -> list[str]:
        job = ((obj.get("spec") or {}).get("jobTemplate") or {}).get("spec") or {}
        return job_warnings(job, "spec.jobTemplate.spec")

    def warnings_on_update(self, ctx: Context, obj: Obj, old: Obj) -> list[str]:
        out = super().warnings_on_update(ctx, obj, old)
        if "TZ" in ((obj.get("spec") or {}).get("schedule") or ""):
            page = "https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/"
            out.append(f"cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see {page} for more details")
        return out
