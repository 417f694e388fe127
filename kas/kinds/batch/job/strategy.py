"""Jobs (upstream ``pkg/registry/batch/job/strategy.go``, ``pkg/apis/batch/validation``)."""

from __future__ import annotations

from typing import Any

from kas.config import features
from kas.kinds.batch.job import validation as jobs
from kas.kinds.batch.job.status import condition_is, status_update
from kas.kinds.batch.job.validation import NAME_LABELS, UID_LABELS, Movable
from kas.kinds.batch.job.warnings import job_warnings
from kas.kinds.core.objectmeta import object_meta, object_meta_update
from kas.kinds.core.pod.defaults import pod_template
from kas.kinds.core.pod.options import DEFAULT, Options, options_for_template
from kas.kinds.core.workload.strategy import Workload
from kas.meta import names
from kas.meta.age import age, human_duration, parse_time
from kas.meta.field import FieldError
from kas.meta.labelselectors import has_invalid_value
from kas.registry.printing.cells import containers, is_true, part, selector
from kas.registry.printing.rows import printer
from kas.registry.strategy import Context, Obj, strategy_for
from kas.types.defaults import defaults_for
from kas.types.early import early_defaults_for

ORPHANS = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set "
    "propagationPolicy=Orphan to suppress this warning"
)


def generate_selector(job: Obj) -> None:
    """Label the pods with the job's uid and name, and select the uid; values set by the client stay and are validated."""
    meta, spec = job["metadata"], job.setdefault("spec", {})
    if spec.get("manualSelector"):
        return
    template_meta = spec.setdefault("template", {}).setdefault("metadata", {})
    given = template_meta.get("labels")
    labels = template_meta["labels"] = dict(given or {})
    for keys, value in ((NAME_LABELS, meta.get("name") or ""), (UID_LABELS, meta.get("uid") or "")):
        for key in keys:
            labels.setdefault(key, value)
    if given is not None and meta.get("labels") is given:
        meta["labels"] = dict(labels)
    selector = spec["selector"] = dict(spec.get("selector") or {})
    selector["matchLabels"] = {UID_LABELS[1]: meta.get("uid") or "", **(selector.get("matchLabels") or {})}


def _movable(job: Obj) -> Movable:
    """Return what of a suspended job's template may change while it has no pods: none was created yet, or all are gone."""
    status = job.get("status") or {}
    suspended, started = bool((job.get("spec") or {}).get("suspend")), bool(status.get("startTime"))
    gone = suspended and condition_is(status, "Suspended") and not status.get("active")
    again = gone and features.DEFAULT.enabled("MutableSchedulingDirectivesForSuspendedJobs")
    # Not having started does not suffice for these: the condition must say that the job is suspended.
    resources = gone and features.DEFAULT.enabled("MutablePodResourcesForSuspendedJobs")
    return Movable((suspended and not started) or again, resources)


@strategy_for("batch", "jobs")
class JobStrategy(Workload):
    """A Workload that makes its own selector; counts and conditions of its status only move forward."""

    def prepare_for_create(self, ctx: Context, obj: Obj) -> None:
        """Generate selector and labels unless manualSelector is set, then drop the status and start the generation."""
        generate_selector(obj)
        super().prepare_for_create(ctx, obj)

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        """``ValidateJob``: name, spec, and labels and selector that fit the job."""
        return self._whole(obj, DEFAULT, True)

    @staticmethod
    def _whole(obj: Obj, options: Options, prefixed: bool) -> list[FieldError]:
        """Validate a job; ``prefixed``: labels with the group's prefix are required, which jobs from before 1.27 do not have."""
        errs = object_meta(obj["metadata"], True, names.dns_subdomain)
        errs += jobs.generated_selector(obj, prefixed)
        errs += jobs.job_spec_with_selector(obj.get("spec") or {}, options)
        return errs + jobs.indexed_host_names(obj)

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """``ValidateJobUpdate``: fixed fields may not change, a suspended job's template may in part; stored errors are tolerated."""
        spec, before = obj.get("spec") or {}, old.get("spec") or {}
        template = before.get("template") or {}
        options = options_for_template(template, has_invalid_value(before.get("selector")))
        labels = (template.get("metadata") or {}).get("labels") or {}
        prefixed = UID_LABELS[1] in labels and NAME_LABELS[1] in labels
        errs = self._whole(obj, options, prefixed) + object_meta_update(obj["metadata"], old["metadata"])
        return errs + jobs.job_spec_update(spec, before, options, _movable(old))

    def validate_status_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """``ValidateJobUpdateStatus``: counts, indexes, times and conditions, and which of them may change."""
        return object_meta_update(obj["metadata"], old["metadata"]) + status_update(obj, old)

    def warnings(self, obj: Obj) -> list[str]:
        """The warnings of the spec."""
        return job_warnings(obj.get("spec") or {}, "spec")

    def warnings_on_delete(self, options: dict[str, Any]) -> list[str]:
        """Return a warning that the pods will be orphaned if the options do not say what becomes of them."""
        unsaid = options.get("propagationPolicy") is None and options.get("orphanDependents") is None
        return [ORPHANS] if unsaid else []


