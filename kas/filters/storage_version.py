"""503 for writes of a resource whose storage version this server has not registered yet: upstream's WithStorageVersionPrecondition.

A storage migration relies on nothing being written in a version that no StorageVersion names.
"""

from __future__ import annotations

from typing import Protocol

from kas.auth.user import KUBE_APISERVER, MASTERS
from kas.filters.handler import Filter
from kas.meta.errors import service_unavailable
from kas.request.http import Request

READS = frozenset(("get", "list", "watch"))


class Registration(Protocol):
    """What this server has registered (``kas.controllers.storageversions``)."""

    def awaited(self, group: str, resource: str) -> str | None:
        """Why the last attempt to register a resource failed, in Go's words if there was none; None if there is
        nothing to register, or it is registered."""


def storage_version(registration: Registration) -> Filter:
    """Lets pass reads, what registration itself needs (StorageVersions, Leases in kube-system, this server's own
    creates of namespaces), and resources for which there is nothing to register."""

    def before(req: Request) -> None:
        info = req.info
        if not info.is_resource_request or info.verb in READS:
            return
        at = info.api_group, info.resource
        if at == ("internal.apiserver.k8s.io", "storageversions") or (
            at == ("coordination.k8s.io", "leases") and info.namespace == "kube-system"
        ):
            return
        user = req.user
        own = user is not None and user.name == KUBE_APISERVER and MASTERS in user.groups
        if own and at == ("", "namespaces") and info.verb == "create":
            return
        error = registration.awaited(*at)
        if error is not None:
            named = f"{info.resource}.{info.api_group}" if info.api_group else info.resource
            raise service_unavailable(f"wait for storage version registration to complete for resource: {named}, last seen error: {error}")

    return Filter("storage_version", before)
