"""Operations on custom resources that their type defines, derived lazily from one descriptor (``schema_type``).

Derived data is cached in the descriptor's ``derived`` and released with it. A request's object passes through ``decode``, the request's
own changes, ``default`` and ``errors``, in this order. Upstream: apiextensions-apiserver ``pkg/registry/customresource`` and
``pkg/apiserver/customresource_handler.go`` (schemaCoercingConverter, unstructuredDefaulter).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from kas.apiextensions import embeddedmeta, listtypes, traits
from kas.apiextensions.schema import Schema
from kas.apiextensions.schemachecks import schema_check
from kas.apiextensions.schemavalues import ABSENT, NIL_PATH, validator
from kas.checks import Check
from kas.meta import errors as refusals
from kas.meta import field
from kas.meta.field import FieldError
from kas.types.scheme import Field, TypeDesc, apply_schema_defaults, drop_nulls, has_digits, prune

Obj = dict[str, Any]
_LONG = 19  # digits of the smallest integer that Go decodes as float64
_MAX_INT64 = (1 << 63) - 1
MOST_DEFAULTED = 16 << 20  # bytes: a small object may have thousands of items, each with a large default
NOT_ALL_CHECKED = (
    "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation"
)
# After these errors, rules might get values of types they were not compiled for, or exceed their estimated costs.
BLOCKING = frozenset((field.NOT_SUPPORTED, field.REQUIRED, field.TOO_LONG, field.TOO_MANY, field.TYPE_INVALID))


def decode(type: TypeDesc, obj: Obj, stored: bool = False) -> list[str]:
    """Prune unknown fields of a parsed object and give its metadata its typed form, in place.

    Returns the paths of the unknown fields: first those of the object's own metadata, then of the rest, then of embedded objects' metadata.
    Raises embeddedmeta.MetadataError. In a ``stored`` object, which may have been written under another schema, metadata fields of the
    wrong type are dropped instead. Other values of the wrong type stay, for ``errors`` to report.
    """
    unknown = prune(type, obj)
    inner = decode_metadata(type, obj, stored)
    if not inner:
        return unknown
    return [p for p in inner if p.startswith("metadata.")] + unknown + [p for p in inner if not p.startswith("metadata.")]


def decode_metadata(type: TypeDesc, obj: Obj, stored: bool = False) -> list[str]:
    """The part of ``decode`` that concerns metadata, of the object itself and of embedded objects."""
    return embeddedmeta.coerce(type, obj, drop=stored) if traits.of(type).embedded else embeddedmeta.coerce_own(obj, stored)


def as_floats(value: Any, text: bytes = b"") -> None:
    """Convert integers that exceed int64 to floats, in place, as Go's unstructured objects hold and write them.

    ``text`` is the JSON that the value was decoded from, if any: without a long number in it nothing has to be done.
    """
    if text and not has_digits(text, _LONG):
        return
    left: list[Any] = [value]
    while left:
        holder = left.pop()
        for at, part in holder.items() if isinstance(holder, dict) else enumerate(holder):
            if isinstance(part, (dict, list)):
                left.append(part)
            elif isinstance(part, int) and part > _MAX_INT64:
                holder[at] = float(part)


def default(type: TypeDesc, obj: Obj) -> None:
    """Apply the schema's defaults to absent fields, in place; also for stored objects, which may have been written under another schema."""
    drop_nulls(type, obj)
    apply_schema_defaults(type, obj)


def bound_defaults(type: TypeDesc, obj: Obj, text: bytes, in_json: bool = True) -> None:
    """Raise a 413 if the defaults of absent fields would exceed ``MOST_DEFAULTED`` bytes.

    ``text`` is what ``obj`` was decoded from: JSON, or an encoding with at most one map or null per byte.
    """
    found: tuple[int, dict[int, int]] | None = type.derived.get("default_sizes")
    if found is None:
        sizes: dict[int, int] = {}
        _find_default_sizes(type.schema, sizes, set())
        found = type.derived["default_sizes"] = max(sizes.values(), default=0), sizes
    largest, sizes = found
    if not largest or largest * (text.count(b"{") + text.count(b"null") if in_json else len(text)) <= MOST_DEFAULTED:
        return
    if _defaulted(type, obj, sizes) > MOST_DEFAULTED:
        raise refusals.request_entity_too_large(f"limit is {MOST_DEFAULTED} bytes of defaults")


