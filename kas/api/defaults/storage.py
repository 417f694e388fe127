"""Computed defaults of storage.k8s.io (upstream ``pkg/apis/storage/v1/defaults.go``)."""

from __future__ import annotations

from typing import Any

from kas.api.defaults import defaults_for
from kas.api.defaults.early import early_defaults_for
from kas.api.defaults.podspec import round_up

_ABSENT = "kas:absent"


@defaults_for("storage.k8s.io", "v1", "CSIDriver")
def default_csi_driver(obj: dict[str, Any]) -> None:
    spec = obj.setdefault("spec", {})
    if not spec.get("volumeLifecycleModes"):
        spec["volumeLifecycleModes"] = ["Persistent"]
    if spec.get("seLinuxMount") is None:  # gate SELinuxMountReadWriteOncePod, on by default
        spec["seLinuxMount"] = False


def _inline_volume(obj: dict[str, Any]) -> dict[str, Any]:
    return ((obj.get("spec") or {}).get("source") or {}).get("inlineVolumeSpec") or {}


@early_defaults_for("storage.k8s.io", "v1", "VolumeAttachment")
def early_volume_attachment(obj: dict[str, Any]) -> None:
    """Note for ``default_volume_attachment`` what is only completed in a PersistentVolume."""
    volume = _inline_volume(obj)
    obj[_ABSENT] = [key for key in ("persistentVolumeReclaimPolicy", "volumeMode") if not volume.get(key)]


@defaults_for("storage.k8s.io", "v1", "VolumeAttachment")
def default_volume_attachment(obj: dict[str, Any]) -> None:
    volume = _inline_volume(obj)
    for key in obj.pop(_ABSENT, ()):
        volume.pop(key, None)
    round_up(volume.get("capacity"))
