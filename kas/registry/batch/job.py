"""Jobs (upstream ``pkg/registry/batch/job/strategy.go``, ``pkg/apis/batch/validation``)."""

from __future__ import annotations

from typing import Any

from kas.api import field
from kas.api.field import FieldError
from kas.api.podwarnings import template_warnings
from kas.api.validation import jobs, names
from kas.api.validation.coremeta import object_meta, object_meta_update
from kas.api.validation.jobs import NAME_LABELS, UID_LABELS
from kas.api.validation.podoptions import DEFAULT, Options, options_for_template
from kas.api.validation.workloads import counts
from kas.registry.strategy import Context, Obj, strategy_for
from kas.registry.workload import Workload

MANY_INDEXES = (
    "In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, Kubernetes might not be "
    "able to track completedIndexes when a big number of indexes fail"
)
ORPHANS = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set "
    "propagationPolicy=Orphan to suppress this warning"
)


def generate_selector(job: Obj) -> None:
    """Labels of the job's uid and name on its pods, and a selector for the uid; what the user set stays and is checked."""
    meta, spec = job["metadata"], job.setdefault("spec", {})
    if spec.get("manualSelector"):
        return
    template_meta = spec.setdefault("template", {}).setdefault("metadata", {})
    labels = template_meta["labels"] = dict(template_meta.get("labels") or {})
    for keys, value in ((NAME_LABELS, meta.get("name") or ""), (UID_LABELS, meta.get("uid") or "")):
        for key in keys:
            labels.setdefault(key, value)
    selector = spec["selector"] = dict(spec.get("selector") or {})
    selector["matchLabels"] = {UID_LABELS[1]: meta.get("uid") or "", **(selector.get("matchLabels") or {})}


def _finished(status: dict[str, Any], kind: str) -> bool:
    return any(c.get("type") == kind and c.get("status") == "True" for c in status.get("conditions") or ())


def _status(job: Obj, old: Obj) -> list[FieldError]:
    """What of a status contradicts itself or the past (``ValidateJobStatus``, ``ValidateJobStatusUpdate``)."""
    status, before, spec = job.get("status") or {}, old.get("status") or {}, job.get("spec") or {}
    errs = counts(status, "status", "active", "succeeded", "failed", "ready", "terminating")
    finished = _finished(status, "Complete") or _finished(status, "Failed")
    if _finished(status, "Complete") and _finished(status, "Failed"):
        message = "cannot set Complete=True and Failed=True conditions"
        errs.append(field.invalid("status.conditions", field.OMIT_VALUE, message))
    if status.get("completionTime") and not _finished(status, "Complete"):
        message = "cannot set completionTime when there is no Complete=True condition"
        errs.append(field.invalid("status.completionTime", status["completionTime"], message))
    if _finished(status, "Complete") and not status.get("completionTime"):
        errs.append(field.required("status.completionTime", "completionTime is required for Complete jobs"))
    if finished and status.get("active"):
        errs.append(field.invalid("status.active", status["active"], "active>0 is invalid for finished job"))
    for kind in ("Complete", "Failed"):
        if _finished(before, kind) and not _finished(status, kind):
            message = f"cannot disable the terminal Job condition of type {kind}"
            errs.append(field.invalid("status.conditions", field.OMIT_VALUE, message))
    started, was = status.get("startTime"), before.get("startTime")
    if was and started and started != was and not spec.get("suspend") and not _finished(before, "Suspended"):
        errs.append(field.required("status.startTime", "startTime cannot be modified for unsuspended job"))
    return errs


@strategy_for("batch", "jobs")
class JobStrategy(Workload):
    def prepare_for_create(self, ctx: Context, obj: Obj) -> None:
        generate_selector(obj)
        super().prepare_for_create(ctx, obj)

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        return self._whole(obj, DEFAULT, True)

    @staticmethod
    def _whole(obj: Obj, options: Options, prefixed: bool) -> list[FieldError]:
        """``prefixed``: labels with the group's prefix are required, which jobs of before 1.27 do not have."""
        errs = object_meta(obj["metadata"], True, names.dns_subdomain)
        errs += jobs.generated_selector(obj, prefixed)
        errs += jobs.job_spec_with_selector(obj.get("spec") or {}, options)
        return errs + jobs.indexed_host_names(obj)

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        spec, before = obj.get("spec") or {}, old.get("spec") or {}
        template = before.get("template") or {}
        options = options_for_template(template)
        prefixed = UID_LABELS[1] in ((template.get("metadata") or {}).get("labels") or {})
        errs = self._whole(obj, options, prefixed) + object_meta_update(obj["metadata"], old["metadata"])
        idle = bool(before.get("suspend")) and not (old.get("status") or {}).get("startTime")
        return errs + jobs.job_spec_update(spec, before, options, idle)

    def validate_status_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        return object_meta_update(obj["metadata"], old["metadata"]) + _status(obj, old)

    def warnings(self, obj: Obj) -> list[str]:
        spec = obj.get("spec") or {}
        out = []
        if spec.get("completionMode") == "Indexed":
            if (spec.get("completions") or 0) > 100_000 and (spec.get("parallelism") or 0) > 10_000:
                out.append(f"spec.parallelism: {MANY_INDEXES}")
        return out + template_warnings(spec.get("template"), "spec.template")

    def warnings_on_delete(self, options: dict[str, Any]) -> list[str]:
        unsaid = options.get("propagationPolicy") is None and options.get("orphanDependents") is None
        return [ORPHANS] if unsaid else []
