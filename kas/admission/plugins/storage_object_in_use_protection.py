"""StorageObjectInUseProtection: keeps volumes, claims and volume attributes classes while they are in use.

Upstream: ``plugin/pkg/admission/storage/storageobjectinuseprotection``.
"""

from __future__ import annotations

from kas.admission import CREATE, Attributes

FINALIZERS = {
    ("", "persistentvolumes"): "kubernetes.io/pv-protection",
    ("", "persistentvolumeclaims"): "kubernetes.io/pvc-protection",
    ("storage.k8s.io", "volumeattributesclasses"): "kubernetes.io/vac-protection",
}


class Plugin:
    """Applies to new volumes, claims and volume attributes classes (``FINALIZERS``)."""

    name = "StorageObjectInUseProtection"

    def handles(self, a: Attributes) -> bool:
        """Handle creates of the storage objects that are protected."""
        return a.operation == CREATE and (a.group, a.resource) in FINALIZERS and not a.subresource

    def admit(self, a: Attributes) -> None:
        """Add the finalizer that keeps the object while it is in use."""
        finalizer = FINALIZERS[a.group, a.resource]
        meta = a.obj["metadata"]
        have = meta.get("finalizers") or []
        if finalizer not in have:
            meta["finalizers"] = [*have, finalizer]
