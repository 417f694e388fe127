"""PersistentVolumeClaimResize: a claim may grow only if its class allows it.

Upstream: ``plugin/pkg/admission/storage/persistentvolume/resize``.
"""

from __future__ import annotations

from typing import Any

from kas.admission import UPDATE, Attributes
from kas.informers import Informers
from kas.informers.informer import whole
from kas.kinds.core.columns import storage_class
from kas.meta.quantity import cached as quantity


def _storage(claim: dict[str, Any]) -> str:
    return ((claim["spec"].get("resources") or {}).get("requests") or {}).get("storage") or "0"


class Plugin:
    """Applies to updates of PersistentVolumeClaims; reads the StorageClass of one that grows."""

    name = "PersistentVolumeClaimResize"

    def __init__(self, informers: Informers) -> None:
        self._classes = informers.lister("storage.k8s.io", "storageclasses", whole)

    def handles(self, a: Attributes) -> bool:
        """Handle updates of PersistentVolumeClaims."""
        return a.operation == UPDATE and a.resource == "persistentvolumeclaims" and not a.group and not a.subresource

    def validate(self, a: Attributes) -> None:
        """Refuse to grow a claim that is not bound, or whose class does not allow it."""
        wanted, had = quantity(_storage(a.obj)), quantity(_storage(a.old))
        if wanted <= had:
            return
        if (a.old.get("status") or {}).get("phase") != "Bound":
            raise a.forbid("Only bound persistent volume claims can be expanded")
        name = storage_class(a.obj)
        if name and name == storage_class(a.old) and (self._classes.all().get(name) or {}).get("allowVolumeExpansion"):
            return
        raise a.forbid(
            "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize"
        )
