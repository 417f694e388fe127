"""LimitPodHardAntiAffinityTopology: pods may require anti-affinity only by host.

Upstream: ``plugin/pkg/admission/antiaffinity``.
"""

from __future__ import annotations

from kas.admission import CREATE, UPDATE, Attributes

HOSTNAME = "kubernetes.io/hostname"


class Plugin:
    """Applies to new and updated pods."""

    name = "LimitPodHardAntiAffinityTopology"

    def handles(self, a: Attributes) -> bool:
        """Handle creates and updates of pods."""
        return a.resource == "pods" and not a.group and not a.subresource and a.operation in (CREATE, UPDATE)

    def validate(self, a: Attributes) -> None:
        """Refuse required anti-affinity over anything wider than a node."""
        rules = (a.obj["spec"].get("affinity") or {}).get("podAntiAffinity") or {}
        for term in rules.get("requiredDuringSchedulingIgnoredDuringExecution") or ():
            key = term.get("topologyKey", "")
            if key != HOSTNAME:
                raise a.forbid(
                    f"affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey {key} but only key {HOSTNAME} is allowed"
                )
