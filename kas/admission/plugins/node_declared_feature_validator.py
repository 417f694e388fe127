"""NodeDeclaredFeatureValidator: refuses a pod update that needs a feature which the pod's node did not declare.

A kubelet declares its features in the node's status (KEP-5328). Two of those known to kube-apiserver 1.36 concern updates, both of them
in-place resizes; the others are for the scheduler. (Earlier versions had a third, for the CPU of Guaranteed pods.)

Upstream: ``plugin/pkg/admission/nodedeclaredfeatures`` and ``component-helpers/nodedeclaredfeatures``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kas.admission import UPDATE, Attributes
from kas.config import features
from kas.informers import Objects
from kas.meta.equality import semantic_equal
from kas.meta.field import go_quote
from kas.types.scheme import builtin_type

Obj = dict[str, Any]


def _pod_level(new: Obj, old: Obj) -> bool:
    """Return whether the pod-level resources change."""
    return not _same_resources(new.get("spec") or {}, old.get("spec") or {})


def _init_containers(new: Obj, old: Obj) -> bool:
    """Return whether the resources of an init container that is not a sidecar change."""
    pairs = zip(*((pod.get("spec") or {}).get("initContainers") or () for pod in (old, new)), strict=False)
    return any(had.get("restartPolicy") != "Always" and not _same_resources(wanted, had) for had, wanted in pairs)


# Sorted by name, which is the order in the error message.
NEEDED_BY: tuple[tuple[str, Callable[[Obj, Obj], bool]], ...] = (
    ("InPlacePodLevelResourcesVerticalScaling", _pod_level),
    ("InPlacePodVerticalScalingInitContainers", _init_containers),
)


def _same_resources(new: Obj, old: Obj) -> bool:
    return semantic_equal(new.get("resources"), old.get("resources"), builtin_type("core.v1.ResourceRequirements"))


class Plugin:
    """Applies to updates and resizes of pods; reads their node."""

    name = "NodeDeclaredFeatureValidator"

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    def handles(self, a: Attributes) -> bool:
        """Handle updates of pods and their resizes."""
        return a.operation == UPDATE and a.resource == "pods" and not a.group and a.subresource in ("", "resize")

    def validate(self, a: Attributes) -> None:
        """Refuse an update that needs features the pod's node does not have."""
        node_name = (a.obj.get("spec") or {}).get("nodeName")
        # The generation changes with the spec, so an update that keeps it needs no feature.
        if not node_name or a.obj["metadata"].get("generation") == a.old["metadata"].get("generation"):
            return
        if not features.DEFAULT.enabled("NodeDeclaredFeatures"):
            return
        needed = [feature for feature, needs in NEEDED_BY if needs(a.obj, a.old)]
        if not needed:
            return
        node = self._objects.get("", "nodes", "", node_name)
        if node is None:
            raise a.forbid(f"node {go_quote(node_name)} not found")
        declared = (node.get("status") or {}).get("declaredFeatures") or ()
        missing = [feature for feature in needed if feature not in declared]
        if missing:
            raise a.forbid(f"pod update requires features {', '.join(missing)} which are not available on node {go_quote(node_name)}")
