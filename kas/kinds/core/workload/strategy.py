"""``Workload``: the common strategy of kinds with a pod template, upstream's strategies of apps, batch and core."""

from __future__ import annotations

from kas.kinds.core.pod.warnings import template_warnings
from kas.kinds.core.workload.validation import name_warning
from kas.registry.strategy import Context, Obj, Strategy


class Workload(Strategy):
    """Warns on create, also about the name, and on updates that change the generation, which are those that change the spec."""

    def pod_template(self, obj: Obj) -> Obj | None:
        """Return the pod template of the spec; None if there is none."""
        return (obj.get("spec") or {}).get("template")

    def warnings(self, obj: Obj) -> list[str]:
        """Return the warnings of the pod template."""
        return template_warnings(self.pod_template(obj), "spec.template")

    def warnings_on_create(self, ctx: Context, obj: Obj) -> list[str]:
        """Return a warning for a name that is not a valid hostname, and those of the pod template."""
        return name_warning(obj["metadata"].get("name") or "") + self.warnings(obj)

    def warnings_on_update(self, ctx: Context, obj: Obj, old: Obj) -> list[str]:
        """Return the warnings of the pod template, if the generation changed."""
        same = obj["metadata"].get("generation") == old["metadata"].get("generation")
        return [] if same else self.warnings(obj)
