"""Keeps what every cluster has: system namespaces, the kubernetes Service with its endpoints, the default ServiceCIDR, the ConfigMaps
in kube-system that are the server's.

Upstream: ``pkg/controlplane/controller/{systemnamespaces,kubernetesservice,defaultservicecidr,clusterauthenticationtrust}`` and the
flow-control ensurer.
They were written at start; this puts back what somebody deleted or changed since.
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
        "configmaps",  # by which aggregated servers know whom to believe
    }
)  # fmt: skip
CIDR_REPORTER = "kubernetes-service-cidr-controller"
log = logging.getLogger("kas.controllers")


class Essentials:
    """Puts back what was deleted or changed; ``service_ranges`` are what the default ServiceCIDR should be."""

    name = "bootstrap-controller"

    def __init__(self, registries: Registries, bootstrapper: Bootstrapper, service_ranges: list[str]) -> None:
        self._bootstrapper, self._service_ranges = bootstrapper, service_ranges
        self.client = Client(registries, CIDR_REPORTER, "system:apiserver")
        self._told: set[str] = set()

    async def run(self) -> None:
        """Every ``EVERY_S`` seconds, and when something else is wanted, create again what is missing, until cancelled; who writes one
        meanwhile is left alone."""
        while True:
            await self._look_at_range()
            await self._bootstrapper.due(EVERY_S)
            # All that flow control has is looked at, and somebody may have made thousands of that.
            for operations in await POOL.run(self._bootstrapper.missing, KEPT):
                try:
                    await self.client.store.commit_many(operations)
                except Conflict as e:
                    log.info("%s: somebody else wrote %s", self.name, e.key)

    async def _look_at_range(self) -> None:
        """Says, once each, that the default ServiceCIDR is another than the flags name, or is not ready."""
        try:
            cidr = self.client.get("networking.k8s.io", "servicecidrs", "", "kubernetes")
        except TransformError:  # the log says so where it is read first
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
        if reason and reason not in self._told:
            self._told.add(reason)
            meta = cidr["metadata"]
            involved = {"kind": "ServiceCIDR", "name": meta["name"], "uid": meta.get("uid", ""), "apiVersion": "networking.k8s.io/v1"}
            await self.client.warn(involved, reason, message, CIDR_REPORTER)
