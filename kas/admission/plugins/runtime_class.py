"""RuntimeClass: adds the class's overhead and scheduling constraints to a pod.

Upstream: ``plugin/pkg/admission/runtimeclass``.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from kas.admission import CREATE, MUCH, Attributes
from kas.admission import pods as pod_objects
from kas.informers import Informers
from kas.informers.informer import whole
from kas.meta.offload import POOL

Obj = dict[str, Any]


class Plugin:
    """Applies to new pods; reads the RuntimeClass they name."""

    name = "RuntimeClass"

    def __init__(self, informers: Informers) -> None:
        self._classes = informers.lister("node.k8s.io", "runtimeclasses", whole)

    def handles(self, a: Attributes) -> bool:
        """Handle creates of pods."""
        return a.operation == CREATE and a.resource == "pods" and not a.group and not a.subresource

    def _class(self, a: Attributes) -> Obj | None:
        name = a.obj["spec"].get("runtimeClassName")
        if name is None:
            return None
        found = self._classes.all().get(name)
        if found is None:
            raise a.forbid(f'pod rejected: RuntimeClass "{name}" not found')
        return found

    def admit(self, a: Attributes) -> Awaitable[None] | None:
        """Add the RuntimeClass's overhead and scheduling to the pod; raise 403 if the pod contradicts them."""
        found = self._class(a)
        if found is None:
            return None
        spec = a.obj["spec"]
        if found.get("overhead") is not None:
            overhead = found["overhead"].get("podFixed") or {}
            if spec.get("overhead") is not None and pod_objects.amounts(spec["overhead"]) != pod_objects.amounts(overhead):
                raise a.forbid("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")
            spec.pop("overhead", None)
            if overhead:
                spec["overhead"] = dict(overhead)
        scheduling = found.get("scheduling")
        if scheduling is not None:
            if len(scheduling.get("nodeSelector") or ()) + len(scheduling.get("tolerations") or ()) >= MUCH:
                return POOL.run(_schedule, a, spec, scheduling)
            _schedule(a, spec, scheduling)
        return None

    def validate(self, a: Attributes) -> None:
        """Refuse an overhead that differs from the RuntimeClass's."""
        found = self._class(a)
        given, overhead = a.obj["spec"].get("overhead"), (found or {}).get("overhead")
        if overhead is not None:
            if pod_objects.amounts(given) != pod_objects.amounts(overhead.get("podFixed")):
                raise a.forbid("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")
        # As in Go, an empty overhead that was sent counts as set.
        elif given is not None:
            raise a.forbid("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead")


def _schedule(a: Attributes, spec: Obj, scheduling: Obj) -> None:
    own, wanted = spec.get("nodeSelector") or {}, scheduling.get("nodeSelector") or {}
    for key, value in sorted(wanted.items()):
        if key in own and own[key] != value:
            raise a.forbid(
                f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; pod.spec.nodeSelector[{key}] = {own[key]}"
            )
    if wanted:
        spec["nodeSelector"] = {**own, **wanted}
    a.adds(len(wanted) + len(scheduling.get("tolerations") or ()))
    merged = pod_objects.merge_tolerations(spec.get("tolerations") or [], scheduling.get("tolerations") or [])
    if merged:
        spec["tolerations"] = merged
