"""Downward API references: fieldRef and resourceFieldRef (``pkg/apis/core/validation``, ``pkg/apis/core/pods``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kas.kinds.core.resources import amount
from kas.meta import field, names
from kas.meta.checks import unsupported
from kas.meta.field import FieldError

VOLUME_FIELDS = ("metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid")
ENV_FIELDS = (
    "metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName", "status.hostIP",
    "status.hostIPs", "status.podIP", "status.podIPs",
)  # fmt: skip
# All field labels that the conversion accepts; the place of use narrows this.
_KNOWN = frozenset(
    {
        "metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName",
        "spec.restartPolicy", "spec.serviceAccountName", "spec.schedulerName", "status.phase", "status.hostIP",
        "status.hostIPs", "status.podIP", "status.podIPs", "spec.host",
    }
)  # fmt: skip
RESOURCES = (
    "limits.cpu", "limits.ephemeral-storage", "limits.memory", "requests.cpu", "requests.ephemeral-storage",
    "requests.memory",
)  # fmt: skip
_HUGEPAGES = ("limits.hugepages-", "requests.hugepages-")
_BYTES = frozenset({"1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"})
_BYTES_TEXT = "only divisor's values 1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei are supported with the "


def _subscripted(label: str) -> tuple[str, str]:
    """Return the two parts of ``name['key']`` (``SplitMaybeSubscriptedPath``), both empty for other texts."""
    name, mark, key = label.removesuffix("']").partition("['")
    return (name, key) if name and mark and label.endswith("']") else ("", "")


def _converted(version: str, label: str) -> tuple[str, str]:
    """Return the internal field path and the error; one of them is empty."""
    if version != "v1":
        return "", f"unsupported pod version: {version}"
    name, _ = _subscripted(label)
    if name:
        if name in ("metadata.annotations", "metadata.labels"):
            return label, ""
        return "", f"field label does not support subscript: {label}"
    if label not in _KNOWN:
        return "", f"field label not supported: {label}"
    return ("spec.nodeName" if label == "spec.host" else label), ""


def object_field(ref: Mapping[str, Any], allowed: tuple[str, ...], path: str) -> list[FieldError]:
    """``validateObjectFieldSelector``: a v1 field path among ``allowed``, or a single label or annotation by its qualified key."""
    version, label = ref.get("apiVersion") or "", ref.get("fieldPath") or ""
    if not version:
        return [field.required(f"{path}.apiVersion")]
    if not label:
        return [field.required(f"{path}.fieldPath")]
    internal, complaint = _converted(version, label)
    if complaint:
        return [field.invalid(f"{path}.fieldPath", label, f"error converting fieldPath: {complaint}")]
    name, key = _subscripted(internal)
    if name:
        key = key.lower() if name == "metadata.annotations" else key
        return [field.invalid(path, key, m) for m in names.is_qualified_name(key)]
    if internal not in allowed:
        return [unsupported(f"{path}.fieldPath", internal, allowed)]
    return []


def resource_field(ref: Mapping[str, Any], path: str, volume: bool) -> list[FieldError]:
    """``validateContainerResourceFieldSelector``: a known resource with a suitable divisor; 0 means none. With ``volume`` the container
    must be named; in an environment it need not.
    """
    name = ref.get("resource") or ""
    errs: list[FieldError] = []
    if volume and not ref.get("containerName"):
        errs.append(field.required(f"{path}.containerName"))
    elif not name:
        errs.append(field.required(f"{path}.resource"))
    elif name not in RESOURCES and not name.startswith(_HUGEPAGES):
        errs.append(unsupported(f"{path}.resource", name, RESOURCES))
    divisor = ref.get("divisor")
    if divisor and amount(divisor) != 0:
        message = ""
        if name in ("limits.cpu", "requests.cpu"):
            if divisor not in ("1m", "1"):
                message = "only divisor's values 1m and 1 are supported with the cpu resource"
        elif divisor not in _BYTES:
            if name in ("limits.memory", "requests.memory"):
                message = _BYTES_TEXT + "memory resource"
            elif name in ("limits.ephemeral-storage", "requests.ephemeral-storage"):
                message = _BYTES_TEXT + "local ephemeral storage resource"
            elif name.startswith(_HUGEPAGES):
                message = _BYTES_TEXT + "hugepages resource"
        if message:
            errs.append(field.invalid(f"{path}.divisor", name, message))
    return errs
