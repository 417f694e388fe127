"""PodResizeValidator: refuses a resize that the pod's node can never satisfy.

Upstream: ``plugin/pkg/admission/podresize``.
"""

from __future__ import annotations

from typing import Any

from kas.admission import UPDATE, Attributes
from kas.admission import pods as pod_objects
from kas.informers import Objects
from kas.meta.errors import ApiError
from kas.meta.field import go_quote
from kas.meta.quantity import Quantity
from kas.meta.quantity import cached as quantity

OS_LABEL = "kubernetes.io/os"
ZERO = Quantity(0)


class Plugin:
    """Applies to updates of the resize subresource; reads the pod's node."""

    name = "PodResizeValidator"

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    def handles(self, a: Attributes) -> bool:
        """Handle resizes of pods."""
        return a.operation == UPDATE and a.resource == "pods" and not a.group and a.subresource == "resize"

    def validate(self, a: Attributes) -> None:
        """Refuse a resize that exceeds the node's allocatable resources or that its OS does not support; pods without a node are
        admitted."""
        name = a.obj["spec"].get("nodeName")
        # The generation changes with the spec, so an update that keeps it requests nothing.
        if not name or a.obj["metadata"].get("generation") == a.old["metadata"].get("generation"):
            return
        node = self._objects.get("", "nodes", "", name)
        if node is None:
            raise a.forbid(f"node {go_quote(name)} not found")
        system = (node["metadata"].get("labels") or {}).get(OS_LABEL, "linux")
        if system != "linux":
            why = f"pod resize is only supported on linux nodes, node {go_quote(name)} is {go_quote(system)}"
            raise _because(a, why, "UnsupportedPlatform")
        short = _short_of(a.obj["spec"], (node.get("status") or {}).get("allocatable") or {})
        if short:
            raise _because(a, f"node didn't have enough allocatable resources: {'; '.join(short)}", "NodeCapacity")


def _short_of(spec: dict[str, Any], allocatable: dict[str, str]) -> list[str]:
    need = pod_objects.effective(spec, "requests", overhead=True)
    out = []
    for name, value in (("cpu", Quantity.milli_value), ("memory", Quantity.value)):
        wanted, there = need.get(name, ZERO), quantity(allocatable[name]) if name in allocatable else ZERO
        if wanted > there:
            out.append(f"{name}, requested: {value(wanted)}, allocatable: {value(there)}")
    return out


def _because(a: Attributes, why: str, cause: str) -> ApiError:
    e = a.forbid(why)
    e.details = {**(e.details or {}), "causes": [{"reason": cause}]}
    return e
