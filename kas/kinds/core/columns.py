"""Table rows of kinds without a module of their own, and cells that several kinds share."""

from __future__ import annotations

from typing import Any

from kas.meta.age import age
from kas.registry.printing.cells import part
from kas.registry.printing.rows import printer

Obj = dict[str, Any]
_MODES = (("ReadWriteOnce", "RWO"), ("ReadOnlyMany", "ROX"), ("ReadWriteMany", "RWX"), ("ReadWriteOncePod", "RWOP"))


@printer("", "ServiceAccount")
def name_and_age(obj: Obj, now: float) -> list[Any]:
    """The cells of a Table row: name, age."""
    return [obj["metadata"].get("name", ""), age(obj, now)]


def short_modes(modes: list[str] | None) -> str:
    """Return access modes by their short names, in the printers' order."""
    return ",".join(short for mode, short in _MODES if mode in modes) if modes else ""


def phase(obj: Obj) -> str:
    """Return the status' phase; "Terminating" while the object is being deleted."""
    return "Terminating" if obj["metadata"].get("deletionTimestamp") else part(obj, "status").get("phase", "")


def storage_class(obj: Obj) -> str:
    """Return the storage class: the beta annotation if present, else the field; "" if none."""
    annotations = obj["metadata"].get("annotations") or {}
    found = annotations.get("volume.beta.kubernetes.io/storage-class")
    return part(obj, "spec").get("storageClassName") or "" if found is None else found


@printer("", "ComponentStatus")
def component_status_row(obj: Obj, now: float) -> list[Any]:
    """The cells of a Table row: name, health, message, error."""
    healthy = next((c for c in obj.get("conditions") or () if c.get("type") == "Healthy"), None)
    if healthy is None:
        return [obj["metadata"].get("name", ""), "Unknown", "", ""]
    text = "Healthy" if healthy.get("status") == "True" else "Unhealthy"
    return [obj["metadata"].get("name", ""), text, healthy.get("message", ""), healthy.get("error", "")]


@printer("meta", "Status")
def status_row(obj: Obj, now: float) -> list[Any]:
    """The cells of a Table row of a metav1.Status: status, reason, message."""
    return [obj.get("status", ""), obj.get("reason", ""), obj.get("message", "")]
