"""The addresses of a cluster's API servers (upstream's ``pkg/controlplane/reconcilers/lease.go``): each keeps a key that ends by itself,
and the endpoints of the kubernetes Service are those whose key is there."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from kas.registry.generic import Registry
from kas.registry.registries import Registries
from kas.store import Conflict, Draft, Op, Store, StoreError

PREFIX = "/registry/masterleases/"
TTL_S, RENEW_EVERY_S = 15, 10.0

log = logging.getLogger("kas.controllers")


def addresses(store: Store) -> list[str]:
    """The addresses of the servers that live."""
    return [record.key.removeprefix(PREFIX) for record in store.range(PREFIX).records]


async def hold(store: Store, key: str, value: Callable[[], Draft], renewed: Callable[[], object] = lambda: None) -> None:
    """Renews a key that ends by itself every ``RENEW_EVERY_S`` seconds until cancelled, and takes it away then. What fails is raised, and
    leaves the key as long as it lives: who begins again soon has it still."""
    try:
        while True:
            await store.commit(Op(key, value()))
            renewed()
            await asyncio.sleep(RENEW_EVERY_S)
    except asyncio.CancelledError:
        with contextlib.suppress(StoreError, Conflict):
            await store.commit(Op(key, None))
        raise


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

        def look(*_: object) -> None:
            nonlocal known
            now = addresses(self._store)
            if now != known:
                known = now
                self._changed()

        end = self._store.listen(PREFIX, look, look)
        try:
            await hold(self._store, PREFIX + self._address, lambda: self._registry.draft(self._endpoints()), look)
        finally:
            end()

    def _endpoints(self) -> dict[str, object]:
        return {
            "kind": "Endpoints", "apiVersion": "v1",
            "metadata": {"name": self._address, "namespace": "kube-system", "creationTimestamp": self._registry.now()},
            "subsets": [{"addresses": [{"ip": self._address}]}],
        }  # fmt: skip
