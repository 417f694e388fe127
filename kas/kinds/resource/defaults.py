"""Computed defaults of resource.k8s.io (upstream ``pkg/apis/resource/<version>/defaults.go``)."""

from __future__ import annotations

from typing import Any

from kas.kinds.resource.devicetaintrule import GROUP, _taints
from kas.types.defaults import defaults_for

Obj = dict[str, Any]


def _exact_count(request: dict[str, Any]) -> None:
    if request.get("allocationMode") == "ExactCount" and not request.get("count"):
        request["count"] = 1


def _claim(spec: dict[str, Any] | None, flat: bool) -> None:
    """Apply the defaults of a claim's spec; ``flat``: of v1beta1, whose requests have no ``exactly``."""
    for request in ((spec or {}).get("devices") or {}).get("requests") or ():
        if flat:
            if request.get("deviceClassName"):
                request["allocationMode"] = request.get("allocationMode") or "ExactCount"
                _exact_count(request)
        elif request.get("exactly") is not None:
            _exact_count(request["exactly"])
        for alternative in request.get("firstAvailable") or ():
            _exact_count(alternative)


def _register(version: str) -> None:
    flat = version == "v1beta1"

    @defaults_for(GROUP, version, "ResourceClaim")
    def default_claim(obj: dict[str, Any]) -> None:
        _claim(obj.get("spec"), flat)

    @defaults_for(GROUP, version, "ResourceClaimTemplate")
    def default_template(obj: dict[str, Any]) -> None:
        _claim((obj.get("spec") or {}).get("spec"), flat)

    @defaults_for(GROUP, version, "ResourceSlice")
    def default_slice(obj: dict[str, Any]) -> None:
        for device in (obj.get("spec") or {}).get("devices") or ():
            _taints((device.get("basic") or {}).get("taints") if flat else device.get("taints"))


for _version in ("v1", "v1beta2", "v1beta1"):
    _register(_version)
