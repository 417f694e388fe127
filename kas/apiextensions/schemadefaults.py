"""Defaults in a CustomResourceDefinition's schema: each must be pruned and valid.

Upstream: ``apiextensions-apiserver/pkg/apiserver/schema/defaulting`` (ValidateDefaults, PruneDefaults).
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
# A default is validated against the whole schema below it, so nested defaults cost the product of their depth and their size, as they do
# upstream. This is the limit of steps for all defaults of one schema.
MAX_STEPS = 100_000


@dataclass(frozen=True, slots=True)
class _Place:
    """A schema with a default. Inside an object's metadata, ``steps`` is the path from that object (0: into a list)."""

    schema: Schema
    path: str
    steps: tuple[str | int, ...] = ()

    def field(self) -> Field:
        """Return the field whose value the default is."""
        (found,) = self.holder().fields
        return found

    def holder(self) -> TypeDesc:
        """Return the type of an object that holds the default in a field named ``default``."""
        return schema_type("", {"properties": {"default": self.schema}})


def _all_places(schema: Schema, path: str) -> Iterator[_Place]:
    """Yield every default of a definition's schema, regardless of the types around it; the root counts as an embedded object."""
    return _places({**schema, EMBEDDED: True}, path, ())


def _places(schema: Schema, path: str, steps: tuple[str | int, ...]) -> Iterator[_Place]:
    if schema.get("default") is not None:
        yield _Place(schema, path, steps)
    items = schema.get("items")
    if isinstance(items, dict):
        yield from _places(items, f"{path}.items", (*steps, 0) if steps else ())
    for name, inner in (schema.get("properties") or {}).items():  # additionalProperties cannot have a default
        below = _steps_to(name, inner, steps, bool(schema.get(EMBEDDED)))
        yield from _places(inner, field.key(f"{path}.properties", name), below)


def unpruned(schema: Schema) -> bool:
    """Whether a default in the schema contains something that pruning would drop."""
    return pruned(schema) is not schema


def pruned(schema: Schema) -> Schema:
    """Return the schema with its defaults pruned as they are applied; ``schema`` itself if nothing changes.

    Fields of defaults without a schema are dropped, metadata of embedded objects gets its typed form without fields of the wrong type, and
    defaults of which nothing is left are dropped.
    """
    return _pruned(schema, (), is_root=True)


def _pruned(schema: Schema, steps: tuple[str | int, ...], is_root: bool = False) -> Schema:
    embedded = is_root or bool(schema.get(EMBEDDED))
    changed: Schema = {}
    if schema.get("default") is not None:
        left = _left_of(_Place({**schema, EMBEDDED: True} if is_root else schema, "", steps))
        if left != schema["default"]:
            changed["default"] = left
    for key, step in (("items", 0), ("additionalProperties", "*")):
        below = schema.get(key)
        if isinstance(below, dict):
            changed[key] = _pruned(below, (*steps, step) if steps else ())
    if schema.get("properties"):
        properties = schema["properties"]
        made = {name: _pruned(inner, _steps_to(name, inner, steps, embedded)) for name, inner in properties.items()}
        if any(made[name] is not inner for name, inner in properties.items()):
            changed["properties"] = made
    changed = {key: value for key, value in changed.items() if value is not schema[key]}
    return {key: value for key, value in {**schema, **changed}.items() if value is not None} if changed else schema


def _steps_to(name: str, schema: Schema, steps: tuple[str | int, ...], embedded: bool) -> tuple[str | int, ...]:
    """Return the steps to the schema of a property; ``steps`` are those to its parent, ``embedded`` whether the parent is an object's."""
    inside = bool(steps) or (embedded and name in _META)
    return (*steps, name) if inside and not schema.get(EMBEDDED) else ()


