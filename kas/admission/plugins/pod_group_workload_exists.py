"""PodGroupWorkloadExists: the template that a PodGroup refers to must exist in the Workload.

Upstream: ``plugin/pkg/admission/podgroup`` (KEP-4671).
"""

from __future__ import annotations

from kas.admission import CREATE, Attributes
from kas.config import features
from kas.informers import Objects
from kas.meta.field import go_quote


class Plugin:
    """Applies to new PodGroups while the gate GenericWorkload is on; reads the Workload they name."""

    name = "PodGroupWorkloadExists"

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    def handles(self, a: Attributes) -> bool:
        """Handle creates of PodGroups."""
        if a.operation != CREATE or (a.group, a.resource, a.subresource) != ("scheduling.k8s.io", "podgroups", ""):
            return False
        return features.DEFAULT.enabled("GenericWorkload")

    def validate(self, a: Attributes) -> None:
        """Raise 403 unless the referenced Workload exists, is not being deleted, and has the template. A PodGroup without a reference is
        admitted."""
        reference = (a.obj["spec"].get("podGroupTemplateRef") or {}).get("workload")
        if reference is None:
            return
        name, template = reference.get("workloadName", ""), reference.get("podGroupTemplateName", "")
        workload = self._objects.get("scheduling.k8s.io", "workloads", a.namespace, name)
        if workload is None:
            raise a.forbid(f"PodGroup rejected: Workload {go_quote(name)} not found")
        if workload["metadata"].get("deletionTimestamp"):
            raise a.forbid(f"PodGroup rejected: Workload {go_quote(name)} is being deleted")
        if all(t.get("name") != template for t in workload["spec"].get("podGroupTemplates") or []):
            raise a.forbid(f"PodGroup rejected: PodGroupTemplate {go_quote(template)} not found in Workload {go_quote(name)}")
