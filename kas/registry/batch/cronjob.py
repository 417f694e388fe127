"""CronJobs (upstream ``pkg/registry/batch/cronjob/strategy.go``, ``pkg/apis/batch/validation``)."""

from __future__ import annotations

from typing import Any

from kas.api import cron, field
from kas.api.field import FieldError
from kas.api.gostruct import in_order
from kas.api.podwarnings import template_warnings
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


def _zone(zone: str | None) -> list[FieldError]:
    if zone is None:
        return []
    if not zone:
        return [field.invalid("spec.timeZone", zone, "timeZone must be nil or non-empty string")]
    if zone.lower() == "local":
        message = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"
        return [field.invalid("spec.timeZone", zone, message)]
    return [] if cron.known_zone(zone) else [field.invalid("spec.timeZone", zone, f"unknown time zone {zone}")]


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

    def validate_status_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        return object_meta_update(obj["metadata"], old["metadata"])

    def warnings(self, obj: Obj) -> list[str]:
        out = template_warnings(self.pod_template(obj), "spec.jobTemplate.spec.template")
        if "TZ" in ((obj.get("spec") or {}).get("schedule") or ""):
            page = "https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/"
            text = f"CRON_TZ or TZ used in schedule is not officially supported, see {page} for more details"
            out.append(f"spec.schedule: {text}")
        return out
