"""Reads custom resources from their stored form: applies the defaults of the stored version, and prunes fields it does not know.

Upstream stores objects as they were written: a converted object lacks the defaults that only the stored version has, and so
does a status that was dropped; fields that admission added, or a Scale where the schema has no replicas, are not pruned.
Upstream does all this at each read. A replica does it once, by the definition of that moment.
"""

from __future__ import annotations

import zlib
from typing import Any

import orjson

from kas.types.scheme import TypeDesc, schema_type

Obj = dict[str, Any]


class Filling:
    """Fills objects of one stored definition. The schemas are parsed when the first object arrives: most definitions have none."""

    def __init__(self, definition: Obj) -> None:
        self._definition = zlib.compress(orjson.dumps(definition), 1)
        self._types: dict[str, tuple[TypeDesc, bool]] | None = None  # by version; the bool: whether the schema has defaults

    def fill(self, obj: Obj) -> bool:
        """Fills a stored object in place; returns whether it changed."""
        from kas.apiextensions import customtypes  # imported only if there are custom resources

        if self._types is None:
            self._types, self._definition = _types(orjson.loads(zlib.decompress(self._definition))), b""
        type_, defaults = self._types.get((obj.get("apiVersion") or "").rpartition("/")[2], (None, False))
        if type_ is None:
            return False
        before = orjson.dumps(obj) if defaults else b""
        unknown = customtypes.decode(type_, obj, stored=True)
        if not defaults:
            return bool(unknown)
        customtypes.default(type_, obj)
        return bool(unknown) or bool(orjson.loads(before) != obj)


def _types(definition: Obj) -> dict[str, tuple[TypeDesc, bool]]:
    from kas.apiextensions import definition as definitions

    versions = definition["spec"].get("versions") or [{"name": definition["spec"].get("version") or ""}]
    schemas = {v["name"]: definitions.schema_of(definition, v["name"]) for v in versions}
    return {name: (schema_type(name, schema), _has_default(schema)) for name, schema in schemas.items()}


def _has_default(schema: Any) -> bool:
    if not isinstance(schema, dict):
        return False
    below = (*(schema.get("properties") or {}).values(), schema.get("additionalProperties"), schema.get("items"))
    return schema.get("default") is not None or any(map(_has_default, below))
