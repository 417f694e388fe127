"""A custom resource as it is read from what is stored: with the defaults of the version it is stored in, without what that does not know.

Upstream stores what was written: an object of another version, converted, has not the defaults that only the stored version knows, a status
that was dropped has none, and what admission added, or a Scale where the schema knows no replicas, is not pruned. All of that is done each
time it is read. A replica does it once, under the definition of that moment.
"""

from __future__ import annotations

import zlib
from typing import Any

import orjson

from kas.types.scheme import TypeDesc, schema_type

Obj = dict[str, Any]


class Filling:
    """Of one stored definition. Its schemas are read when the first object comes: of most definitions there is none."""

    def __init__(self, definition: Obj) -> None:
        self._definition = zlib.compress(orjson.dumps(definition), 1)
        self._types: dict[str, tuple[TypeDesc, bool]] | None = None  # by version, and whether there are defaults

    def fill(self, obj: Obj) -> bool:
        """Makes of a stored object what is read, in place; whether that is another one."""
        from kas.apiextensions import customtypes  # wanted once there are custom resources

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
