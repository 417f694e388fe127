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
from kas.types.scheme import Field, prune_value, schema_type

_META = ("apiVersion", "kind", "metadata")
# A default is validated by all of the schema below it, so defaults around defaults cost the product of their depth and their size, as they
# do upstream. All of one schema may take so many steps.
MAX_STEPS = 100_000


@dataclass(frozen=True, slots=True)
class _Place:
    """A schema with a default. Inside the metadata of an object, ``steps`` leads there from that object (0: into a list)."""

    schema: Schema
    path: str
    steps: tuple[str | int, ...] = ()

    def field(self) -> Field:
        """What the default is a value of."""
        (found,) = schema_type("", {"properties": {"default": self.schema}}).fields
        return found


def _all_places(schema: Schema, path: str) -> Iterator[_Place]:
    """Every default of a definition's schema, whatever the types around it; that of the whole object stands for an embedded one."""
    return _places({**schema, EMBEDDED: True}, path, ())


def _places(schema: Schema, path: str, steps: tuple[str | int, ...]) -> Iterator[_Place]:
    if schema.get("default") is not None:
        yield _Place(schema, path, steps)
    items = schema.get("items")
    if isinstance(items, dict):
        yield from _places(items, f"{path}.items", (*steps, 0) if steps else ())
    for name, inner in (schema.get("properties") or {}).items():  # additionalProperties cannot have one
        inside = bool(steps) or (bool(schema.get(EMBEDDED)) and name in _META)
        below = (*steps, name) if inside and not inner.get(EMBEDDED) else ()
        yield from _places(inner, field.key(f"{path}.properties", name), below)


def unpruned(schema: Schema) -> bool:
    """Whether some default in the schema holds fields that pruning would drop."""
    return any(prune_value(p.field(), copy.deepcopy(p.schema["default"])) for p in _all_places(schema, ""))


def default_values(schema: Schema, path: str, must_be_pruned: bool) -> list[FieldError]:
    """What is wrong with the defaults of a structural schema that stands at ``path``. Metadata of objects in them gets its typed form, in
    place: what nobody knows of it is neither told nor stored."""
    errs: list[FieldError] = []
    budget: int | None = None
    run = Run(path, MAX_STEPS)
    sizes: dict[int, int] = {}
    _measure(schema, sizes)
    for place in _all_places(schema, path):
        run.path = at = f"{place.path}.default"
        value = place.schema["default"]
        try:
            run.take(sizes.get(id(place.schema), sizes[id(schema)]) if isinstance(value, (dict, list)) or _is_deep(place.schema) else 0)
        except TooCostlyError:
            return [*errs, too_costly(run)]
        typed = place.field()
        superfluous = not place.steps and must_be_pruned and prune_value(typed, copy.deepcopy(value))
        found = _in_metadata(place, copy.deepcopy(value), at) if place.steps else _embedded(place.schema, value, at)
        if superfluous:
            errs.append(field.invalid(at, field.in_go_order(value), "must not have unknown fields"))
        if not found:
            found = SchemaValidator(place.schema, as_written=True).errors_within(run, value)
        if not found:
            from kas.apiextensions import celrules  # CEL is large, and most schemas have no defaults

            found, budget = celrules.default_errors(typed, value, celrules.BUDGET if budget is None else budget, at)
        errs += found
        if budget is not None and budget < 0:  # no default is looked at any more
            break
    return errs


def _is_deep(schema: Schema) -> bool:
    return bool(schema.get("properties")) or isinstance(schema.get("items"), dict)


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


def _embedded(schema: Schema, value: Any, path: str) -> list[FieldError]:
    """Metadata of objects in the default."""
    holder = schema_type("", {"properties": {"default": schema}})
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
