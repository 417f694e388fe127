"""Strategy of VolumeAttachment (upstream ``pkg/registry/storage/volumeattachment``)."""

from __future__ import annotations

from typing import Any

from kas.api import field
from kas.api.equality import semantic_equal
from kas.api.field import FieldError
from kas.api.validation import names
from kas.api.validation.checks import IMMUTABLE, csi_driver_name, go_struct, invalid_each
from kas.api.validation.coremeta import object_meta
from kas.registry.strategy import Context, Obj, Strategy, strategy_for

MAX_METADATA_BYTES = 256 * 1024
MAX_ERROR_MESSAGE = 1024


@strategy_for("storage.k8s.io", "volumeattachments")
class VolumeAttachmentStrategy(Strategy):
    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        errs = self._validate(obj)
        spec = obj.get("spec") or {}
        if spec.get("attacher"):
            errs += csi_driver_name(spec["attacher"], "spec.attacher")
        volume = (spec.get("source") or {}).get("persistentVolumeName")
        if volume is not None:
            errs += invalid_each("spec.source.persistentVolumeName", volume, names.is_dns1123_subdomain(volume))
        return errs

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        errs = self._validate(obj)
        if not semantic_equal(obj.get("spec"), old.get("spec")):
            errs.append(field.invalid("spec", _shown(obj.get("spec") or {}), IMMUTABLE))
        return errs

    def validate_status_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
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
    return []


def _status(status: dict[str, Any]) -> list[FieldError]:
    errs: list[FieldError] = []
    metadata = status.get("attachmentMetadata") or {}
    if sum(len(k.encode()) + len(v.encode()) for k, v in metadata.items()) > MAX_METADATA_BYTES:
        errs.append(field.too_long("status.attachmentMetadata", MAX_METADATA_BYTES))
    for name in ("attachError", "detachError"):
        error = status.get(name) or {}
        if len((error.get("message") or "").encode()) > MAX_ERROR_MESSAGE:
            # the limit named is the metadata's, not the message's: upstream's own slip
            errs.append(field.too_long(f"status.{name}.message", MAX_METADATA_BYTES))
        code = error.get("errorCode")
        if code is not None and code < 0:
            errs.append(field.invalid(f"status.{name}.errorCode", code, "must be between 0 and 2147483647, inclusive"))
    return errs


def _shown(spec: dict[str, Any]) -> dict[str, Any] | None:
    def source(value: dict[str, Any]) -> dict[str, Any] | None:
        return go_struct(value, ("PersistentVolumeName", "persistentVolumeName", None), ("InlineVolumeSpec", "inlineVolumeSpec", None))

    nothing = source({})
    return go_struct(spec, ("Attacher", "attacher", ""), ("Source", "source", nothing, source), ("NodeName", "nodeName", ""))
