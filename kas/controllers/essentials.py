"""Keeps what every cluster has: system namespaces, the kubernetes Service with its endpoints, the default ServiceCIDR.

Upstream: ``pkg/controlplane/controller/{systemnamespaces,kubernetesservice,defaultservicecidr}`` and the flow-control ensurer.
They were written at start; this puts back what somebody deleted or changed since.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from kas.store import Conflict

EVERY_S = 10.0
KEPT = frozenset(
    {"namespaces", "services", "endpoints", "endpointslices", "servicecidrs", "flowschemas", "prioritylevelconfigurations"}
)
log = logging.getLogger("kas.controllers")


class Essentials:
    name = "bootstrap-controller"

    def __init__(self, server: Any) -> None:
        self.server = server

    async def run(self) -> None:
        while True:
            await asyncio.sleep(EVERY_S)
            for operations in self.server.missing(KEPT):
                try:
                    await self.server.store.commit_many(operations)
                except Conflict as e:
                    log.info("%s: somebody else wrote %s", self.name, e.key)
