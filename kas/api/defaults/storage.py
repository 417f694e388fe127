"""Computed defaults of storage.k8s.io (upstream ``pkg/apis/storage/v1/defaults.go``)."""

from __future__ import annotations

from typing import Any

from kas.api.defaults import defaults_for


@defaults_for("storage.k8s.io", "v1", "CSIDriver")
def default_csi_driver(obj: dict[str, Any]) -> None:
    spec = obj.setdefault("spec", {})
    if not spec.get("volumeLifecycleModes"):
        spec["volumeLifecycleModes"] = ["Persistent"]
    if spec.get("seLinuxMount") is None:  # gate SELinuxMountReadWriteOncePod, on by default
        spec["seLinuxMount"] = False
