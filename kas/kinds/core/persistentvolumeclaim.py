"""PersistentVolumeClaims (upstream ``pkg/registry/core/persistentvolumeclaim``, ``pkg/api/persistentvolumeclaim``)."""

from __future__ import annotations

from typing import Any

from kas.config import features
from kas.kinds.core.claims import claim_spec, claim_spec_warnings
from kas.kinds.core.columns import phase, short_modes, storage_class
from kas.kinds.core.objectmeta import object_meta, object_meta_update
from kas.kinds.core.pod.defaults import round_up, round_up_requirements
from kas.kinds.core.resources import amount, basic_resource, is_native, resource_quantity
from kas.meta import field, names
from kas.meta.age import age
from kas.meta.checks import unsupported
from kas.meta.equality import semantic_equal
from kas.meta.field import FieldError
from kas.meta.labelselectors import label_selector
from kas.registry.printing.cells import UNSET, part
from kas.registry.printing.rows import printer
from kas.registry.strategy import Context, Obj, Strategy, strategy_for
from kas.types.defaults import defaults_for
from kas.types.gostruct import spec_diff
from kas.types.scheme import builtin_type

CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"
IMMUTABLE = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
RESIZE_STATES = (
    "ControllerResizeInProgress", "ControllerResizeInfeasible", "NodeResizeInProgress", "NodeResizeInfeasible",
    "NodeResizePending",
)  # fmt: skip


def normalize_data_sources(spec: dict[str, Any]) -> None:
    """Fill dataSource and dataSourceRef from each other, if the older field can represent the source."""
    source, ref = spec.get("dataSource"), spec.get("dataSourceRef")
    if source is not None and ref is None:
        spec["dataSourceRef"] = dict(source)
    elif ref is not None and source is None and not ref.get("namespace"):
        spec["dataSource"] = {k: v for k, v in ref.items() if k != "namespace"}


def _drop_sources(spec: dict[str, Any], old: dict[str, Any]) -> None:
    """Drop a new data source that is not supported, unless the stored claim has one.

    References into other namespaces have a feature gate. dataSource alone always ignored everything except claims and snapshots;
    dataSourceRef accepts anything.
    """
    elsewhere = (spec.get("dataSourceRef") or {}).get("namespace") and old.get("dataSourceRef") is None
    if elsewhere and not features.DEFAULT.enabled("CrossNamespaceVolumeDataSource"):
        del spec["dataSourceRef"]
    source = spec.get("dataSource")
    if source is None or spec.get("dataSourceRef") is not None:
        return
    if old.get("dataSource") is not None or old.get("dataSourceRef") is not None:
        return
    known = (("", "PersistentVolumeClaim"), ("snapshot.storage.k8s.io", "VolumeSnapshot"))
    if (source.get("apiGroup") or "", source.get("kind")) not in known:
        del spec["dataSource"]


def _validate(obj: Obj, old: Obj | None = None) -> list[FieldError]:
    before = (old or {}).get("spec") or {}
    group = any((before.get(k) or {}).get("apiGroup") is not None for k in ("dataSource", "dataSourceRef"))
    values = bool(label_selector(before.get("selector"), ""))
    errs = object_meta(obj["metadata"], True, names.dns_subdomain)
    return errs + claim_spec(obj.get("spec") or {}, "spec", group, values)


def _storage(holder: dict[str, Any] | None) -> str:
    return (holder or {}).get("storage") or "0"


def _update(obj: Obj, old: Obj) -> list[FieldError]:
    errs = object_meta_update(obj["metadata"], old["metadata"]) + _validate(obj, old)
    spec, before = obj.get("spec") or {}, old.get("spec") or {}
    notes, old_notes = obj["metadata"].get("annotations") or {}, old["metadata"].get("annotations") or {}
    munged, clone = dict(spec), dict(before)
    normalize_data_sources(clone)  # it may have been stored without one of them
    if not before.get("volumeName"):
        if "volumeName" in munged:
            clone["volumeName"] = munged["volumeName"]
        else:
            clone.pop("volumeName", None)
    chosen, had = spec.get("storageClassName"), before.get("storageClassName")
    annotated = old_notes.get(CLASS_ANNOTATION)
    from_annotation = annotated is not None and had is None and chosen == annotated
    if from_annotation and notes.get(CLASS_ANNOTATION, annotated) == annotated:
        munged.pop("storageClassName", None)
    else:
        if (notes.get(CLASS_ANNOTATION) or "") != (annotated or ""):
            at = f"metadata.annotations.{CLASS_ANNOTATION}"
            errs.append(field.invalid(at, notes.get(CLASS_ANNOTATION) or "", "field is immutable"))
        if chosen is not None and had is None and annotated in (None, chosen):
            munged.pop("storageClassName", None)
    if (obj.get("status") or {}).get("phase") == "Bound":
        munged.pop("volumeAttributesClassName", None)
        if "volumeAttributesClassName" in clone:
            munged["volumeAttributesClassName"] = clone["volumeAttributesClassName"]
        requests = (munged.get("resources") or {}).get("requests")
        if requests is not None:
            kept = {**requests, "storage": _storage((before.get("resources") or {}).get("requests"))}
            munged["resources"] = {**munged["resources"], "requests": kept}
    if not semantic_equal(munged, clone, builtin_type("core.v1.PersistentVolumeClaimSpec")):
        diff = spec_diff("core.PersistentVolumeClaimSpec", clone, munged)
        errs.append(field.forbidden("spec", f"{IMMUTABLE}\n{diff}"))
    new_size = amount(_storage((spec.get("resources") or {}).get("requests")))
    if new_size < amount(_storage((before.get("resources") or {}).get("requests"))):
        if new_size <= amount(_storage((old.get("status") or {}).get("capacity"))):
            at = "spec.resources.requests.storage"
            errs.append(field.forbidden(at, "field can not be less than status.capacity"))
    if spec.get("volumeMode") != before.get("volumeMode"):
        errs.append(field.invalid("volumeMode", spec.get("volumeMode"), "field is immutable"))
    attributes, at = spec.get("volumeAttributesClassName"), "spec.volumeAttributesClassName"
    applied = (old.get("status") or {}).get("currentVolumeAttributesClassName") is not None
    if applied and not attributes and attributes != before.get("volumeAttributesClassName"):
        what = "nil" if attributes is None else "empty string"
        errs.append(field.forbidden(at, f"update to {what} is forbidden when status.currentVolumeAttributesClassName is not nil"))
    return errs


