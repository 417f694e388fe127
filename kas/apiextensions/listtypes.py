"""Uniqueness of the items of lists that are sets or maps: apiextensions-apiserver ``pkg/apiserver/schema/listtype``."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from kas.meta import field
from kas.meta.field import FieldError
from kas.types.scheme import Field, TypeDesc, write_json


def errors(type: TypeDesc, obj: dict[str, Any]) -> list[FieldError]:
    """Return an error for each repeated item in a set or map of ``obj``, at its first repetition."""
    return _struct(type, obj, "")


def _struct(type: TypeDesc, obj: dict[str, Any], path: str) -> list[FieldError]:
    errs: list[FieldError] = []
    for key in sorted(obj):
        known = type.by_name.get(key)
        if known is not None:
            errs += _value(known, obj[key], field.child(path, key))
        elif type.additional is not None:
            errs += _value(type.additional, obj[key], field.key(path, key))
    return errs


def _value(f: Field, value: Any, path: str) -> list[FieldError]:
    f = f.of(value)
    errs: list[FieldError] = []
    if isinstance(value, list):
        if f.list_type == "set":
            errs += [field.duplicate(field.index(path, i), field.as_read(value[i])) for i in _repeated(value)]
        elif f.list_type == "map":
            errs += _map(f, value, path)
        if f.card == "list":
            for i, item in enumerate(value):
                errs += _value(f.element, item, field.index(path, i))
    elif isinstance(value, dict):
        if f.card == "map":
            for key in sorted(value):
                errs += _value(f.element, value[key], field.key(path, key))
        elif f.message is not None and f.card == "single":
            errs += _struct(f.message, value, path)
    return errs


def _map(f: Field, items: list[Any], path: str) -> list[FieldError]:
    for i, item in enumerate(items):
        if item is not None and not isinstance(item, dict):
            return [field.invalid(field.index(path, i), field.as_read(item), "must be an object for an array of list-type map")]
    wanted = frozenset(f.list_map_keys)  # there may be thousands of keys, and of items
    keys = [{k: v for k, v in item.items() if k in wanted} if item else {} for item in items]
    # To Go a single key is a scalar, whose type matters; several keys are a map.
    told = keys if len(wanted) > 1 else [next(iter(key.values()), key) for key in keys]
    return [field.duplicate(field.index(path, i), field.in_go_order(keys[i])) for i in _repeated(told)]


def _repeated(items: Iterable[Any]) -> list[int]:
    """Return the positions where an item occurs for the second time.

    Types matter, as in Go: 1 is neither true nor 1.0. Inside lists and maps, which Go compares as JSON, 1.0 equals 1.
    """
    seen: dict[str | bytes, int] = {}
    out = []
    for i, item in enumerate(items):
        compound = isinstance(item, (dict, list))
        key = write_json(field.in_go_order(item), sort_keys=False) if compound else json.dumps(item)
        seen[key] = seen.get(key, 0) + 1
        if seen[key] == 2:
            out.append(i)
    return out
