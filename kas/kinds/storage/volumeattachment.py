"""Strategy of VolumeAttachment (upstream ``pkg/registry/storage/volumeattachment``)."""

from __future__ import annotations

from typing import Any

from kas.kinds.core.claims import access_modes
from kas.kinds.core.objectmeta import object_meta
from kas.kinds.core.persistentvolume import one_source
from kas.kinds.core.pod.defaults import round_up
from kas.meta import field, names
from kas.meta.age import age
from kas.meta.checks import IMMUTABLE, csi_driver_name, invalid_each
from kas.meta.equality import semantic_equal
from kas.meta.field import FieldError
from kas.registry.printing.cells import part
from kas.registry.printing.rows import printer
from kas.registry.strategy import Context, Obj, Strategy, strategy_for
from kas.types.defaults import defaults_for
from kas.types.early import early_defaults_for
from kas.types.gostruct import render
from kas.types.scheme import builtin_type

MAX_METADATA_BYTES = 256 * 1024
MAX_ERROR_MESSAGE = 1024
NOT_INLINE = "may not be specified in the context of inline volumes"


@strategy_for("storage.k8s.io", "volumeattachments")
class VolumeAttachmentStrategy(Strategy):
    """VolumeAttachments; the spec is immutable, and the status says whether the volume is attached."""

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        """``ValidateVolumeAttachment``, and for a new object that the names of attacher and volume are valid."""
        errs = self._validate(obj)
        spec = obj.get("spec") or {}
        if spec.get("attacher"):
            errs += csi_driver_name(spec["attacher"], "spec.attacher")
        volume = (spec.get("source") or {}).get("persistentVolumeName")
        if volume is not None:
            errs += invalid_each("spec.source.persistentVolumeName", volume, names.is_dns1123_subdomain(volume))
        return errs

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """``ValidateVolumeAttachmentUpdate``: the spec may not change."""
        errs = self._validate(obj)
        if not semantic_equal(obj.get("spec"), old.get("spec"), builtin_type("storage.v1.VolumeAttachmentSpec")):
            errs.append(field.invalid("spec", render("storage.VolumeAttachmentSpec", obj.get("spec")), IMMUTABLE))
        return errs

    def validate_status_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """Validate a status update as an update of the whole object."""
        return self.validate_update(ctx, obj, old)

    def _validate(self, obj: Obj) -> list[FieldError]:
        errs = object_meta(obj["metadata"], False, names.dns_subdomain)
        spec = obj.get("spec") or {}
        if not spec.get("attacher"):
            errs.append(field.required("spec.attacher"))
        errs += _source(spec.get("source") or {}, "spec.source")
        node = spec.get("nodeName") or ""
        errs += invalid_each("spec.nodeName", node, names.is_dns1123_subdomain(node))
        return errs + _status(obj.get("status") or {})


def _source(source: dict[str, Any], path: str) -> list[FieldError]:
    inline, volume = source.get("inlineVolumeSpec"), source.get("persistentVolumeName")
    text = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
    if inline is None and volume is None:
        return [field.required(path, text)]
    if inline is not None and volume is not None:
        return [field.forbidden(path, text)]
    if volume is not None and not volume:
        return [field.required(field.child(path, "persistentVolumeName"), "must specify non empty persistentVolumeName")]
    return [] if inline is None else _inline(inline, field.child(path, "inlineVolumeSpec"))


def _inline(spec: dict[str, Any], path: str) -> list[FieldError]:
    """Validate an inline volume: of a PersistentVolume's spec, a CSI source that is neither bound nor provisioned."""
    errs: list[FieldError] = []
    if spec.get("claimRef") is not None:
        errs.append(field.forbidden(field.child(path, "claimRef"), NOT_INLINE))
    if spec.get("capacity"):
        errs.append(field.forbidden(field.child(path, "capacity"), NOT_INLINE))
    if spec.get("csi") is None:
        errs.append(field.required(field.child(path, "csi"), "has to be specified in the context of inline volumes"))
    if not spec.get("accessModes"):
        errs.append(field.required(field.child(path, "accessModes")))
    errs += access_modes(spec.get("accessModes") or (), field.child(path, "accessModes"))
    if (spec.get("persistentVolumeReclaimPolicy") or "Retain") != "Retain":
        errs.append(
            field.forbidden(field.child(path, "persistentVolumeReclaimPolicy"), "may only be Retain in the context of inline volumes")
        )
    if spec.get("nodeAffinity") is not None:
        errs.append(field.forbidden(field.child(path, "nodeAffinity"), NOT_INLINE))
    errs += one_source(spec, path, "", has_affinity=False)
    if spec.get("storageClassName"):
        errs.append(field.forbidden(field.child(path, "storageClassName"), NOT_INLINE))
    if (spec.get("volumeMode") or "Filesystem") != "Filesystem":
        text = "may not specify volumeMode other than Filesystem in the context of inline volumes"
        errs.append(field.forbidden(field.child(path, "volumeMode"), text))
    return errs


def _status(status: dict[str, Any]) -> list[FieldError]:
    errs: list[FieldError] = []
    metadata = status.get("attachmentMetadata") or {}
    if sum(len(k.encode()) + len(v.encode()) for k, v in metadata.items()) > MAX_METADATA_BYTES:
        errs.append(field.too_long("status.attachmentMetadata", MAX_METADATA_BYTES))
    for name in ("attachError", "detachError"):
        error = status.get(name) or {}
        if len((error.get("message") or "").encode()) > MAX_ERROR_MESSAGE:
            # as upstream, the message states the metadata's limit instead of the message's
            errs.append(field.too_long(f"status.{name}.message", MAX_METADATA_BYTES))
        code = error.get("errorCode")
        if code is not None and code < 0:
            errs.append(field.invalid(f"status.{name}.errorCode", code, "must be between 0 and 2147483647, inclusive"))
    return errs


_ABSENT = "kas:absent"


def _inline_volume(obj: dict[str, Any]) -> dict[str, Any]:
    return ((obj.get("spec") or {}).get("source") or {}).get("inlineVolumeSpec") or {}


@early_defaults_for("storage.k8s.io", "v1", "VolumeAttachment")
def early_volume_attachment(obj: dict[str, Any]) -> None:
    """Record for ``default_volume_attachment`` the fields that only get defaults in a PersistentVolume."""
    volume = _inline_volume(obj)
    obj[_ABSENT] = [key for key in ("persistentVolumeReclaimPolicy", "volumeMode") if not volume.get(key)]


@defaults_for("storage.k8s.io", "v1", "VolumeAttachment")
def default_volume_attachment(obj: dict[str, Any]) -> None:
    """Apply computed defaults of an inline volume; remove constant defaults that its early form did not have."""
    volume = _inline_volume(obj)
    for key in obj.pop(_ABSENT, ()):
        volume.pop(key, None)
    round_up(volume.get("capacity"))


@printer("storage.k8s.io", "VolumeAttachment")
def volume_attachment_row(obj: Obj, now: float) -> list[Any]:
    """The cells of a Table row: name, attacher, volume, node, attached, age."""
    spec = part(obj, "spec")
    return [
        obj["metadata"].get("name", ""), spec.get("attacher", ""), part(spec, "source").get("persistentVolumeName") or "",
        spec.get("nodeName", ""), part(obj, "status").get("attached", False), age(obj, now),
    ]  # fmt: skip
