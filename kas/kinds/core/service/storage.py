"""What Services need in addition to the generic registry: an allocator, and deletion of their Endpoints (upstream
``pkg/registry/core/service/storage``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from kas.meta.errors import ApiError
from kas.meta.lazy import Lazy
from kas.registry.registries import Registries
from kas.registry.strategy import Context, Obj


def install(registries: Registries, families: Sequence[str], node_ports: tuple[int, int], beside_others: bool = False) -> None:
    """Make the Services of ``registries`` use addresses of these IP families, the default first, and ports of this range.

    ``beside_others``: a kube-apiserver may allocate from the same store.
    """
    services, endpoints = registries.of("", "services"), registries.of("", "endpoints")

    def allocator() -> Any:
        from kas.kinds.core.service.allocation import ServiceAllocator  # large, and not needed before the first Service

        addresses, ranges = registries.of("networking.k8s.io", "ipaddresses"), registries.of("networking.k8s.io", "servicecidrs")
        return ServiceAllocator(list(families), node_ports, addresses, ranges, beside_others)

    services.allocator = Lazy(allocator)

    async def delete_endpoints(service: Obj, ctx: Context) -> None:
        with contextlib.suppress(ApiError):  # there may be none, or another request may have deleted it
            await endpoints.delete(ctx, service["metadata"]["name"], {})

    services.after_delete = delete_endpoints
