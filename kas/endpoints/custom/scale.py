"""``/scale`` of custom resources: a Scale of what stands at the paths the definition names (``pkg/registry/customresource/etcd.go``)."""

from __future__ import annotations

from typing import Any

from kas.apiextensions import scalepaths
from kas.apiextensions.columns import DEFAULT_COLUMNS, Printer
from kas.endpoints.custom.served import CustomServed
from kas.endpoints.scale import Scale, Scaled, View
from kas.meta import errors
from kas.patch.fieldmanager import equal_but_metadata, shown_name
from kas.registry.strategy import Obj

MISSING = -(2**31)
_NO_SCALE = "request to convert CR to an invalid group/version: autoscaling/v1"
_NO_MANAGERS = (
    "failed to create manager for existing fields: failed to convert live object (/; autoscaling/v1, Kind=Scale) to proper version: "
    + _NO_SCALE
)
_UNREADABLE = (
    'no kind is registered for the type v1.Scale in scheme "k8s.io/apiextensions-apiserver/pkg/apiserver/customresource_handler.go:781"'
)
_PRINTER = Printer((
    {"name": "Desired", "type": "integer", "description": "Number of desired replicas", "jsonPath": ".spec.replicas"},
    {"name": "Available", "type": "integer", "description": "Number of actual replicas", "jsonPath": ".status.replicas"},
    *DEFAULT_COLUMNS,
))  # fmt: skip


def _path(scale: Obj | None) -> str | None:
    return scale["specReplicasPath"].removeprefix(".") if scale is not None else None


class CustomScaled(Scaled):
    """``served`` tells the paths, for each version."""

    def __init__(self, served: CustomServed) -> None:
        super().__init__(served)
        self._scale = served.defined.scale or {}
        versions = served.state.definition.versions
        self.replicas = {f"{served.group}/{v.name}": _path(v.scale) for v in versions if v.served}

    def of(self, parent: Obj) -> Obj:
        """The Scale of an object. Raises 500 where the replicas are missing or are none."""
        scale, replicas = self._seen(parent)
        if replicas is None:
            raise errors.internal(f'the spec replicas field "{self._scale["specReplicasPath"]}" does not exist')
        return scale

    def to_change(self, parent: Obj) -> Obj:
        """As upstream, replicas that are missing are a number nobody can send."""
        scale, replicas = self._seen(parent)
        if replicas is None:
            scale["spec"]["replicas"] = MISSING
        return scale

    def to_validate(self, parent: Obj) -> Obj:
        """Replicas that are missing are none."""
        return self._seen(parent)[0]

    def check(self, scale: Obj, live: Obj, name: str) -> None:
        """Replicas that were missing are there (400). What else is wrong with them is found in the object."""
        if (scale.get("spec") or {}).get("replicas") == MISSING:
            raise errors.bad_request(f'the spec replicas field "{self._scale["specReplicasPath"]}" cannot be empty')

    def check_apply(self, live: Obj, applied: Obj) -> None:
        """Upstream cannot make the Scale that was there before the first apply (500): nobody manages the replicas yet."""
        if "managedFields" not in live["metadata"] and (applied.get("apiVersion"), applied.get("kind")) == ("autoscaling/v1", "Scale"):
            raise errors.ApiError(500, "", _NO_MANAGERS)

    def check_applied(self, live: Obj, merged: Obj, applied: Obj) -> None:
        """Nor can upstream make a Scale of what the apply has changed (500)."""
        if not equal_but_metadata(live, merged, ("managedFields",)):
            raise errors.ApiError(500, "", f"failed to convert new object ({shown_name(applied)}) to proper version: {_NO_SCALE}")

    def unreadable(self, e: errors.ApiError) -> errors.ApiError:
        """Upstream asks the scheme of the custom resource, which has no Scale, how to tell what is wrong."""
        return errors.bad_request(_UNREADABLE) if e.code == 400 else e

    def _seen(self, parent: Obj) -> tuple[Obj, int | None]:
        """The Scale, and the replicas; None where they are missing."""
        meta, paths = parent["metadata"], self._scale
        selector = paths.get("labelSelectorPath")
        try:
            replicas = scalepaths.value_at(parent, paths["specReplicasPath"], int)
            current = scalepaths.value_at(parent, paths["statusReplicasPath"], int)
            label = scalepaths.value_at(parent, selector, str) if selector else None
        except scalepaths.PathError as e:
            raise errors.ApiError(500, "", str(e)) from None
        kept = {k: meta[k] for k in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp") if k in meta}
        out: Obj = {
            "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": kept, "spec": {"replicas": replicas} if replicas else {},
            "status": {"replicas": current or 0},
        }  # fmt: skip
        if label:
            out["status"]["selector"] = label
        return out, replicas

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

    def view(self, served: Any) -> View:
        """A Scale of a custom resource shows both numbers of replicas and its age, whatever the columns of the definition."""
        out = View()
        out.columns, out.go_type = _PRINTER, "*v1.Scale"
        return out
