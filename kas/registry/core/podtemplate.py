"""PodTemplates (upstream ``pkg/registry/core/podtemplate/strategy.go``)."""

from __future__ import annotations

from kas.api.field import FieldError
from kas.api.podwarnings import template_warnings
from kas.api.validation import names
from kas.api.validation.coremeta import object_meta, object_meta_update
from kas.api.validation.podoptions import options_for_template
from kas.api.validation.podspec import template
from kas.registry.strategy import Context, Obj, strategy_for
from kas.registry.workload import Workload


@strategy_for("", "podtemplates")
class PodTemplateStrategy(Workload):
    def pod_template(self, obj: Obj) -> Obj | None:
        return obj.get("template")

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        errs = object_meta(obj["metadata"], True, names.dns_subdomain)
        return errs + template(obj.get("template") or {}, "template")

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        errs = object_meta_update(obj["metadata"], old["metadata"])
        options = options_for_template(old.get("template"))
        return errs + template(obj.get("template") or {}, "template", options)

    def warnings(self, obj: Obj) -> list[str]:
        return template_warnings(obj.get("template"), "template")

    def warnings_on_create(self, ctx: Context, obj: Obj) -> list[str]:
        return self.warnings(obj)  # a name that is no DNS label is not told of
