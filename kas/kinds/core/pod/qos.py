"""The quality-of-service class of pods (upstream ``pkg/apis/core/helper/qos``); quotas need only this module of the package."""

from __future__ import annotations

from kas.kinds.core.pod._containers import quality_of_service as _quality_of_service
from kas.kinds.core.resources import amount
from kas.registry.strategy import Obj


def quality_of_service(pod: Obj) -> str:
    """Return Guaranteed if every container limits cpu and memory to its requests, BestEffort if none has any, else Burstable."""
    spec = pod.get("spec") or {}
    if spec.get("resources") is not None:
        return class_of([spec["resources"]])
    quick = _quality_of_service(spec.get("containers"), spec.get("initContainers"))
    return quick or class_of([c.get("resources") or {} for k in ("containers", "initContainers") for c in spec.get(k) or ()])


def class_of(sources: list[Obj]) -> str:
    """Return the quality-of-service class of several resource requirements.

    It is Guaranteed if each limits cpu and memory and the sums of limits and requests are equal, BestEffort if none has an amount above 0,
    else Burstable.
    """
    requests: dict[str, int] = {}
    limits: dict[str, int] = {}
    guaranteed = True
    for source in sources:
        for name, text in (source.get("requests") or {}).items():
            if name in ("cpu", "memory") and amount(text) > 0:
                requests[name] = requests.get(name, 0) + amount(text)
        found = 0
        for name, text in (source.get("limits") or {}).items():
            if name in ("cpu", "memory") and amount(text) > 0:
                limits[name] = limits.get(name, 0) + amount(text)
                found += 1
        guaranteed = guaranteed and found == 2
    if not requests and not limits:
        return "BestEffort"
    return "Guaranteed" if guaranteed and requests == limits else "Burstable"
