"""Selects the container of a pod (upstream ``pkg/registry/core/pod/strategy.go: validateContainer``)."""

from __future__ import annotations

from kas.meta.errors import bad_request
from kas.registry.strategy import Obj


def chosen(pod: Obj, wanted: str) -> str:
    """Return the container's name, which may be omitted for a pod with one container. Raises 400."""
    name, spec = pod["metadata"]["name"], pod.get("spec") or {}
    containers, init, ephemeral = (
        [c.get("name") or "" for c in spec.get(kind) or ()] for kind in ("containers", "initContainers", "ephemeralContainers")
    )
    if wanted:
        if wanted not in (*containers, *init, *ephemeral):
            raise bad_request(f"container {wanted} is not valid for pod {name}")
        return wanted
    if len(containers) == 1:
        return containers[0]
    if not containers:
        raise bad_request(f"a container name must be specified for pod {name}")
    text = f"a container name must be specified for pod {name}, choose one of: [{' '.join(containers)}]"
    if init:
        text += f" or one of the init containers: [{' '.join(init)}]"
    raise bad_request(text)
