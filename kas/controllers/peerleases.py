"""Where the API servers of a cluster reach one another (upstream's ``apiserver/pkg/reconcilers/peer_endpoint_lease.go``): each keeps a key
with its address and port, which ends by itself."""

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
    """Host and port that a key's object names; None when it names none, as others may write there."""
    for subset in endpoints.get("subsets") or ():
        for found in subset.get("addresses") or ():
            for port in subset.get("ports") or ():
                if found.get("ip") and port.get("port"):
                    return found["ip"], port["port"]
    return None


class PeerLease:
    """Keeps this server's key, named like its identity Lease; with its port behind that when another server of this host has it."""

    name = "peer-endpoint-lease"

    def __init__(self, registries: Registries, identity: str, host: str, port: int) -> None:
        endpoints = registries.of("", "endpoints")
        self._registry = Registry(endpoints.resource, endpoints.whole, endpoints.now, TTL_S)
        self._store, self._identity, self._host, self._port = endpoints.whole, identity, host, port
        self._uid = new_uid()  # of this start: what is served may be other than before

    async def run(self) -> None:
        """Renews the key until cancelled, and takes it away then."""
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
