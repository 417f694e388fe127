"""Everything a custom resource needs of its type, made from the one descriptor (``schema_type``) when it is first asked for.

What is made is kept in the descriptor's ``derived`` and goes with it. The order in which a request's object passes: ``decode``, the
request's own changes, ``default``, ``errors``. Upstream: apiextensions-apiserver ``pkg/registry/customresource`` and
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
_LONG = 19  # digits of the first integer that is a float64 in Go
_MAX_INT64 = (1 << 63) - 1
MOST_DEFAULTED = 16 << 20  # bytes: a small object may have a large default for each of thousands of items
NOT_ALL_CHECKED = (
    "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation"
)
# After these, rules might see values of types they were not compiled for, or more than their costs were estimated for.
BLOCKING = frozenset((field.NOT_SUPPORTED, field.REQUIRED, field.TOO_LONG, field.TOO_MANY, field.TYPE_INVALID))


def decode(type: TypeDesc, obj: Obj, stored: bool = False) -> list[str]:
    """Bring a parsed object into the form it is worked with, in place: unknown fields are gone, metadata is typed.

    Answers the paths of the unknown fields: of the object's own metadata, of the rest, of the metadata of embedded objects. Raises
    embeddedmeta.MetadataError; of a ``stored`` object, whose schema may have been another, fields of metadata that have not their types are
    gone. Other values of wrong types stay, for ``errors`` to find.
    """
    unknown = prune(type, obj)
    inner = decode_metadata(type, obj, stored)
    if not inner:
        return unknown
    return [p for p in inner if p.startswith("metadata.")] + unknown + [p for p in inner if not p.startswith("metadata.")]


def decode_metadata(type: TypeDesc, obj: Obj, stored: bool = False) -> list[str]:
    """Of ``decode`` what is about metadata, the object's own and that of objects in it."""
    return embeddedmeta.coerce(type, obj, drop=stored) if traits.of(type).embedded else embeddedmeta.coerce_own(obj, stored)


def as_floats(value: Any, text: bytes = b"") -> None:
    """Make floats, in place, of integers that are too large for an int64: what an unstructured object holds in Go, and writes. ``text`` is
    the JSON it was read from, where there is some: without a long number in it there is nothing to do."""
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
    """Fill in what the schema says of absent fields, in place; also objects from the store, whose schema may have been another."""
    drop_nulls(type, obj)
    apply_schema_defaults(type, obj)


def bound_defaults(type: TypeDesc, obj: Obj, text: bytes, in_json: bool = True) -> None:
    """Raises 413 when the defaults of what is absent would come to more than ``MOST_DEFAULTED`` bytes; ``text`` is what ``obj`` was read
    from, JSON or something with at most one map or null a byte."""
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
    """The bytes of each default that is an object or a list, by the identity of its schema."""
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
    """The check of the type's schema, made once for each type: whether an object certainly has neither errors of its schema nor an item
    twice in a set or map.
    """
    found: Check | None = type.derived.get("check")
    if found is None:
        found = type.derived["check"] = schema_check(type.schema)
    return found


def schema_errors(type: TypeDesc, obj: Obj, old: Any = ABSENT) -> list[FieldError]:
    """What the schema finds wrong with the object; with ``old`` faults in parts that did not change are tolerated."""
    return validator(type).errors(obj, old)


def status_errors(type: TypeDesc, obj: Obj, old: Obj) -> list[FieldError]:
    """What the schema of the status finds wrong with it. As upstream, the texts name places in the status."""
    found = validator(type)
    below = found.below("status") if "status" in obj and "status" in found.properties else None
    return below.errors(obj["status"], old.get("status"), "status") if below is not None else []


def embedded_errors(type: TypeDesc, obj: Obj) -> list[FieldError]:
    """What is wrong with the objects inside the object."""
    return embeddedmeta.errors(type, obj) if traits.of(type).embedded else []


def list_errors(type: TypeDesc, obj: Obj, old: Any = ABSENT) -> list[FieldError]:
    """Items that stand in a set or map twice; with ``old`` nothing is said while that has some, too."""
    if not traits.of(type).keyed:
        return []
    found = listtypes.errors(type, obj)
    return [] if found and old is not ABSENT and listtypes.errors(type, old) else found


def errors(type: TypeDesc, obj: Obj, old: Any = ABSENT, found: Sequence[FieldError] = ()) -> tuple[list[FieldError], list[str]]:
    """What is wrong with a defaulted object, and warnings for rules that fail on what an update leaves alone.

    ``found`` is what is wrong with its metadata, and comes first. When there are errors of types or sizes, rules are not asked.
    """
    from kas.apiextensions import celrules  # CEL is large, and wanted once there are custom resources

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
