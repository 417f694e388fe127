"""DRAAdminAccess: administrative access to devices in use is only possible from namespaces labelled for it.

Upstream this is part of the storage of claims and templates (``pkg/registry/resource``), so it cannot be disabled.
"""

from __future__ import annotations

from typing import Any

from kas.admission import CREATE, UPDATE, Attributes
from kas.informers import Objects
from kas.meta import errors, field

GROUP = "resource.k8s.io"
LABEL = "resource.kubernetes.io/admin-access"
Obj = dict[str, Any]


class Plugin:
    """Applies to ResourceClaims, their templates and allocations; reads the labels of their namespace."""

    name = "DRAAdminAccess"
    of_storage = True

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    def handles(self, a: Attributes) -> bool:
        """Handle creates of resource claims and templates, and updates of a claim's status."""
        if a.group != GROUP or a.resource not in ("resourceclaims", "resourceclaimtemplates"):
            return False
        # Neither a spec nor an allocation can change once it exists.
        return a.subresource == "status" if a.operation == UPDATE else a.operation == CREATE and not a.subresource

    def validate(self, a: Attributes) -> None:
        """Refuse administrative access to devices in a namespace without the label."""
        if a.operation == UPDATE:
            if _first(_results(a.old)) is not None:
                return
            wanted, path = _first(_results(a.obj)), "status.allocation.devices.results"
        else:
            spec = a.obj.get("spec") or {}
            if a.resource == "resourceclaimtemplates":
                spec = spec.get("spec") or {}
            requests = (spec.get("devices") or {}).get("requests") or []
            # v1beta1 has these fields in the request itself, later versions under "exactly"
            wanted, path = _first([r.get("exactly") or r for r in requests]), "spec.devices.requests"
        if wanted is None:
            return
        namespace = self._objects.get("", "namespaces", "", a.namespace) or {}
        if ((namespace.get("metadata") or {}).get("labels") or {}).get(LABEL) == "true":
            return
        why = f"admin access to devices requires the `{LABEL}: true` label on the containing namespace"
        name = a.name or a.obj["metadata"].get("name") or ""
        raise errors.invalid(GROUP, a.kind, name, [field.forbidden(f"{path}[{wanted}].adminAccess", why)])


def _results(claim: Obj) -> list[Obj]:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    return (allocation.get("devices") or {}).get("results") or []


def _first(items: list[Obj]) -> int | None:
    return next((i for i, item in enumerate(items) if item.get("adminAccess")), None)
