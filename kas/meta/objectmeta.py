"""Validation of ObjectMeta, for every kind: apimachinery's ``pkg/api/validation/objectmeta.go`` and ``meta/v1/validation``.

It works on the plain metadata dict and returns errors in upstream's order; maps are walked in key order, where Go's order is random. The
rule on finalizers without a domain belongs to the core kinds and is in ``kas.kinds.core.objectmeta``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kas.checks import alike
from kas.meta import cached, field, names
from kas.meta.field import FieldError, go_quote
from kas.meta.labelselectors import labels as validate_labels
from kas.meta.metachecks import (
    ANNOTATIONS,
    FIELD_MANAGER_MAX_LENGTH,
    METADATA,
    OBJECT_META,
    SUBRESOURCE_MAX_LENGTH,
    TOTAL_ANNOTATION_SIZE_LIMIT_B,
)
from kas.meta.names import NameFunction

IMMUTABLE = "field is immutable"


ORPHAN = "orphan"
FOREGROUND = "foregroundDeletion"

Meta = dict[str, Any]


def validate_object_meta(
    meta: Meta, namespaced: bool, name_function: NameFunction = names.path_segment, path: str = "metadata"
) -> list[FieldError]:
    """``ValidateObjectMeta``. ``name_function`` is the kind's rule for names and, when called with True, for prefixes of generated names.
    """
    check = OBJECT_META.get((name_function, namespaced))
    if check is not None and check.passes(meta):
        return []
    errs: list[FieldError] = []
    generate_name, name, namespace = meta.get("generateName"), meta.get("name"), meta.get("namespace")
    if generate_name:
        errs += [field.invalid(f"{path}.generateName", generate_name, m) for m in name_function(generate_name, True)]
    if name:
        messages = name_function(name, False)
        if messages:
            errs += [field.invalid(f"{path}.name", name, m) for m in messages]
    else:
        errs.append(field.required(f"{path}.name", "name or generateName is required"))
    if namespaced:
        if namespace:
            errs += [field.invalid(f"{path}.namespace", namespace, m) for m in cached.dns_label(namespace)]
        else:
            errs.append(field.required(f"{path}.namespace"))
    elif namespace:
        errs.append(field.forbidden(f"{path}.namespace", "not allowed on this type"))
    if (meta.get("generation") or 0) < 0:
        errs.append(field.invalid(f"{path}.generation", meta["generation"], "must be greater than or equal to 0"))
    errs += validate_labels(meta.get("labels"), f"{path}.labels")
    errs += validate_annotations(meta.get("annotations"), f"{path}.annotations")
    errs += validate_owner_references(meta.get("ownerReferences"), f"{path}.ownerReferences")
    errs += validate_finalizers(meta.get("finalizers"), f"{path}.finalizers")
    errs += validate_managed_fields(meta.get("managedFields"), f"{path}.managedFields")
    return errs


# In upstream's order. JSON values are compared; an absent one counts as the zero value.
_IMMUTABLE_FIELDS = (
    ("name", ""), ("namespace", ""), ("uid", ""), ("creationTimestamp", None), ("deletionTimestamp", None),
    ("deletionGracePeriodSeconds", None),
)  # fmt: skip
_IMMUTABLE_NAMES = tuple(name for name, _ in _IMMUTABLE_FIELDS)


def validate_replaced_object_meta(meta: Meta, old: Meta, namespaced: bool) -> list[FieldError]:
    """``validate_object_meta`` and ``validate_object_meta_update`` together. Metadata that passes the fast check of the former has none of
    the new-value errors of the latter.
    """
    if OBJECT_META[names.path_segment, namespaced].passes(meta):
        return validate_object_meta_update(meta, old, passed=True)
    return validate_object_meta(meta, namespaced) + validate_object_meta_update(meta, old)


def validate_object_meta_update(meta: Meta, old: Meta, path: str = "metadata", passed: bool = False) -> list[FieldError]:
    """``ValidateObjectMetaUpdate``: what an update may not change or add. ``passed`` says that the new values have been checked already."""
    errs: list[FieldError] = []
    if old.get("deletionTimestamp"):
        extra = sorted(set(meta.get("finalizers") or ()) - set(old.get("finalizers") or ()))
        if extra:
            shown = ", ".join(map(go_quote, extra))
            errs.append(
                field.forbidden(
                    f"{path}.finalizers",
                    f"no new finalizers can be added if the object is being deleted, found new finalizers []string{{{shown}}}",
                )
            )
    if not meta.get("resourceVersion"):
        errs.append(field.invalid(f"{path}.resourceVersion", "", "must be specified for an update"))
    if (meta.get("generation") or 0) < (old.get("generation") or 0):
        errs.append(field.invalid(f"{path}.generation", meta.get("generation") or 0, "must not be decremented"))
    if not alike(meta, old, _IMMUTABLE_NAMES):
        for name, zero in _IMMUTABLE_FIELDS:
            value, had = meta.get(name), old.get(name)
            if value != had and (zero if value is None else value) != (zero if had is None else had):
                errs.append(field.invalid(f"{path}.{name}", meta.get(name, zero), IMMUTABLE))
    if passed or METADATA.passes(meta):
        return errs
    errs += validate_labels(meta.get("labels"), f"{path}.labels")
    errs += validate_annotations(meta.get("annotations"), f"{path}.annotations")
    errs += validate_owner_references(meta.get("ownerReferences"), f"{path}.ownerReferences")
    errs += validate_managed_fields(meta.get("managedFields"), f"{path}.managedFields")
    return errs


def validate_annotations(annotations: Mapping[str, str] | None, path: str) -> list[FieldError]:
    """``ValidateAnnotations``: keys are case-insensitive qualified names, and the total size is bounded."""
    if not annotations or ANNOTATIONS.passes(annotations):
        return []
    errs: list[FieldError] = []
    total = 0
    for key in sorted(annotations):
        errs += [field.invalid(path, key, m) for m in names.is_qualified_name(key.lower())]
        total += names.byte_length(key) + names.byte_length(annotations[key])
    if total > TOTAL_ANNOTATION_SIZE_LIMIT_B:
        errs.append(field.too_long(path, TOTAL_ANNOTATION_SIZE_LIMIT_B))
    return errs


_REFERENCE_FIELDS = ("apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion")


def _reference(ref: Meta) -> dict[str, Any]:
    """A reference as Go prints it: always its four strings, and its two pointers when set."""
    out: dict[str, Any] = {name: ref.get(name) or "" for name in _REFERENCE_FIELDS[:4]}
    out.update((name, ref[name]) for name in _REFERENCE_FIELDS[4:] if ref.get(name) is not None)
    return out


def validate_owner_references(references: Sequence[Meta] | None, path: str) -> list[FieldError]:
    """``ValidateOwnerReferences``: each is complete, and at most one is a controller."""
    if not references:
        return []
    errs: list[FieldError] = []
    first_controller = ""
    shown: list[dict[str, Any]] = []  # built once: the error of each further controller prints all references
    for ref in references:
        errs += _owner_reference(ref, path)
        if ref.get("controller"):
            this = f"{ref.get('kind') or ''}/{ref.get('name') or ''}"
            if first_controller:
                why = "Only one reference can have Controller set to true."
                why += f' Found "true" in references for {first_controller} and {this}'
                shown = shown or [_reference(r) for r in references]
                errs.append(field.invalid(path, shown, why))
            else:
                first_controller = this
    return errs


def _owner_reference(ref: Meta, path: str) -> list[FieldError]:
    errs: list[FieldError] = []
    api_version, kind = ref.get("apiVersion") or "", ref.get("kind") or ""
    # A text with two slashes is not a group version.
    group, _, version = api_version.rpartition("/") if api_version.count("/") < 2 else ("", "", "")
    if not version:
        errs.append(field.invalid(f"{path}.apiVersion", api_version, "version must not be empty"))
    for name in ("kind", "name", "uid"):
        if not ref.get(name):
            errs.append(field.invalid(f"{path}.{name}", "", "must not be empty"))
    if (group, version, kind) == ("", "v1", "Event"):
        errs.append(field.invalid(path, _reference(ref), "/v1, Kind=Event is disallowed from being an owner"))
    return errs


def validate_finalizers(finalizers: Sequence[str] | None, path: str) -> list[FieldError]:
    """``ValidateFinalizers``: qualified names; orphan and foreground deletion exclude each other."""
    if not finalizers:
        return []
    errs = [field.invalid(path, name, m) for name in finalizers for m in names.is_qualified_name(name)]
    if ORPHAN in finalizers and FOREGROUND in finalizers:
        errs.append(field.invalid(path, list(finalizers), f"finalizer {ORPHAN} and {FOREGROUND} cannot be both set"))
    return errs


def validate_field_manager(manager: str, path: str) -> list[FieldError]:
    """``ValidateFieldManager``. Empty is valid here; server-side apply requires one itself."""
    errs: list[FieldError] = []
    if names.byte_length(manager) > FIELD_MANAGER_MAX_LENGTH:
        errs.append(field.too_long(path, FIELD_MANAGER_MAX_LENGTH))
    if not manager.isprintable():
        position = 0
        for c in manager:
            if not c.isprintable():
                errs.append(field.invalid(path, manager, f"invalid character U+{ord(c):04X} (at position {position})"))
            position += names.byte_length(c)
    return errs


def validate_managed_fields(entries: Sequence[Meta] | None, path: str) -> list[FieldError]:
    """``ValidateManagedFields``: operations, versions and the form of each entry."""
    if not entries:
        return []
    errs: list[FieldError] = []
    for i, entry in enumerate(entries):
        at, operation, fields_type = f"{path}[{i}]", entry.get("operation") or "", entry.get("fieldsType") or ""
        if operation not in ("Apply", "Update"):
            errs.append(field.invalid(f"{at}.operation", operation, "must be `Apply` or `Update`"))
        if fields_type and fields_type != "FieldsV1":
            errs.append(field.invalid(f"{at}.fieldsType", fields_type, "must be `FieldsV1`"))
        errs += validate_field_manager(entry.get("manager") or "", f"{at}.manager")
        if names.byte_length(entry.get("subresource") or "") > SUBRESOURCE_MAX_LENGTH:
            errs.append(field.too_long(f"{at}.subresource", SUBRESOURCE_MAX_LENGTH))
    return errs
