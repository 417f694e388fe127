"""DefaultStorageClass: a claim that names no class gets the default one.

Uses ``server.store`` (StorageClasses, followed). Upstream: ``plugin/pkg/admission/storage/storageclass/setdefault``.
"""

from __future__ import annotations

from typing import Any

from kas.admission import CREATE, Attributes
from kas.admission.plugins._derived import Followed

DEFAULT = ("storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class")
CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"


def newest_default(classes: dict[str, dict[str, Any]], annotations: tuple[str, ...]) -> str:
    """Of the classes marked as default the newest, then the first by name; "" without one."""
    marked = [
        (c["metadata"].get("creationTimestamp") or "", name)
        for name, c in classes.items()
        if any((c["metadata"].get("annotations") or {}).get(key) == "true" for key in annotations)
    ]
    if not marked:
        return ""
    newest = max(created for created, _ in marked)
    return min(name for created, name in marked if created == newest)


class Plugin:
    name = "DefaultStorageClass"

    def __init__(self, server: Any) -> None:
        self._classes = Followed(server, "storage.k8s.io", "storageclasses")

    def handles(self, a: Attributes) -> bool:
        return a.operation == CREATE and a.resource == "persistentvolumeclaims" and not a.group and not a.subresource

    def mutate(self, a: Attributes) -> None:
        spec = a.obj.get("spec")
        annotations = a.obj["metadata"].get("annotations") or {}
        # An empty name, or the old annotation, says something too: no class at all.
        if spec is None or spec.get("storageClassName") is not None or CLASS_ANNOTATION in annotations:
            return
        name = newest_default(self._classes.all(), DEFAULT)
        if name:
            spec["storageClassName"] = name
