"""TaintNodesByCondition: a new node accepts no pods before it reports that it is ready.

Upstream: ``plugin/pkg/admission/nodetaint``.
"""

from __future__ import annotations

from typing import Any

from kas.admission import CREATE, Attributes

NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}


class Plugin:
    """Applies to new Nodes."""

    name = "TaintNodesByCondition"

    def handles(self, a: Attributes) -> bool:
        """Handle creates of nodes."""
        return a.operation == CREATE and a.resource == "nodes" and not a.group and not a.subresource

    def admit(self, a: Attributes) -> None:
        """Taint a new node as not ready."""
        spec: Any = a.obj.get("spec")
        if spec is None:
            spec = a.obj["spec"] = {}
        taints = spec.get("taints") or []
        if not any(t.get("key") == NOT_READY["key"] and t.get("effect") == NOT_READY["effect"] for t in taints):
            spec["taints"] = [*taints, dict(NOT_READY)]
