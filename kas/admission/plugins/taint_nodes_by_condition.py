"""TaintNodesByCondition: a new node takes no pods before it has said that it is ready.

Upstream: ``plugin/pkg/admission/nodetaint``.
"""

from __future__ import annotations

from typing import Any

from kas.admission import CREATE, Attributes

NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}


class Plugin:
    """Sees new Nodes."""

    name = "TaintNodesByCondition"

    def handles(self, a: Attributes) -> bool:
        """Creates of nodes."""
        return a.operation == CREATE and a.resource == "nodes" and not a.group and not a.subresource

    def admit(self, a: Attributes) -> None:
        """Taint a new node as not ready."""
        spec: Any = a.obj.get("spec")
        if spec is None:
            spec = a.obj["spec"] = {}
        taints = spec.get("taints") or []
        if not any(t.get("key") == NOT_READY["key"] and t.get("effect") == NOT_READY["effect"] for t in taints):
            spec["taints"] = [*taints, dict(NOT_READY)]
