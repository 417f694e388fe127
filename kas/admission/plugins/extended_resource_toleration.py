"""ExtendedResourceToleration: a pod that requests an extended resource tolerates the taint of the nodes that provide it.

Upstream: ``plugin/pkg/admission/extendedresourcetoleration``.
"""

from __future__ import annotations

from typing import Any

from kas.admission import CREATE, UPDATE, Attributes
from kas.kinds.core.resources import is_extended


class Plugin:
    """Applies to new and updated pods."""

    name = "ExtendedResourceToleration"

    def handles(self, a: Attributes) -> bool:
        """Handle creates and updates of pods."""
        return a.resource == "pods" and not a.group and not a.subresource and a.operation in (CREATE, UPDATE)

    def admit(self, a: Attributes) -> None:
        """Add a toleration of the taint named after each requested extended resource."""
        spec = a.obj["spec"]
        names = {
            name
            for kind in ("containers", "initContainers")
            for container in spec.get(kind) or ()
            for name in (container.get("resources") or {}).get("requests") or {}
            if is_extended(name)
        }
        if not names:
            return
        wanted = {_same(one): one for name in sorted(names) for one in ({"key": name, "operator": "Exists", "effect": "NoSchedule"},)}
        # An existing toleration is replaced: with tolerationSeconds it would be refused.
        have = [wanted.get(_same(t), t) for t in spec.get("tolerations") or ()]
        known = set(map(_same, have))
        spec["tolerations"] = have + [one for sort, one in wanted.items() if sort not in known]


def _same(one: dict[str, Any]) -> tuple[str, ...]:
    """Return the key under which ``AddOrUpdateTolerationInPod`` considers two tolerations equal."""
    return tuple(one.get(key) or "" for key in ("key", "operator", "value", "effect"))
