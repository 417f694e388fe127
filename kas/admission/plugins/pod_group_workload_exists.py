"""PodGroupWorkloadExists: a PodGroup is made from a template that a Workload has.

Upstream: ``plugin/pkg/admission/podgroup`` (KEP-4671).
"""

from __future__ import annotations

from kas.admission import CREATE, Attributes
from kas.config import features
from kas.informers import Objects
from kas.meta.field import go_quote


class Plugin:
    """Sees new PodGroups and asks for the Workload they name, while the gate GenericWorkload is open."""

    name = "PodGroupWorkloadExists"

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    def handles(self, a: Attributes) -> bool:
        """Creates of PodGroups."""
        if a.operation != CREATE or (a.group, a.resource, a.subresource) != ("scheduling.k8s.io", "podgroups", ""):
            return False
        return features.DEFAULT.enabled("GenericWorkload")

    def validate(self, a: Attributes) -> None:
        """403 unless the Workload named in the reference is there, stays, and has the template. A PodGroup without reference passes."""
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
