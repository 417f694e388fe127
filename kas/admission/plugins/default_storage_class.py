"""DefaultStorageClass: sets the default class on a claim without a class.

Upstream: ``plugin/pkg/admission/storage/storageclass/setdefault``.
"""

from __future__ import annotations

from typing import Any

from kas.admission import CREATE, Attributes
from kas.informers import Informers
from kas.informers.informer import whole

DEFAULT = ("storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class")
CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"


def _marked(storage_class: dict[str, Any]) -> list[str]:
    """Index function for classes that are marked as default."""
    annotations = storage_class["metadata"].get("annotations") or {}
    return ["true"] if any(annotations.get(key) == "true" for key in DEFAULT) else []


class Plugin:
    """Applies to new PersistentVolumeClaims; reads StorageClasses."""

    name = "DefaultStorageClass"

    def __init__(self, informers: Informers) -> None:
        self._classes = informers.lister("storage.k8s.io", "storageclasses", whole, {"default": _marked})

    def handles(self, a: Attributes) -> bool:
        """Handle creates of PersistentVolumeClaims."""
        return a.operation == CREATE and a.resource == "persistentvolumeclaims" and not a.group and not a.subresource

    def admit(self, a: Attributes) -> None:
        """Set the default class, the newest if there are several, on a claim that specifies no class."""
        spec = a.obj.get("spec")
        annotations = a.obj["metadata"].get("annotations") or {}
        # An empty name, or the old annotation, is a choice, too: no class at all.
        if spec is None or spec.get("storageClassName") is not None or CLASS_ANNOTATION in annotations:
            return
        found = self._classes.by_index("default", "true")
        marked = [(c["metadata"].get("creationTimestamp") or "", name) for (_, name), c in found.items()]
        if marked:
            # The newest, then the first by name.
            newest = max(created for created, _ in marked)
            spec["storageClassName"] = min(name for created, name in marked if created == newest)
