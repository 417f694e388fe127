"""Definitions of the built-in types for OpenAPI v2 and v3.

They are read from ``definitions.json.gz`` (written by tools/gen_openapi.py) and parsed for every document: OpenAPI is requested rarely,
and the parsed form is not worth the memory in between.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import json
from collections.abc import Iterable, Iterator
from importlib import resources
from typing import Any

from kas.config import features

Schema = dict[str, Any]
V2_PREFIX, V3_PREFIX = "#/definitions/", "#/components/schemas/"
GVK = "x-kubernetes-group-version-kind"
META = "io.k8s.apimachinery.pkg.apis.meta.v1."
_V3_FORMS: dict[str, Schema] = {
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]},
    "io.k8s.apimachinery.pkg.api.resource.Quantity": {"oneOf": [{"type": "string"}, {"type": "number"}]},
}


def _blob() -> bytes:
    return resources.files(__package__).joinpath("definitions.json.gz").read_bytes()


@functools.cache
def _blob_digest() -> str:
    return hashlib.sha512(_blob()).hexdigest()


def digest() -> str:
    """Return a digest that changes whenever the definitions do."""
    return _blob_digest() if features.DEFAULT.enabled("OpenAPIEnums") else f"{_blob_digest()} without enums"


def definitions() -> dict[str, Schema]:
    """Return every built-in definition in v2 form, by name. The caller may modify the result."""
    found: dict[str, Schema] = json.loads(gzip.decompress(_blob()))
    if not features.DEFAULT.enabled("OpenAPIEnums"):
        for schema in found.values():
            _prune_enums(schema)
    return found


@functools.cache
def names() -> frozenset[str]:
    """Return the names of all built-in definitions."""
    return frozenset(json.loads(gzip.decompress(_blob())))


def _prune_enums(schema: Schema) -> None:
    """Remove enum values from a schema and everything in it; a property named ``enum`` is kept."""
    schema.pop("enum", None)
    for inner in (*(schema.get("properties") or {}).values(), schema.get("items"), schema.get("additionalProperties")):
        if isinstance(inner, dict):
            _prune_enums(inner)


def references(value: Any) -> Iterator[str]:
    """Yield the names of all definitions that a v2 value refers to."""
    if isinstance(value, dict):
        ref = value.get("$ref")
        if isinstance(ref, str) and ref.startswith(V2_PREFIX):
            yield ref[len(V2_PREFIX) :]
        for item in value.values():
            yield from references(item)
    elif isinstance(value, list):
        for item in value:
            yield from references(item)


def renamed(value: Any, names: dict[str, str]) -> Any:
    """Return the value with its references renamed, or the value itself if there is nothing to rename."""
    if not names:
        return value
    if isinstance(value, dict):
        return {k: names.get(v, v) if k == "$ref" and isinstance(v, str) else renamed(v, names) for k, v in value.items()}
    return [renamed(v, names) for v in value] if isinstance(value, list) else value


def closure(names: Iterable[str], known: dict[str, Schema]) -> dict[str, Schema]:
    """Return the definitions of ``names`` and everything they refer to, sorted by name."""
    out: dict[str, Schema] = {}
    todo = [name for name in names if name in known]
    while todo:
        name = todo.pop()
        if name not in out:
            out[name] = known[name]
            todo += [ref for ref in references(known[name]) if ref in known]
    return dict(sorted(out.items()))


def to_v3(name: str, schema: Schema) -> Schema:
    """Return a definition in v3 form; the input is not modified."""
    if name in _V3_FORMS:
        return {k: v for k, v in schema.items() if k not in ("type", "format")} | _V3_FORMS[name]
    return _convert(schema)


def _convert(schema: Schema) -> Schema:
    out: Schema = {}
    for key, value in schema.items():
        if key == "$ref":
            ref = {"$ref": V3_PREFIX + value[len(V2_PREFIX) :]}
            if len(schema) == 1:
                return ref
            out["allOf"] = [ref]  # v3 allows no siblings of a reference
        elif key == "properties":
            out[key] = {name: _convert(found) for name, found in value.items()}
        elif key in ("items", "additionalProperties", "not") and isinstance(value, dict):
            out[key] = _convert(value)
        elif key in ("allOf", "anyOf", "oneOf"):
            out[key] = [_convert(found) for found in value]
        else:
            out[key] = value
    return out
