"""DefaultTolerationSeconds: pods tolerate nodes that are not ready or unreachable for a while, five minutes by default.

Upstream: ``plugin/pkg/admission/defaulttolerationseconds``.
"""

from __future__ import annotations

from typing import Any

from kas.admission import CREATE, UPDATE, Attributes
from kas.admission.initializer import Settings

NOT_READY, UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"


class Plugin:
    """Applies to new and updated pods; two flags set the seconds."""

    name = "DefaultTolerationSeconds"

    def __init__(self, settings: Settings) -> None:
        seconds = {
            NOT_READY: settings.default_not_ready_toleration_seconds, UNREACHABLE: settings.default_unreachable_toleration_seconds,
        }  # fmt: skip
        self._all: list[dict[str, Any]] = [
            {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": value} for key, value in seconds.items()
        ]

    def handles(self, a: Attributes) -> bool:
        """Handle creates and updates of pods."""
        return a.resource == "pods" and not a.group and not a.subresource and a.operation in (CREATE, UPDATE)

    def admit(self, a: Attributes) -> None:
        """Add the tolerations of not-ready and unreachable nodes that the pod does not have."""
        spec = a.obj["spec"]
        have = spec.get("tolerations")
        if not have:  # as in nearly all pods
            spec["tolerations"] = [tolerate.copy() for tolerate in self._all]
            return
        new = [
            tolerate.copy()
            for tolerate in self._all
            if not any(t.get("key") in (None, "", tolerate["key"]) and t.get("effect") in (None, "", "NoExecute") for t in have)
        ]
        if new:
            spec["tolerations"] = [*have, *new]
