"""PodGroupProtection: keeps a PodGroup until no pod names it.

Upstream: ``plugin/pkg/admission/scheduling/podgroupprotection`` (KEP-4671).
"""

from __future__ import annotations

from kas.admission import CREATE, Attributes
from kas.config import features

FINALIZER = "scheduling.k8s.io/podgroup-protection"


class Plugin:
    """Applies to new PodGroups while the gate GenericWorkload is on. ``kas.controllers.protection`` removes the finalizer."""

    name = "PodGroupProtection"

    def handles(self, a: Attributes) -> bool:
        """Handle creates of PodGroups."""
        if a.operation != CREATE or (a.group, a.resource, a.subresource) != ("scheduling.k8s.io", "podgroups", ""):
            return False
        return features.DEFAULT.enabled("GenericWorkload")

    def admit(self, a: Attributes) -> None:
        """Add the finalizer that keeps the PodGroup while pods name it."""
        meta = a.obj["metadata"]
        have = meta.get("finalizers") or []
        if FINALIZER not in have:
            meta["finalizers"] = [*have, FINALIZER]