def _left_of(place: _Place) -> Any:
    """Return what pruning leaves of a default; None if nothing."""
    default = place.schema["default"]
    if not place.steps and _is_plain(place.schema, default):
        return default
    value = copy.deepcopy(default)
    if not place.steps:
        embeddedmeta.coerce(place.holder(), {"default": value}, is_root=False, drop=True)
        prune_value(place.field(), value)
        return value
    found: Any = _around(place.steps, value)
    embeddedmeta.coerce_own(found, drop=True)
    for step in place.steps:
        if not found:
            return None
        found = found[0] if step == 0 else found.get(step)
    return found


def _is_plain(schema: Schema, value: Any) -> bool:
    """Whether pruning certainly keeps the whole value: it has neither embedded objects nor fields without a schema."""
    if isinstance(value, dict):
        properties, additional = schema.get("properties") or {}, schema.get("additionalProperties")
        below = [(properties.get(key, additional), inner) for key, inner in value.items()]
        return not schema.get(EMBEDDED) and all(isinstance(s, dict) and _is_plain(s, inner) for s, inner in below)
    if isinstance(value, list):
        items = schema.get("items")
        return isinstance(items, dict) and all(_is_plain(items, item) for item in value)
    return True


def _around(steps: tuple[str | int, ...], value: Any) -> Any:
    """Return an object that has the value at the end of the steps."""
    for step in reversed(steps):
        value = [value] if step == 0 else {step: value}
    return value


def default_values(schema: Schema, path: str, must_be_pruned: bool) -> list[FieldError]:
    """Return the errors in the defaults of a structural schema at ``path``.

    Metadata of objects in defaults gets its typed form, in place: its unknown fields are neither reported nor stored.
    """
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
        found = _in_metadata(place, copy.deepcopy(value), at) if place.steps else _embedded(place, value, at)
        if superfluous:
            errs.append(field.invalid(at, field.in_go_order(value), "must not have unknown fields"))
        if not found:
            found = SchemaValidator(place.schema, as_written=True).errors_within(run, value)
        if not found:
            from kas.apiextensions import celrules  # CEL is large, and most schemas have no defaults

            found, budget = celrules.default_errors(typed, value, celrules.BUDGET if budget is None else budget, at)
        errs += found
        if budget is not None and budget < 0:  # the budget is spent: skip the remaining defaults
            break
    return errs


def _is_deep(schema: Schema) -> bool:
    return bool(schema.get("properties")) or isinstance(schema.get("items"), dict)


def _measure(schema: Schema, sizes: dict[int, int]) -> int:
    """Record the number of schemas at and below each schema, by identity; return it for this one."""
    size = 1
    for below in schema.values():
        if isinstance(below, dict):
            size += _measure(below, sizes)
        elif isinstance(below, list):
            size += sum(_measure(inner, sizes) for inner in below if isinstance(inner, dict))
    sizes[id(schema)] = size
    return size


def _embedded(place: _Place, value: Any, path: str) -> list[FieldError]:
    """Return the errors in metadata of objects in the default."""
    holder = place.holder()
    try:
        embeddedmeta.coerce(holder, {"default": value}, is_root=False)
    except embeddedmeta.MetadataError as e:
        return [_moved(e.error, path)]
    return [_moved(e, path) for e in embeddedmeta.errors(holder, {"default": value})]


def _moved(error: FieldError, path: str) -> FieldError:
    return FieldError(error.type, path + error.field.removeprefix("default"), error.value, error.detail)


def _in_metadata(place: _Place, value: Any, path: str) -> list[FieldError]:
    """Validate a default inside metadata as part of an object around it."""
    obj = {"apiVersion": "validation/v1", "kind": "Validation", **_around(place.steps, value)}
    try:
        embeddedmeta.coerce(schema_type("", {}), obj)
        found = embeddedmeta.resource_errors(obj, "")
    except embeddedmeta.MetadataError as e:
        found = [e.error]
    if not found:
        return []
    shown = str(found[0]) if len(found) == 1 else "[" + ", ".join(map(str, found)) + "]"
    return [field.invalid(path, field.in_go_order(value), f"must result in valid metadata: {shown}")]
