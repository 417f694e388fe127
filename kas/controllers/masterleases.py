"""The addresses of a cluster's API servers (upstream's ``pkg/controlplane/reconcilers/lease.go``): each server keeps an expiring key, and
the endpoints of the kubernetes Service are the servers whose key exists."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any

from kas.controllers.client import Client
from kas.meta.errors import ApiError
from kas.registry.generic import Registry
from kas.registry.registries import Registries
from kas.store import Conflict, Draft, Op, Store, StoreError

PREFIX = "/registry/masterleases/"
TTL_S, RENEW_EVERY_S = 15, 10.0

log = logging.getLogger("kas.controllers")


def addresses(store: Store) -> list[str]:
    """Return the addresses of the live servers."""
    return [record.key.removeprefix(PREFIX) for record in store.range(PREFIX).records]


async def hold(store: Store, key: str, value: Callable[[], Draft], renewed: Callable[[], object] = lambda: None) -> None:
    """Renew an expiring key every ``RENEW_EVERY_S`` seconds until cancelled, then delete it. After another error, which is raised, the
    key remains until it expires: a caller that retries soon still has it."""
    try:
        while True:
            await store.commit(Op(key, value()))
            renewed()
            await asyncio.sleep(RENEW_EVERY_S)
    except asyncio.CancelledError:
        with contextlib.suppress(StoreError, Conflict):
            await store.commit(Op(key, None))
        raise


class MasterCount:
    """Removes this server's address from the endpoints of the kubernetes Service when it stops, as upstream's ``instancecount.go`` does
    with ``--endpoint-reconciler-type=master-count``; ``BootstrapController`` adds it."""

    name = "kubernetes-service-endpoints"

    def __init__(self, registries: Registries, address: str) -> None:
        self._registries, self._address = registries, address
        self._client = Client(registries, "kube-apiserver", "system:apiserver")

    async def run(self) -> None:
        """Wait until cancelled, then remove the address."""
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            for group, resource, leave in (
                ("", "endpoints", self._leave), ("discovery.k8s.io", "endpointslices", self._leave_slice),
            ):  # fmt: skip
                with contextlib.suppress(ApiError, StoreError):  # the remaining servers correct it
                    await self._client.update(self._registries.of(group, resource), "default", "kubernetes", leave)
            raise

    def _leave(self, endpoints: dict[str, Any]) -> bool:
        had = endpoints.get("subsets") or []
        left = [subset | {"addresses": kept} for subset in had if (kept := self._others(subset.get("addresses")))]
        endpoints["subsets"] = left
        if not left:
            del endpoints["subsets"]
        return left != had

    def _leave_slice(self, endpoint_slice: dict[str, Any]) -> bool:
        had = endpoint_slice.get("endpoints") or []
        endpoint_slice["endpoints"] = [one for one in had if one.get("addresses") != [self._address]]
        return len(endpoint_slice["endpoints"]) < len(had)

    def _others(self, addresses: list[dict[str, Any]] | None) -> list[dict[str, Any]]:
        return [address for address in addresses or () if address.get("ip") != self._address]


class MasterLeases:
    """Maintains this server's key. ``changed()`` is called when other servers have come or gone."""

    name = "kubernetes-service-endpoint-lease"

    def __init__(self, registries: Registries, address: str, changed: Callable[[], None]) -> None:
        endpoints = registries.of("", "endpoints")
        self._registry = Registry(endpoints.resource, endpoints.whole, endpoints.now, TTL_S)
        self._store, self._address, self._changed = endpoints.whole, address, changed

    async def run(self) -> None:
        """Renew the key every ``RENEW_EVERY_S`` seconds until cancelled, then delete it."""
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
