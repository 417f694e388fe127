"""``Workload``: what the kinds that hold a pod template do with it, upstream's strategies of apps, batch and core."""

from __future__ import annotations

from kas.api.podwarnings import template_warnings
from kas.api.validation.workloads import name_warning
from kas.registry.disabled import drop_disabled_of_template
from kas.registry.strategy import Context, Obj, Strategy


class Workload(Strategy):
    """Drops what is disabled, warns on create, of the name too, and on updates that change the spec: those that change the generation."""

    def pod_template(self, obj: Obj) -> Obj | None:
        return (obj.get("spec") or {}).get("template")

    def prepare_for_create(self, ctx: Context, obj: Obj) -> None:
        drop_disabled_of_template(self.pod_template(obj))
        super().prepare_for_create(ctx, obj)

    def prepare_for_update(self, ctx: Context, obj: Obj, old: Obj) -> None:
        drop_disabled_of_template(self.pod_template(obj), self.pod_template(old))
        super().prepare_for_update(ctx, obj, old)

    def warnings(self, obj: Obj) -> list[str]:
        return template_warnings(self.pod_template(obj), "spec.template")

    def warnings_on_create(self, ctx: Context, obj: Obj) -> list[str]:
        return name_warning(obj["metadata"].get("name") or "") + self.warnings(obj)

    def warnings_on_update(self, ctx: Context, obj: Obj, old: Obj) -> list[str]:
        same = obj["metadata"].get("generation") == old["metadata"].get("generation")
        return [] if same else self.warnings(obj)
