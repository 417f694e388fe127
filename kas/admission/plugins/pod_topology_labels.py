"""PodTopologyLabels: copies the node's zone and region labels to a pod when it is bound.

Upstream: ``plugin/pkg/admission/podtopologylabels`` (KEP-4742).
"""

from __future__ import annotations

from kas.admission import CREATE, Attributes
from kas.config import features
from kas.informers import Objects

LABELS = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")


class Plugin:
    """Applies to creates and bindings of pods while the feature gate is on; reads the labels of their node."""

    name = "PodTopologyLabels"

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    def handles(self, a: Attributes) -> bool:
        """Handle creates and bindings of pods, while the gate is open."""
        if a.operation != CREATE or a.resource != "pods" or a.group or a.subresource not in ("", "binding"):
            return False
        return features.DEFAULT.enabled("PodTopologyLabelsAdmission")

    def admit(self, a: Attributes) -> None:
        """Copy the node's topology labels; without a node, or with an unknown one, nothing changes."""
        if a.subresource:
            target = a.obj.get("target") or {}
            node = target.get("name") if target.get("kind") == "Node" else None
        else:
            node = a.obj["spec"].get("nodeName")
        if not node:
            return
        labels = self._objects.labels("", "nodes", "", node)
        if labels is None:
            return
        new = {key: labels[key] for key in LABELS if key in labels}
        if new:
            meta = a.obj["metadata"]
            meta["labels"] = {**(meta.get("labels") or {}), **new}
