"""The addresses of a cluster's API servers (upstream's ``pkg/controlplane/reconcilers/lease.go``): each keeps a key that ends by itself,
and the endpoints of the kubernetes Service are those whose key is there."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from kas.registry.generic import Registry
from kas.registry.registries import Registries
from kas.store import Conflict, Op, Store, StoreError

PREFIX = "/registry/masterleases/"
TTL_S, RENEW_EVERY_S = 15, 10.0

log = logging.getLogger("kas.controllers")


def addresses(store: Store) -> list[str]:
    """The addresses of the servers that live."""
    return [record.key.removeprefix(PREFIX) for record in store.range(PREFIX).records]


class MasterLeases:
    """Keeps this server's key. ``changed()`` is called when other servers have come or gone."""

    name = "kubernetes-service-endpoint-lease"

    def __init__(self, registries: Registries, address: str, changed: Callable[[], None]) -> None:
        endpoints = registries.of("", "endpoints")
        self._registry = Registry(endpoints.resource, endpoints.whole, endpoints.now, TTL_S)
        self._store, self._address, self._changed = endpoints.whole, address, changed

    async def run(self) -> None:
        """Renews the key every ``RENEW_EVERY_S`` seconds until cancelled, and takes it away then."""
        known: list[str] = []
        try:
            while True:
                await self._store.commit(Op(PREFIX + self._address, self._registry.draft(self._endpoints())))
                now = addresses(self._store)
                if now != known:
                    known = now
                    self._changed()
                await asyncio.sleep(RENEW_EVERY_S)
        finally:
            with contextlib.suppress(StoreError, Conflict):
                await self._store.commit(Op(PREFIX + self._address, None))

    def _endpoints(self) -> dict[str, object]:
        return {
            "kind": "Endpoints", "apiVersion": "v1",
            "metadata": {"name": self._address, "namespace": "kube-system", "creationTimestamp": self._registry.now()},
            "subsets": [{"addresses": [{"ip": self._address}]}],
        }  # fmt: skip
