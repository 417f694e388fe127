"""apiVersion, kind and metadata of custom resources and of the objects embedded in them.

Upstream: apiextensions-apiserver ``pkg/apiserver/schema/objectmeta``.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import cache
from typing import Any

from kas.meta import field, names
from kas.meta.field import FieldError
from kas.meta.objectmeta import validate_object_meta
from kas.types.scheme import DecodeError, Field, TypeDesc, builtin_type, decode, write_json

Obj = dict[str, Any]


# Metadata fields whose empty values are kept; all others are omitted when empty (``omitempty``).
_SAY_SOMETHING = frozenset({"deletionGracePeriodSeconds"})


class MetadataError(ValueError):
    """The metadata has the wrong type; ``error`` is the field error that upstream answers as a 400."""

    def __init__(self, error: FieldError) -> None:
        super().__init__(str(error))
        self.error = error


@cache
def _object_meta() -> TypeDesc:
    return builtin_type("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta")


def embedded(type: TypeDesc, obj: Obj) -> Iterator[tuple[str, Obj]]:
    """Yield (path, object) for each embedded object with its own metadata inside ``obj``, but not ``obj`` itself, in the object's order."""
    return _inside(type, None, obj, "")


def _inside(type: TypeDesc | None, f: Field | None, value: Any, path: str) -> Iterator[tuple[str, Obj]]:
    f = f and f.of(value)
    if isinstance(value, dict):
        if f is not None and f.card == "map":
            for key, inner in value.items():
                yield from _below(f.element, inner, field.key(path, key))
            return
        t = type if f is None else f.message
        if t is None:
            return
        for key, inner in value.items():
            known = t.by_name.get(key)
            if known is not None:
                yield from _below(known, inner, field.child(path, key))
            elif t.additional is not None:
                yield from _below(t.additional, inner, field.key(path, key))
    elif isinstance(value, list) and f is not None and f.card == "list":
        for i, item in enumerate(value):
            yield from _below(f.element, item, field.index(path, i))


def _below(f: Field, value: Any, path: str) -> Iterator[tuple[str, Obj]]:
    if f.card == "single" and f.message is not None and f.message.embedded and isinstance(value, dict):
        yield path, value
    yield from _inside(None, f, value, path)


def coerce(type: TypeDesc, obj: Obj, is_root: bool = True, drop: bool = False) -> list[str]:
    """Give metadata its typed form, in place, in the object and in embedded ones; return the paths of unknown fields.

    Raises MetadataError if metadata, an apiVersion or a kind has the wrong type. With ``drop`` fields of the wrong type are dropped
    instead, and metadata that is not an object stays.
    """
    unknown: list[str] = []
    if is_root:
        unknown += _coerce(obj, "", drop)
    for path, inner in embedded(type, obj):
        unknown += _coerce(inner, path, drop)
    return sorted(unknown)


def coerce_own(obj: Obj, drop: bool = False) -> list[str]:
    """``coerce`` for an object of a type without embedded objects."""
    return sorted(_coerce(obj, "", drop))


def _coerce(obj: Obj, path: str, drop: bool) -> list[str]:
    for key in ("apiVersion", "kind"):
        if key in obj and not isinstance(obj[key], str):
            if drop:
                del obj[key]
                continue
            raise MetadataError(field.invalid(field.child(path, key), field.as_read(obj[key]), "must be a string"))
    if "metadata" not in obj:
        return []
    at = field.child(path, "metadata")
    try:
        obj["metadata"], found = decode(_object_meta(), obj["metadata"], write_json(obj["metadata"]))
    except DecodeError as e:
        if not drop:
            raise MetadataError(field.invalid(at, field.as_read(obj["metadata"]), str(e))) from None
        if not isinstance(obj["metadata"], dict):
            return []
        fit = {key: value for key, value in obj["metadata"].items() if _fits({key: value})}
        obj["metadata"], found = decode(_object_meta(), fit, write_json(fit))
    meta = obj["metadata"]
    for key in [k for k, v in meta.items() if not v and k not in _SAY_SOMETHING]:
        del meta[key]
    return [f"{at}.{text.removeprefix('unknown field ')[1:-1]}" for text in found]


def _fits(meta: Obj) -> bool:
    try:
        decode(_object_meta(), copy.deepcopy(meta), write_json(meta))
    except DecodeError:
        return False
    return True


def errors(type: TypeDesc, obj: Obj) -> list[FieldError]:
    """Return the errors in the types and metadata of the objects inside ``obj``."""
    errs: list[FieldError] = []
    for path, inner in embedded(type, obj):
        errs += resource_errors(inner, path)
    return errs


def resource_errors(obj: Obj, path: str) -> list[FieldError]:
    """As ``errors``, for one object, which must have an apiVersion and a kind but needs no metadata."""
    errs = _type_errors(obj, "apiVersion", path) + _type_errors(obj, "kind", path)
    if "metadata" in obj:
        at = field.child(path, "metadata")
        try:
            meta, _ = decode(_object_meta(), obj["metadata"], write_json(obj["metadata"]))
        except DecodeError as e:
            return [*errs, field.invalid(at, field.as_read(obj["metadata"]), str(e))]
        named = meta if meta.get("name") else {**meta, "name": "fakename"}
        errs += validate_object_meta(named, bool(meta.get("namespace")), names.path_segment, at)
    return errs


def _type_errors(obj: Obj, key: str, path: str) -> list[FieldError]:
    at = field.child(path, key)
    if key not in obj:
        return [field.required(at)]
    value = obj[key]
    if not isinstance(value, str):
        return [field.invalid(at, field.as_read(value), "must be a string")]
    if not value:
        return [field.invalid(at, value, "must not be empty")]
    if key == "kind":
        found = names.is_dns1035_label(value.lower())
        text = "may have mixed case, but should otherwise match: " + ",".join(found)
        return [field.invalid(at, value, text)] if found else []
    return [field.invalid(at, value, f"unexpected GroupVersion string: {value}")] if value.count("/") > 1 else []
