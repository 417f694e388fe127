"""``Workload``: when the kinds that hold a pod template warn of it, upstream's strategies of apps, batch and core."""

from __future__ import annotations

from kas.api.podwarnings import template_warnings
from kas.api.validation.workloads import name_warning
from kas.registry.strategy import Context, Obj, Strategy


class Workload(Strategy):
    """Warns on create, of the name too, and on updates that change the spec: those that change the generation."""

    def warnings(self, obj: Obj) -> list[str]:
        return template_warnings((obj.get("spec") or {}).get("template"), "spec.template")

    def warnings_on_create(self, ctx: Context, obj: Obj) -> list[str]:
        return name_warning(obj["metadata"].get("name") or "") + self.warnings(obj)

    def warnings_on_update(self, ctx: Context, obj: Obj, old: Obj) -> list[str]:
        same = obj["metadata"].get("generation") == old["metadata"].get("generation")
        return [] if same else self.warnings(obj)
