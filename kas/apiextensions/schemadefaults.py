"""Defaults in a CustomResourceDefinition's schema: each must be pruned and valid for its place.

Upstream: ``apiextensions-apiserver/pkg/apiserver/schema/defaulting`` (ValidateDefaults).
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kas.apiextensions import embeddedmeta
from kas.apiextensions.schema import EMBEDDED, Schema
from kas.apiextensions.schemavalues import Run, SchemaValidator, TooCostlyError, too_costly
from kas.meta import field
from kas.meta.field import FieldError
from kas.types.scheme import Field, TypeDesc, prune_value, schema_type

_META = ("apiVersion", "kind", "metadata")
# A default is validated by all of the schema below it, so defaults around defaults cost the product of their depth and their size, as they
# do upstream. All of one schema may take so many steps.
MAX_STEPS = 100_000


@dataclass(frozen=True, slots=True)
class _Place:
    """A field with a default. Inside the metadata of an object, ``steps`` leads there from that object (0: into a list)."""

    field: Field
    path: str
    steps: tuple[str | int, ...] = ()


def _places(type: TypeDesc, path: str, steps: tuple[str | int, ...] = ()) -> Iterator[_Place]:
    """Every default of a type; additionalProperties cannot have one."""
    for f in type.fields:
        at = field.key(f"{path}.properties", f.name)
        yield from _field_places(f, at, (*steps, f.name) if steps or (type.embedded and f.name in _META) else ())


def _field_places(f: Field, path: str, steps: tuple[str | int, ...]) -> Iterator[_Place]:
    if f.has_default:
        yield _Place(f, path, steps)
    if f.card == "list":
        yield from _field_places(f.element, f"{path}.items", (*steps, 0) if steps else ())
    elif f.card == "single" and f.message is not None:
        yield from _places(f.message, path, () if f.message.embedded else steps)


def _all_places(schema: Schema, path: str) -> Iterator[_Place]:
    """Every default of a definition's schema; that of the whole object stands for an embedded one."""
    if schema.get("default") is not None:
        (whole,) = schema_type("", {"properties": {"default": {**schema, EMBEDDED: True}}}).fields
        yield _Place(whole, path)
    yield from _places(schema_type("", schema), path)


def unpruned(schema: Schema) -> bool:
    """Whether some default in the schema holds fields that pruning would drop."""
    return any(prune_value(p.field, copy.deepcopy(p.field.default)) for p in _all_places(schema, ""))


def default_values(schema: Schema, path: str, must_be_pruned: bool) -> list[FieldError]:
    """What is wrong with the defaults of a structural schema that stands at ``path``."""
    errs: list[FieldError] = []
    budget: int | None = None
    run = Run(path, MAX_STEPS)
    sizes: dict[int, int] = {}
    _measure(schema, sizes)
    for place in _all_places(schema, path):
        run.path = at = f"{place.path}.default"
        value = copy.deepcopy(place.field.default)
        if isinstance(value, (dict, list)):
            try:
                run.take(sizes.get(id(place.field.schema), sizes[id(schema)]))
            except TooCostlyError:
                return [*errs, too_costly(run)]
        unknown = not place.steps and must_be_pruned and bool(prune_value(place.field, copy.deepcopy(value)))
        found = _in_metadata(place, value, at) if place.steps else _embedded(place.field, value, at)
        if unknown:
            errs.append(field.invalid(at, field.in_go_order(value), "must not have unknown fields"))
        if not found:
            found = SchemaValidator(place.field.schema, literal=True).errors_within(run, value)
        if not found:
            from kas.apiextensions import celrules  # CEL is large, and most schemas have no defaults

            found, budget = celrules.default_errors(place.field, value, celrules.BUDGET if budget is None else budget, at)
        errs += found
        if budget is not None and budget < 0:  # no default is looked at any more
            break
    return errs


def _measure(schema: Schema, sizes: dict[int, int]) -> int:
    """How many schemas there are from each place on down, by identity."""
    size = 1
    for below in schema.values():
        if isinstance(below, dict):
            size += _measure(below, sizes)
        elif isinstance(below, list):
            size += sum(_measure(inner, sizes) for inner in below if isinstance(inner, dict))
    sizes[id(schema)] = size
    return size


def _embedded(f: Field, value: Any, path: str) -> list[FieldError]:
    """What is wrong with the metadata of objects in the default, which they get their typed form of, in place."""
    holder = schema_type("", {"properties": {"default": f.schema}})
    try:
        embeddedmeta.coerce(holder, {"default": value}, is_root=False)
    except embeddedmeta.MetadataError as e:
        return [_moved(e.error, path)]
    return [_moved(e, path) for e in embeddedmeta.errors(holder, {"default": value})]


def _moved(error: FieldError, path: str) -> FieldError:
    return FieldError(error.type, path + error.field.removeprefix("default"), error.value, error.detail)


def _in_metadata(place: _Place, value: Any, path: str) -> list[FieldError]:
    """A default inside metadata is tried in an object around it."""
    inner = value
    for step in reversed(place.steps):
        inner = [inner] if step == 0 else {step: inner}
    obj = {"apiVersion": "validation/v1", "kind": "Validation", **inner}
    try:
        embeddedmeta.coerce(schema_type("", {}), obj)
        found = embeddedmeta.resource_errors(obj, "")
    except embeddedmeta.MetadataError as e:
        found = [e.error]
    if not found:
        return []
    shown = str(found[0]) if len(found) == 1 else "[" + ", ".join(map(str, found)) + "]"
    return [field.invalid(path, field.in_go_order(value), f"must result in valid metadata: {shown}")]