def _resource_key(name: str, path: str) -> list[FieldError]:
    errs = [field.invalid(path, name, m) for m in names.is_qualified_name(name)]
    if not errs and is_native(name) and name != "storage":
        errs.append(unsupported(path, name, ("storage",)))
    return errs


def _status_update(obj: Obj, old: Obj) -> list[FieldError]:
    errs = object_meta_update(obj["metadata"], old["metadata"])
    status = obj.get("status") or {}
    if not obj["metadata"].get("resourceVersion"):
        errs.append(field.required("resourceVersion"))
    if not (obj.get("spec") or {}).get("accessModes"):
        errs.append(field.required("Spec.accessModes"))
    for name in sorted(status.get("capacity") or ()):
        errs += basic_resource(status["capacity"][name], f"status.capacity[{name}]")
    path = "status.allocatedResourceStatuses"
    for name, state in sorted((status.get("allocatedResourceStatuses") or {}).items()):
        errs += _resource_key(name, path)
        if state not in RESIZE_STATES:
            errs.append(unsupported(path, name, sorted(RESIZE_STATES)))
    path = "status.allocatedResources"
    for name, text in sorted((status.get("allocatedResources") or {}).items()):
        found = _resource_key(name, path)
        if not found:
            found = basic_resource(text, f"{path}[{name}]") or resource_quantity("storage", text, f"{path}[{name}]")
        errs += found
    return errs


def _warnings(obj: Obj) -> list[str]:
    out = []
    if CLASS_ANNOTATION in (obj["metadata"].get("annotations") or {}):
        out.append(f'metadata.annotations[{CLASS_ANNOTATION}]: deprecated since v1.8; use "storageClassName" attribute instead')
    return out + claim_spec_warnings(obj.get("spec") or {}, "spec")


@strategy_for("", "persistentvolumeclaims")
class PersistentVolumeClaimStrategy(Strategy):
    """Claims; hardly anything of the spec but the requested size may change."""

    def prepare_for_create(self, ctx: Context, obj: Obj) -> None:
        """Drop the status and data sources that feature gates do not allow; fill dataSource or dataSourceRef from the other."""
        super().prepare_for_create(ctx, obj)
        spec = obj.setdefault("spec", {})
        _drop_sources(spec, {})
        normalize_data_sources(spec)

    def prepare_for_update(self, ctx: Context, obj: Obj, old: Obj) -> None:
        """Carry over the status and the stored claim's data sources."""
        super().prepare_for_update(ctx, obj, old)
        spec = obj.setdefault("spec", {})
        _drop_sources(spec, old.get("spec") or {})
        normalize_data_sources(spec)

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        """``ValidatePersistentVolumeClaim``."""
        return _validate(obj)

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """``ValidatePersistentVolumeClaimUpdate``: only the binding, the requested storage and the attributes class may change."""
        return _update(obj, old)

    def validate_status_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """``ValidatePersistentVolumeClaimStatusUpdate``."""
        return _status_update(obj, old)

    def warnings_on_create(self, ctx: Context, obj: Obj) -> list[str]:
        """Return a warning for each deprecated annotation and for requests of fractions of a byte."""
        return _warnings(obj)

    def warnings_on_update(self, ctx: Context, obj: Obj, old: Obj) -> list[str]:
        """Return the warnings that creating the new object would give."""
        return _warnings(obj)

    def as_read(self, obj: Obj) -> None:
        """Show phase Pending if none is stored, and dataSourceRef for claims stored before it existed."""
        status = obj.setdefault("status", {})
        status.setdefault("phase", "Pending")
        if obj.get("spec"):
            normalize_data_sources(obj["spec"])


@defaults_for("", "v1", "PersistentVolumeClaim")
def default_persistent_volume_claim(obj: Obj) -> None:
    """Apply computed defaults: requests, limits, capacity and allocated resources are rounded up to thousandths."""
    round_up_requirements((obj.get("spec") or {}).get("resources"))
    status = obj.get("status") or {}
    round_up(status.get("capacity"))
    round_up(status.get("allocatedResources"))


@printer("", "PersistentVolumeClaim")
def persistent_volume_claim_row(obj: Obj, now: float) -> list[Any]:
    """The cells of a Table row: name, status, volume, capacity, modes, class, attributes class, age, volume mode."""
    spec, status = part(obj, "spec"), part(obj, "status")
    volume, capacity, modes = spec.get("volumeName", ""), "", ""
    if volume:
        capacity, modes = part(status, "capacity").get("storage", "0"), short_modes(status.get("accessModes"))
    return [
        obj["metadata"].get("name", ""), phase(obj), volume, capacity, modes, storage_class(obj),
        spec.get("volumeAttributesClassName", UNSET), age(obj, now), spec.get("volumeMode", UNSET),
    ]  # fmt: skip
