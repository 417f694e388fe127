"""Computed defaults of networking.k8s.io (upstream ``pkg/apis/networking/v1/defaults.go``)."""

from __future__ import annotations

from typing import Any

from kas.api.defaults import defaults_for


@defaults_for("networking.k8s.io", "v1", "NetworkPolicy")
def default_network_policy(obj: dict[str, Any]) -> None:
    """Every policy is about ingress; one with egress rules is about egress too."""
    spec = obj.get("spec")
    if spec is not None and not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]
    elif spec is None:
        obj["spec"] = {"policyTypes": ["Ingress"]}
