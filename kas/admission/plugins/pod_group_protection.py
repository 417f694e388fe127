"""PodGroupProtection: a PodGroup stays until no pod names it.

Upstream: ``plugin/pkg/admission/scheduling/podgroupprotection`` (KEP-4671).
"""

from __future__ import annotations

from kas.admission import CREATE, Attributes
from kas.config import features

FINALIZER = "scheduling.k8s.io/podgroup-protection"


class Plugin:
    """Sees new PodGroups, while the gate GenericWorkload is open. The finalizer is for ``kas.controllers.protection`` to take away."""

    name = "PodGroupProtection"

    def handles(self, a: Attributes) -> bool:
        """Creates of PodGroups."""
        if a.operation != CREATE or (a.group, a.resource, a.subresource) != ("scheduling.k8s.io", "podgroups", ""):
            return False
        return features.DEFAULT.enabled("GenericWorkload")

    def admit(self, a: Attributes) -> None:
        """Add the finalizer that keeps the PodGroup while pods name it."""
        meta = a.obj["metadata"]
        have = meta.get("finalizers") or []
        if FINALIZER not in have:
            meta["finalizers"] = [*have, FINALIZER]
