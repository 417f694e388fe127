"""PodTemplates (upstream ``pkg/registry/core/podtemplate/strategy.go``)."""

from __future__ import annotations

from kas.kinds.core.objectmeta import object_meta, object_meta_update
from kas.kinds.core.pod.defaults import pod_template
from kas.kinds.core.pod.options import options_for_template
from kas.kinds.core.pod.spec import template
from kas.kinds.core.pod.warnings import template_warnings
from kas.kinds.core.workload.strategy import Workload
from kas.meta import names
from kas.meta.field import FieldError
from kas.registry.strategy import Context, Obj, strategy_for
from kas.types.defaults import defaults_for


@strategy_for("", "podtemplates")
class PodTemplateStrategy(Workload):
    """PodTemplates: a Workload that consists of its template."""

    def pod_template(self, obj: Obj) -> Obj | None:
        """Return the template at the top level; None if there is none."""
        return obj.get("template")

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        """``ValidatePodTemplate``."""
        errs = object_meta(obj["metadata"], True, names.dns_subdomain)
        return errs + template(obj.get("template") or {}, "template")

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """``ValidatePodTemplateUpdate``; errors that the stored template already has are tolerated."""
        errs = object_meta_update(obj["metadata"], old["metadata"])
        options = options_for_template(old.get("template"))
        return errs + template(obj.get("template") or {}, "template", options)

    def warnings(self, obj: Obj) -> list[str]:
        """Return the warnings of the template."""
        return template_warnings(obj.get("template"), "template")

    def warnings_on_create(self, ctx: Context, obj: Obj) -> list[str]:
        """Return the warnings of the template."""
        return self.warnings(obj)  # without a warning for a name that is not a DNS label


@defaults_for("", "v1", "PodTemplate")
def default_pod_template(obj: Obj) -> None:
    """Computed defaults of the template."""
    pod_template(obj.setdefault("template", {}))
