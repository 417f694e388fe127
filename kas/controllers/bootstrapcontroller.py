"""Restores the objects every cluster has: system namespaces, the kubernetes Service with its endpoints, the default ServiceCIDR, and the
server's ConfigMaps in kube-system.

Upstream: ``pkg/controlplane/controller/{systemnamespaces,kubernetesservice,defaultservicecidr,clusterauthenticationtrust}`` and the
flow-control ensurer. The objects are written at start; this controller restores those that were deleted or changed since.
"""

from __future__ import annotations

import logging
from typing import Any

from kas.controllers.client import Client
from kas.meta.offload import POOL
from kas.registry.bootstrapper import Bootstrapper
from kas.registry.registries import Registries
from kas.store import Conflict, TransformError

EVERY_S = 10.0
KEPT = frozenset(
    {
        "namespaces", "services", "endpoints", "endpointslices", "servicecidrs", "flowschemas", "prioritylevelconfigurations",
        "configmaps",  # tell aggregated servers which certificates to trust
    }
)  # fmt: skip
CIDR_REPORTER = "kubernetes-service-cidr-controller"
log = logging.getLogger("kas.controllers")


class BootstrapController:
    """Restores deleted or changed objects; ``service_ranges`` is what the default ServiceCIDR should contain."""

    name = "bootstrap-controller"

    def __init__(self, registries: Registries, bootstrapper: Bootstrapper, service_ranges: list[str]) -> None:
        self._bootstrapper, self._service_ranges = bootstrapper, service_ranges
        self.client = Client(registries, CIDR_REPORTER, "system:apiserver")
        self._reported: set[str] = set()

    async def run(self) -> None:
        """Recreate missing objects every ``EVERY_S`` seconds, and when the wanted objects change, until cancelled. Objects written
        concurrently are left alone."""
        while True:
            await self._look_at_range()
            await self._bootstrapper.due(EVERY_S)
            # In the thread pool: it reads all flow-control objects, of which users may have created thousands.
            for operations in await POOL.run(self._bootstrapper.missing, KEPT):
                try:
                    await self.client.store.commit_many(operations)
                except Conflict as e:
                    log.info("%s: somebody else wrote %s", self.name, e.key)

    async def _look_at_range(self) -> None:
        """Record, once each, that the default ServiceCIDR differs from the flags or is not ready."""
        try:
            cidr = self.client.get("networking.k8s.io", "servicecidrs", "", "kubernetes")
        except TransformError:  # logged where it is read first
            return
        if cidr is None or cidr["metadata"].get("deletionTimestamp"):
            return
        have, want = cidr["spec"].get("cidrs") or [], self._service_ranges
        if have == want[:1] != want:
            return  # about to get the second family
        conditions = (cidr.get("status") or {}).get("conditions") or ()
        ready: dict[str, Any] = next((c for c in conditions if c.get("type") == "Ready"), {})
        reason, message = "", ""
        if have != want:
            reason = "KubernetesDefaultServiceCIDRInconsistent"
            message = f"The default ServiceCIDR [{' '.join(have)}] does not match the controller flag configurations [{' '.join(want)}]"
        elif ready.get("status") == "False":
            reason, message = ready.get("reason") or "", f"Configuration matches, but {ready.get('message') or ''}"
        if reason and reason not in self._reported:
            self._reported.add(reason)
            meta = cidr["metadata"]
            involved = {"kind": "ServiceCIDR", "name": meta["name"], "uid": meta.get("uid", ""), "apiVersion": "networking.k8s.io/v1"}
            await self.client.warn(involved, reason, message, CIDR_REPORTER)
