"""Specs of persistent volume claims, also as templates inside pods and stateful sets (``pkg/apis/core/validation``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kas.kinds.core.resources import milli, positive_quantity, resource_quantity
from kas.meta import field, names
from kas.meta import objectmeta as metadata
from kas.meta.checks import unsupported
from kas.meta.field import FieldError
from kas.meta.labelselectors import label_selector, labels

Spec = Mapping[str, Any]
ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
VOLUME_MODES = ("Block", "Filesystem")


def access_modes(modes: Sequence[str], path: str) -> list[FieldError]:
    """Validate access modes: known ones, and ReadWriteOncePod only alone."""
    errs: list[FieldError] = []
    alone = others = False
    for mode in modes:
        if mode not in ACCESS_MODES:
            errs.append(unsupported(path, mode, ACCESS_MODES))
        elif mode == "ReadWriteOncePod":
            alone = True
        else:
            others = True
    if alone and others:
        errs.append(field.forbidden(path, "may not use ReadWriteOncePod with other access modes"))
    return errs


def _data_source(source: Spec, path: str, allow_invalid_group: bool, with_namespace: bool) -> list[FieldError]:
    group, kind = source.get("apiGroup") or "", source.get("kind") or ""
    errs: list[FieldError] = []
    if not source.get("name"):
        errs.append(field.required(f"{path}.name"))
    if not kind:
        errs.append(field.required(f"{path}.kind"))
    if not group and kind != "PersistentVolumeClaim":
        message = "must be 'PersistentVolumeClaim' when referencing the default apiGroup"
        errs.append(field.invalid(path, kind, message))
    if group and not allow_invalid_group:
        errs += [field.invalid(f"{path}.apiGroup", group, m) for m in names.is_dns1123_subdomain(group)]
    namespace = source.get("namespace")
    if with_namespace and namespace:
        errs += [field.invalid(f"{path}.namespace", namespace, m) for m in names.is_dns1123_label(namespace)]
    return errs


def claim_spec(spec: Spec, path: str, allow_invalid_group: bool = False, allow_invalid_values: bool = False) -> list[FieldError]:
    """``ValidatePersistentVolumeClaimSpec``; the ``allow_`` flags tolerate stored groups of data sources and selector values."""
    modes = spec.get("accessModes") or ()
    errs: list[FieldError] = []
    if not modes:
        errs.append(field.required(f"{path}.accessModes", "at least 1 access mode is required"))
    errs += label_selector(spec.get("selector"), f"{path}.selector", allow_invalid_values)
    errs += access_modes(modes, f"{path}.accessModes")
    storage = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    at = f"{path}.resources[storage]"
    if storage is None:
        errs.append(field.required(at))
    else:
        errs += positive_quantity(storage, at) or resource_quantity("storage", storage, at)
    class_name, mode = spec.get("storageClassName"), spec.get("volumeMode")
    if class_name:
        errs += [field.invalid(f"{path}.storageClassName", class_name, m) for m in names.is_dns1123_subdomain(class_name)]
    if mode is not None and mode not in VOLUME_MODES:
        errs.append(unsupported(f"{path}.volumeMode", mode, VOLUME_MODES))
    source, ref = spec.get("dataSource"), spec.get("dataSourceRef")
    if source is not None:
        errs += _data_source(source, f"{path}.dataSource", allow_invalid_group, False)
    if ref is not None:
        errs += _data_source(ref, f"{path}.dataSourceRef", allow_invalid_group, True)
    if ref is not None and source is not None:
        # Upstream passes a field path as the invalid value, which prints as an object without visible fields.
        if ref.get("namespace"):
            errs.append(field.invalid(path, {}, "may not be specified when dataSourceRef.namespace is specified"))
        elif any(source.get(k) != ref.get(k) for k in ("apiGroup", "kind", "name")):
            errs.append(field.invalid(path, {}, "must match dataSourceRef"))
    attributes = spec.get("volumeAttributesClassName")
    if attributes:
        at = f"{path}.volumeAttributesClassName"
        errs += [field.invalid(at, attributes, m) for m in names.is_dns1123_subdomain(attributes)]
    return errs


# The fields of ObjectMeta that a template may not set (all but two), in the struct's order.
_META_FIELDS = (
    "name", "generateName", "namespace", "selfLink", "uid", "resourceVersion", "generation", "creationTimestamp",
    "deletionTimestamp", "deletionGracePeriodSeconds", "ownerReferences", "finalizers", "managedFields",
)  # fmt: skip


_META_POINTERS = ("deletionGracePeriodSeconds", "ownerReferences", "finalizers", "managedFields")


def claim_template(template: Spec, path: str) -> list[FieldError]:
    """``ValidatePersistentVolumeClaimTemplate`` of an ephemeral volume: only labels and annotations of the metadata may be set."""
    meta = template.get("metadata") or {}
    errs = metadata.validate_annotations(meta.get("annotations"), f"{path}.metadata.annotations")
    errs += labels(meta.get("labels"), f"{path}.metadata.labels")
    for name in _META_FIELDS:
        # A field counts as set if it is not Go's zero value: an empty list is set.
        value = meta.get(name)
        if value is not None and (value or name in _META_POINTERS):
            shown = "uID" if name == "uid" else name
            errs.append(field.forbidden(f"{path}.metadata.{shown}", "cannot be set"))
    return errs + claim_spec(template.get("spec") or {}, f"{path}.spec")


def claim_spec_warnings(spec: Spec, path: str) -> list[str]:
    """Return warnings for amounts of storage that are not whole bytes (``pkg/api/persistentvolumeclaim``)."""
    out = []
    for kind in ("requests", "limits"):
        text = ((spec.get("resources") or {}).get(kind) or {}).get("storage")
        if text is not None and milli(text) % 1000:
            out.append(f"{path}.resources.{kind}[storage]: fractional byte value {field.go_quote(text)} is invalid, must be an integer")
    return out
