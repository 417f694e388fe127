"""The objects every namespace has: the service account ``default`` and the ConfigMap with the cluster's CA.

Upstream: ``pkg/controller/serviceaccount/serviceaccounts_controller.go``, ``pkg/controller/certificates/rootcacertpublisher``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kas.controllers.client import Client, split_key
from kas.controllers.queue import WorkQueue, follow
from kas.meta.errors import ApiError
from kas.registry.registries import Registries
from kas.store import Event, Record

MANAGER = "kube-controller-manager"
CONFIG_MAP = "kube-root-ca.crt"
DESCRIPTION = (
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or "
    "kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters."
)


class _PerNamespace:
    """Follows namespaces, and the one object that each of them must have."""

    name = ""
    resource = ""
    object_name = ""

    def __init__(self, registries: Registries) -> None:
        self.client = Client(registries, MANAGER, f"system:serviceaccount:kube-system:{self.account}")
        self.namespaces = registries.of("", "namespaces")
        self.registry = registries.of("", self.resource)
        self.queue = WorkQueue(self._sync, self.name)

    account = ""

    async def run(self) -> None:
        namespaces = self.client.reflector(self.namespaces.root, self._namespace_events, self._namespaces_listed)
        await follow(self.queue, [namespaces, self.client.reflector(self.registry.root, self._object_events)], 4)

    def _namespaces_listed(self, records: Sequence[Record]) -> None:
        for rec in records:
            self.queue.add(split_key(self.namespaces, rec.key)[1])

    def _namespace_events(self, events: Sequence[Event]) -> None:
        for e in events:
            if e.record is not None:
                self.queue.add(split_key(self.namespaces, e.key)[1])

    def _object_events(self, events: Sequence[Event]) -> None:
        for e in events:
            if e.key.endswith("/" + self.object_name) and self._interesting(e):
                self.queue.add(split_key(self.registry, e.key)[0])

    def _interesting(self, event: Event) -> bool:
        return event.record is None

    async def _sync(self, namespace: str) -> None:
        obj = self.client.get("", "namespaces", "", namespace)
        if obj is None or obj["metadata"].get("deletionTimestamp") or (obj.get("status") or {}).get("phase") == "Terminating":
            return
        await self._ensure(namespace)

    async def _ensure(self, namespace: str) -> None:
        raise NotImplementedError


class DefaultServiceAccounts(_PerNamespace):
    """Keeps a ServiceAccount "default" in every namespace."""

    name, resource, object_name, account = "serviceaccount-controller", "serviceaccounts", "default", "service-account-controller"

    async def _ensure(self, namespace: str) -> None:
        if self.client.get("", self.resource, namespace, self.object_name) is None:
            meta = {"name": self.object_name, "namespace": namespace}
            await self.client.create("", self.resource, {"kind": "ServiceAccount", "apiVersion": "v1", "metadata": meta})


class RootCA(_PerNamespace):
    """Publishes the certificate that clients in the cluster trust: our own CA, or the configured serving certificate.

    ``root_ca`` is its file.
    """

    name, resource, object_name = "root-ca-certificate-publisher-controller", "configmaps", CONFIG_MAP
    account = "root-ca-cert-publisher"

    def __init__(self, registries: Registries, root_ca: Path) -> None:
        super().__init__(registries)
        self._path = root_ca

    def _interesting(self, event: Event) -> bool:
        return True  # comparing needs the CA file, and reading it may fail

    def _data(self) -> dict[str, str]:
        return {"ca.crt": self._path.read_text()}

    def _wrong(self, config_map: dict[str, Any]) -> bool:
        described = (config_map["metadata"].get("annotations") or {}).get("kubernetes.io/description")
        return config_map.get("data") != self._data() or not described

    async def _ensure(self, namespace: str) -> None:
        have = self.client.get("", self.resource, namespace, CONFIG_MAP)
        if have is None:
            meta = {"name": CONFIG_MAP, "namespace": namespace, "annotations": {"kubernetes.io/description": DESCRIPTION}}
            await self.client.create("", self.resource, {"kind": "ConfigMap", "apiVersion": "v1", "metadata": meta, "data": self._data()})
        elif self._wrong(have):

            def repair(obj: dict[str, Any]) -> bool:
                obj["data"] = self._data()
                meta = obj["metadata"]
                meta["annotations"] = {**(meta.get("annotations") or {}), "kubernetes.io/description": DESCRIPTION}
                return True

            try:
                await self.client.update(self.registry, namespace, CONFIG_MAP, repair)
            except ApiError as e:
                if e.code != 422:
                    raise  # an immutable one is left as it is
