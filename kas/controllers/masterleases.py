"""The addresses of a cluster's API servers (upstream's ``pkg/controlplane/reconcilers/lease.go``): each keeps a key that ends by itself,
and the endpoints of the kubernetes Service are those whose key is there."""

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


class MasterCount:
    """Takes this server's address from the endpoints of the kubernetes Service when it ends, as upstream's ``instancecount.go`` does with
    ``--endpoint-reconciler-type=master-count``; ``Essentials`` puts it there."""

    name = "kubernetes-service-endpoints"

    def __init__(self, registries: Registries, address: str) -> None:
        self._registries, self._address = registries, address
        self._client = Client(registries, "kube-apiserver", "system:apiserver")

    async def run(self) -> None:
        """Waits until cancelled, and takes the address away then."""
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            for group, resource, leave in (
                ("", "endpoints", self._leave), ("discovery.k8s.io", "endpointslices", self._leave_slice),
            ):  # fmt: skip
                with contextlib.suppress(ApiError, StoreError):  # whoever is there next sees to it
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