MAX_INT32 = 2147483647


def _early_job_spec(spec: Obj) -> None:
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = spec["parallelism"] = 1
    if spec.get("backoffLimit") is None and spec.get("backoffLimitPerIndex") is not None:
        spec["backoffLimit"] = MAX_INT32
    # With a failure policy, pods are not replaced while they terminate.
    if spec.get("podReplacementPolicy") is None:
        spec["podReplacementPolicy"] = "Failed" if spec.get("podFailurePolicy") is not None else "TerminatingOrFailed"


@early_defaults_for("batch", "v1", "Job")
def early_job(obj: Obj) -> None:
    """Apply defaults that depend on which fields are absent, before the constant defaults fill them."""
    spec = obj.get("spec")
    if spec is None:
        spec = obj["spec"] = {}
    _early_job_spec(spec)


@defaults_for("batch", "v1", "Job")
def default_job(obj: Obj) -> None:
    """Apply computed defaults: the pod template, whose labels become the job's if it has none; both then share one map."""
    template = obj["spec"].setdefault("template", {})
    pod_template(template)
    labels = (template.get("metadata") or {}).get("labels")
    meta = obj.setdefault("metadata", {})
    if labels is not None and not meta.get("labels"):
        # The same map, not a copy: labels that a new job's template gets later become the job's, too.
        meta["labels"] = labels


_JOB_STATES = ("Suspended", "FailureTarget", "SuccessCriteriaMet")


def _job_status(obj: Obj) -> str:
    conditions = part(obj, "status").get("conditions")
    if is_true(conditions, "Complete"):
        return "Complete"
    if is_true(conditions, "Failed"):
        return "Failed"
    if obj["metadata"].get("deletionTimestamp"):
        return "Terminating"
    return next((state for state in _JOB_STATES if is_true(conditions, state)), "Running")


def _job_completions(spec: Obj, succeeded: int) -> str:
    if spec.get("completions") is not None:
        return f"{succeeded}/{spec['completions']}"
    parallelism = spec.get("parallelism") or 0
    return f"{succeeded}/1 of {parallelism}" if parallelism > 1 else f"{succeeded}/1"


def _job_duration(status: Obj, now: float) -> str:
    start, end = parse_time(status.get("startTime")), parse_time(status.get("completionTime"))
    if start is None:
        return ""
    return human_duration((now if end is None else end) - start)


@printer("batch", "Job")
def job_row(obj: Obj, now: float) -> list[Any]:
    """The cells of a Table row: name, status, completions, duration, age, containers, images, selector."""
    spec, status = part(obj, "spec"), part(obj, "status")
    return [
        obj["metadata"].get("name", ""), _job_status(obj), _job_completions(spec, status.get("succeeded", 0)),
        _job_duration(status, now), age(obj, now), *containers(part(spec, "template")), selector(spec.get("selector")),
    ]  # fmt: skip
