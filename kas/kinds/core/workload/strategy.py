"""``Workload``: what the kinds that hold a pod template do with it, upstream's strategies of apps, batch and core."""

from __future__ import annotations

from kas.kinds.core.pod.warnings import template_warnings
from kas.kinds.core.workload.validation import name_warning
from kas.registry.strategy import Context, Obj, Strategy


class Workload(Strategy):
    """Warns on create, of the name too, and on updates that change the spec: those that change the generation."""

    def pod_template(self, obj: Obj) -> Obj | None:
        """The pod template of the spec; None when there is none."""
        return (obj.get("spec") or {}).get("template")

    def warnings(self, obj: Obj) -> list[str]:
        """The warnings of the pod template."""
        return template_warnings(self.pod_template(obj), "spec.template")

    def warnings_on_create(self, ctx: Context, obj: Obj) -> list[str]:
        """A warning for a name that makes no host name, and those of the pod template."""
        return name_warning(obj["metadata"].get("name") or "") + self.warnings(obj)

    def warnings_on_update(self, ctx: Context, obj: Obj, old: Obj) -> list[str]:
        """The warnings of the pod template, when the generation changed."""
        same = obj["metadata"].get("generation") == old["metadata"].get("generation")
        return [] if same else self.warnings(obj)
