"""DefaultTolerationSeconds: a pod stays five minutes on a node that is not ready or cannot be reached.

Upstream: ``plugin/pkg/admission/defaulttolerationseconds``.
"""

from __future__ import annotations

from typing import Any

from kas.admission import CREATE, UPDATE, Attributes

SECONDS = 300
TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


class Plugin:
    name = "DefaultTolerationSeconds"

    def __init__(self, server: Any) -> None:
        pass

    def handles(self, a: Attributes) -> bool:
        return a.resource == "pods" and not a.group and not a.subresource and a.operation in (CREATE, UPDATE)

    def mutate(self, a: Attributes) -> None:
        spec = a.obj["spec"]
        have = spec.get("tolerations") or []
        new = [
            {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": SECONDS}
            for key in TAINTS
            if not have or not any(t.get("key") in (None, "", key) and t.get("effect") in (None, "", "NoExecute") for t in have)
        ]
        if new:
            spec["tolerations"] = [*have, *new]
