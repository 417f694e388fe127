"""StorageObjectInUseProtection: volumes, claims and attribute classes stay until nobody uses them.

Upstream: ``plugin/pkg/admission/storage/storageobjectinuseprotection``.
"""

from __future__ import annotations

from typing import Any

from kas.admission import CREATE, Attributes

FINALIZERS = {
    ("", "persistentvolumes"): "kubernetes.io/pv-protection",
    ("", "persistentvolumeclaims"): "kubernetes.io/pvc-protection",
    ("storage.k8s.io", "volumeattributesclasses"): "kubernetes.io/vac-protection",
}


class Plugin:
    name = "StorageObjectInUseProtection"

    def __init__(self, server: Any) -> None:
        pass

    def handles(self, a: Attributes) -> bool:
        return a.operation == CREATE and (a.group, a.resource) in FINALIZERS and not a.subresource

    def mutate(self, a: Attributes) -> None:
        finalizer = FINALIZERS[a.group, a.resource]
        meta = a.obj["metadata"]
        have = meta.get("finalizers") or []
        if finalizer not in have:
            meta["finalizers"] = [*have, finalizer]
