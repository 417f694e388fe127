"""Jobs (upstream ``pkg/registry/batch/job/strategy.go``, ``pkg/apis/batch/validation``)."""

from __future__ import annotations

from typing import Any

from kas.api.field import FieldError
from kas.api.jobwarnings import job_warnings
from kas.api.validation import jobs, names
from kas.api.validation.coremeta import object_meta, object_meta_update
from kas.api.validation.jobs import NAME_LABELS, UID_LABELS
from kas.api.validation.jobstatus import condition_is, status_update
from kas.api.validation.labelselectors import has_invalid_value
from kas.api.validation.podoptions import DEFAULT, Options, options_for_template
from kas.registry.strategy import Context, Obj, strategy_for
from kas.registry.workload import Workload

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
    given = template_meta.get("labels")
    labels = template_meta["labels"] = dict(given or {})
    for keys, value in ((NAME_LABELS, meta.get("name") or ""), (UID_LABELS, meta.get("uid") or "")):
        for key in keys:
            labels.setdefault(key, value)
    if given is not None and meta.get("labels") is given:
        meta["labels"] = dict(labels)
    selector = spec["selector"] = dict(spec.get("selector") or {})
    selector["matchLabels"] = {UID_LABELS[1]: meta.get("uid") or "", **(selector.get("matchLabels") or {})}


def _idle(job: Obj) -> bool:
    """Suspended with no pods left: what no pod has been made of yet, or will be again, can change."""
    status = job.get("status") or {}
    still = not status.get("startTime") or condition_is(status, "Suspended")
    return bool((job.get("spec") or {}).get("suspend")) and still and not status.get("active")


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
        options = options_for_template(template, has_invalid_value(before.get("selector")))
        labels = (template.get("metadata") or {}).get("labels") or {}
        prefixed = UID_LABELS[1] in labels and NAME_LABELS[1] in labels
        errs = self._whole(obj, options, prefixed) + object_meta_update(obj["metadata"], old["metadata"])
        return errs + jobs.job_spec_update(spec, before, options, _idle(old))

    def validate_status_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        return object_meta_update(obj["metadata"], old["metadata"]) + status_update(obj, old)

    def warnings(self, obj: Obj) -> list[str]:
        return job_warnings(obj.get("spec") or {}, "spec")

    def warnings_on_delete(self, options: dict[str, Any]) -> list[str]:
        unsaid = options.get("propagationPolicy") is None and options.get("orphanDependents") is None
        return [ORPHANS] if unsaid else []
