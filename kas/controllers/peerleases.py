"""Addresses at which the API servers of a cluster reach one another (upstream's ``apiserver/pkg/reconcilers/peer_endpoint_lease.go``):
each server keeps an expiring key with its address and port."""

from __future__ import annotations

from typing import Any

from kas.controllers.masterleases import hold
from kas.meta.random import new_uid
from kas.meta.stored import object_of
from kas.registry.generic import Registry
from kas.registry.registries import Registries

PREFIX = "/registry/peerserverleases/"
TTL_S = 15


def address_of(endpoints: dict[str, Any]) -> tuple[str, int] | None:
    """Return host and port in a key's object; None if there is none, since other programs may write there."""
    for subset in endpoints.get("subsets") or ():
        for found in subset.get("addresses") or ():
            for port in subset.get("ports") or ():
                if found.get("ip") and port.get("port"):
                    return found["ip"], port["port"]
    return None


class PeerLease:
    """Maintains this server's key. It is named like the server's identity Lease, with the port appended if another server on this host
    has that name."""

    name = "peer-endpoint-lease"

    def __init__(self, registries: Registries, identity: str, host: str, port: int) -> None:
        endpoints = registries.of("", "endpoints")
        self._registry = Registry(endpoints.resource, endpoints.whole, endpoints.now, TTL_S)
        self._store, self._identity, self._host, self._port = endpoints.whole, identity, host, port
        self._uid = new_uid()  # of this start: the served resources may have changed

    async def run(self) -> None:
        """Renew the key until cancelled, then delete it."""
        key = PREFIX + self._name()
        await hold(self._store, key, lambda: self._registry.draft(self._endpoints(key)))

    def _name(self) -> str:
        found = self._store.get(PREFIX + self._identity)
        free = found is None or address_of(object_of(found)) == (self._host, self._port)
        return self._identity if free else f"{self._identity}-{self._port}"

    def _endpoints(self, key: str) -> dict[str, object]:
        return {
            "kind": "Endpoints", "apiVersion": "v1",
            "metadata": {"name": key.removeprefix(PREFIX), "namespace": "kube-system", "uid": self._uid,
                         "creationTimestamp": self._registry.now()},
            "subsets": [{"addresses": [{"ip": self._host}], "ports": [{"name": "https", "port": self._port, "protocol": "TCP"}]}],
        }  # fmt: skip