def _find_default_sizes(schema: Schema, sizes: dict[int, int], seen: set[int]) -> None:
    """Record the size in bytes of each default that is an object or a list, by the identity of its schema."""
    if id(schema) in seen:
        return
    seen.add(id(schema))
    for below in (*(schema.get("properties") or {}).values(), schema.get("additionalProperties"), schema.get("items")):
        if isinstance(below, dict):
            if isinstance(below.get("default"), (dict, list)):
                sizes[id(below)] = len(orjson.dumps(below["default"]))
            _find_default_sizes(below, sizes, seen)


def _defaulted(of: TypeDesc | Field, value: Any, sizes: dict[int, int]) -> int:
    if value is None and isinstance(of, Field):
        return sizes.get(id(of.schema), 0)
    of = of.of(value) if isinstance(of, Field) else of
    type = of if isinstance(of, TypeDesc) else of.message if of.card == "single" else None
    if isinstance(value, list) and isinstance(of, Field) and of.card == "list":
        return sum(_defaulted(of.element, item, sizes) for item in value)
    if not isinstance(value, dict):
        return 0
    if type is None:
        element = of.element if isinstance(of, Field) and of.card == "map" else None
        return sum(_defaulted(element, inner, sizes) for inner in value.values()) if element is not None else 0
    total = sum(sizes.get(id(f.schema), 0) for f in type.fields if f.name not in value)
    for key, inner in value.items():
        below = type.by_name.get(key) or type.additional
        if below is not None:
            total += _defaulted(below, inner, sizes)
    return total


def check(type: TypeDesc) -> Check:
    """Return the check of the type, made once: whether an object certainly has no schema errors and no repeated item in a set or map."""
    found: Check | None = type.derived.get("check")
    if found is None:
        found = type.derived["check"] = schema_check(type.schema)
    return found


def schema_errors(type: TypeDesc, obj: Obj, old: Any = ABSENT) -> list[FieldError]:
    """Return the schema errors of the object; with ``old``, errors in unchanged parts are tolerated."""
    return validator(type).errors(obj, old)


def status_errors(type: TypeDesc, obj: Obj, old: Obj) -> list[FieldError]:
    """Return the schema errors of the object's status. As upstream, their paths begin at the status."""
    found = validator(type)
    below = found.below("status") if "status" in obj and "status" in found.properties else None
    return below.errors(obj["status"], old.get("status"), "status") if below is not None else []


def embedded_errors(type: TypeDesc, obj: Obj) -> list[FieldError]:
    """Return the errors of embedded objects."""
    return embeddedmeta.errors(type, obj) if traits.of(type).embedded else []


def list_errors(type: TypeDesc, obj: Obj, old: Any = ABSENT) -> list[FieldError]:
    """Return errors for repeated items in sets and maps; with ``old``, none if the old object had such errors, too."""
    if not traits.of(type).keyed:
        return []
    found = listtypes.errors(type, obj)
    return [] if found and old is not ABSENT and listtypes.errors(type, old) else found


def errors(type: TypeDesc, obj: Obj, old: Any = ABSENT, found: Sequence[FieldError] = ()) -> tuple[list[FieldError], list[str]]:
    """Return the errors of a defaulted object, and warnings for rules that fail on parts that an update does not change.

    ``found`` are the errors of its metadata, which come first. If any error is BLOCKING, no rule is evaluated.
    """
    from kas.apiextensions import celrules  # CEL is large, and needed only once there are custom resources

    errs = list(found)
    passes = check(type).passes(obj)
    if not passes:
        errs += schema_errors(type, obj, old)
    errs += embedded_errors(type, obj)
    if not passes:
        errs += list_errors(type, obj)
    if celrules.of_type(type) is None:
        return errs, []
    if any(e.type in BLOCKING for e in errs):
        return [*errs, field.invalid(NIL_PATH, None, NOT_ALL_CHECKED)], []
    more, warnings = celrules.errors(type, obj, old)
    return errs + more, warnings
