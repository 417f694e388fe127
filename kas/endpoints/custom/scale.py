"""``/scale`` of custom resources: a Scale of the values at the definition's paths (``pkg/registry/customresource/etcd.go``)."""

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
    """The Scale view of a custom resource, with the paths of each version from ``served``."""

    def __init__(self, served: CustomServed) -> None:
        super().__init__(served)
        self._scale = served.defined.scale or {}
        versions = served.state.definition.versions
        self.replicas = {f"{served.group}/{v.name}": _path(v.scale) for v in versions if v.served}

    def of(self, parent: Obj) -> Obj:
        """Return the Scale of an object. Raises 500 if the replicas are missing or not a number."""
        scale, replicas = self._seen(parent)
        if replicas is None:
            raise errors.internal(f'the spec replicas field "{self._scale["specReplicasPath"]}" does not exist')
        return scale

    def to_change(self, parent: Obj) -> Obj:
        """Return the Scale to modify. Like upstream, missing replicas are replaced by a number that no client can send."""
        scale, replicas = self._seen(parent)
        if replicas is None:
            scale["spec"]["replicas"] = MISSING
        return scale

    def to_validate(self, parent: Obj) -> Obj:
        """Return the Scale for validation; missing replicas are left out."""
        return self._seen(parent)[0]

    def check(self, scale: Obj, live: Obj, name: str) -> None:
        """Raise 400 if replicas that were missing are still missing. Other errors are found when the object is validated."""
        if (scale.get("spec") or {}).get("replicas") == MISSING:
            raise errors.bad_request(f'the spec replicas field "{self._scale["specReplicasPath"]}" cannot be empty')

    def check_apply(self, live: Obj, applied: Obj) -> None:
        """Raise 500 for the first apply: as upstream, which cannot build the live Scale while no manager owns the replicas."""
        if "managedFields" not in live["metadata"] and (applied.get("apiVersion"), applied.get("kind")) == ("autoscaling/v1", "Scale"):
            raise errors.ApiError(500, "", _NO_MANAGERS)

    def check_applied(self, live: Obj, merged: Obj, applied: Obj) -> None:
        """Raise 500 for an apply that changes the Scale: upstream cannot convert the result."""
        if not equal_but_metadata(live, merged, ("managedFields",)):
            raise errors.ApiError(500, "", f"failed to convert new object ({shown_name(applied)}) to proper version: {_NO_SCALE}")

    def unreadable(self, e: errors.ApiError) -> errors.ApiError:
        """Return the error for an invalid body. Upstream formats it with the custom resource's scheme, which does not have Scale."""
        return errors.bad_request(_UNREADABLE) if e.code == 400 else e

    def _seen(self, parent: Obj) -> tuple[Obj, int | None]:
        """Return the Scale and the replicas, None if they are missing."""
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
        """Return the object with these replicas; missing parent maps are added. Raises 500 if a value of another type is in the way."""
        try:
            return scalepaths.set_at(parent, self._scale["specReplicasPath"], replicas)
        except scalepaths.PathError as e:
            raise errors.ApiError(500, "", str(e)) from None


class CustomScale(Scale):
    """The handlers of ``/scale`` for custom resources."""

    def scaled(self, served: Any) -> Scaled:
        """Return the Scale view of a custom resource."""
        return CustomScaled(served)

    def view(self, served: Any) -> View:
        """Return the Table view: desired and available replicas and the age, whatever columns the definition has."""
        out = View()
        out.columns, out.go_type = _PRINTER, "*v1.Scale"
        return out
