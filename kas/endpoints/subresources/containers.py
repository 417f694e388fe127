"""Selects the container of a pod (upstream ``pkg/registry/core/pod/strategy.go: validateContainer``)."""

from __future__ import annotations

from kas.meta.errors import bad_request
from kas.registry.strategy import Obj


def chosen(pod: Obj, wanted: str) -> str:
    """Return the container's name, which may be omitted for a pod with one container. Raises 400."""
    name, spec = pod["metadata"]["name"], pod.get("spec") or {}
    init, containers, ephemeral = (
        [c.get("name") or "" for c in spec.get(kind) or ()] for kind in ("initContainers", "containers", "ephemeralContainers")
    )
    known = init + containers + ephemeral
    if wanted:
        if wanted not in known:
            raise bad_request(f"container {wanted} is not valid for pod {name}")
        return wanted
    if len(containers) == 1:
        return containers[0]
    if not containers:
        raise bad_request(f"a container name must be specified for pod {name}")
    raise bad_request(f"a container name must be specified for pod {name}, choose one of: [{' '.join(known)}]")
