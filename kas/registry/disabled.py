"""Fields of pod specs whose feature gates are off (upstream ``pkg/api/pod/util.go``): dropped, unless the stored object uses them."""

from __future__ import annotations

from typing import Any

Obj = dict[str, Any]
_CONTAINERS = ("containers", "initContainers", "ephemeralContainers")
# Of projected volumes; gates ClusterTrustBundleProjection and PodCertificateRequest.
_SOURCES = ("clusterTrustBundle", "podCertificate")


def drop_disabled(spec: Obj, old_spec: Obj | None = None) -> None:
    """What goes is taken out of ``spec`` itself; anything nested is replaced, so that ``old_spec`` may share it."""
    old = old_spec or {}
    if "schedulingGroup" in spec and not old.get("schedulingGroup"):
        del spec["schedulingGroup"]
    if _has_stop_signal(spec) and not _has_stop_signal(old):
        for kind in _CONTAINERS:
            if spec.get(kind):
                spec[kind] = [_without_stop_signal(container) for container in spec[kind]]
    for volume in spec.get("volumes") or ():
        if "projected" in volume:
            _drop_sources(spec, old)
            break


def drop_disabled_of_template(template: Obj | None, old: Obj | None = None) -> None:
    if template and template.get("spec"):
        drop_disabled(template["spec"], (old or {}).get("spec"))


def _has_stop_signal(spec: Obj) -> bool:
    for kind in _CONTAINERS:
        for container in spec.get(kind) or ():
            if "lifecycle" in container and "stopSignal" in (container["lifecycle"] or ()):
                return True
    return False


def _without_stop_signal(container: Obj) -> Obj:
    if "stopSignal" not in (container.get("lifecycle") or ()):
        return container
    out, lifecycle = dict(container), dict(container["lifecycle"])
    del lifecycle["stopSignal"], out["lifecycle"]
    return {**out, "lifecycle": lifecycle} if lifecycle else out


def _drop_sources(spec: Obj, old: Obj) -> None:
    for key in _SOURCES:
        if _projects(spec, key) and not _projects(old, key):
            spec["volumes"] = [_without_source(volume, key) for volume in spec["volumes"]]


def _projects(spec: Obj, key: str) -> bool:
    for volume in spec.get("volumes") or ():
        if "projected" in volume and any(key in source for source in (volume["projected"] or {}).get("sources") or ()):
            return True
    return False


def _without_source(volume: Obj, key: str) -> Obj:
    projected = volume.get("projected")
    if not projected or not projected.get("sources"):
        return volume
    sources = [{k: v for k, v in source.items() if k != key} for source in projected["sources"]]
    return {**volume, "projected": {**projected, "sources": sources}}
