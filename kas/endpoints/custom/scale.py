"""``/scale`` of custom resources: a Scale of what stands at the paths the definition names (``pkg/registry/customresource/etcd.go``)."""

from __future__ import annotations

from typing import Any

from kas.apiextensions import scalepaths
from kas.endpoints.custom.served import CustomServed
from kas.endpoints.scale import Scale, Scaled
from kas.meta import errors
from kas.registry.strategy import Obj


def _path(scale: Obj | None) -> str | None:
    return scale["specReplicasPath"].removeprefix(".") if scale is not None else None


class CustomScaled(Scaled):
    """``served`` tells the paths, for each version."""

    def __init__(self, served: CustomServed) -> None:
        super().__init__(served)
        self._scale = served.defined.scale or {}
        versions = served.state.versions.values()
        self.replicas = {v.api_version: _path(v.defined.scale) for v in versions}

    def of(self, parent: Obj) -> Obj:
        """The Scale of an object. Raises 500 where the replicas are missing or are none."""
        meta, paths = parent["metadata"], self._scale
        selector = paths.get("labelSelectorPath")
        try:
            replicas = scalepaths.value_at(parent, paths["specReplicasPath"], int)
            current = scalepaths.value_at(parent, paths["statusReplicasPath"], int)
            label = scalepaths.value_at(parent, selector, str) if selector else None
        except scalepaths.PathError as e:
            raise errors.ApiError(500, "", str(e)) from None
        if replicas is None:
            raise errors.ApiError(500, "", f'the spec replicas field "{paths["specReplicasPath"]}" does not exist')
        kept = {k: meta[k] for k in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp") if k in meta}
        out: Obj = {
            "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": kept, "spec": {"replicas": replicas} if replicas else {},
            "status": {"replicas": current or 0},
        }  # fmt: skip
        if label:
            out["status"]["selector"] = label
        return out

    def onto(self, parent: Obj, replicas: int) -> Obj:
        """The object with these replicas; maps on the way are made. Raises 500 where something else stands there."""
        try:
            return scalepaths.set_at(parent, self._scale["specReplicasPath"], replicas)
        except scalepaths.PathError as e:
            raise errors.ApiError(500, "", str(e)) from None


class CustomScale(Scale):
    """The handlers."""

    def scaled(self, served: Any) -> Scaled:
        """The view of a custom resource."""
        return CustomScaled(served)
