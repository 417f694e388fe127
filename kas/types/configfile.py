"""Configuration files that flags name, decoded strictly: what the file says and nobody reads is an error, so that a misspelt name never
weakens a policy. Every error is one line, in upstream's words where it has any.

A file is ``parse``d, its kind looked up and its fields read with ``of_kind``; ``check`` turns what validation found into one error.
Upstream: a codec of ``serializer.EnableStrict``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

from kas.meta import duration, gojson
from kas.meta.field import FieldError, go_quote

# Shown of a document whose kind is not known.
MAX_SHOWN = 200


class ConfigurationError(ValueError):
    """What is wrong with a configuration, in one line."""

    def __init__(self, message: str) -> None:
        super().__init__(message.replace("\n", "\\n"))


# --- shapes: what a document may say

STRING, BOOL, INT32, INT64, STRINGS, RAW = "string", "bool", "int32", "int64", "map[string]string", "raw"
DURATION = "metav1.Duration"  # read as nanoseconds
_BITS = {INT32: 31, INT64: 63}


@dataclass(frozen=True)
class Struct:
    """A Go struct: its name, and the shapes of its fields. A list has a shape of one element in brackets."""

    name: str
    fields: Mapping[str, Any]


Shape = str | list[Any] | Struct
Kinds = Mapping[tuple[str, str], Struct]


def decode(value: Any, shape: Struct, same_case: bool = True) -> dict[str, Any]:
    """The fields of ``shape`` that ``value`` has, null ones left out. Raises ConfigurationError for wrong types and unknown fields.

    ``same_case`` is off for types that upstream reads with encoding/json, which does not mind the case of a name.
    """
    unknown: list[str] = []
    out = _decode(value, shape, "", "", shape.name, unknown, same_case)
    if unknown:
        raise ConfigurationError("strict decoding error: " + ", ".join(f"unknown field {go_quote(path)}" for path in unknown))
    return out or {}


def _decode(value: Any, shape: Any, path: str, go_path: str, root: str, unknown: list[str], same_case: bool) -> Any:
    if value is None or shape == RAW:
        return value
    if isinstance(shape, Struct) and isinstance(value, dict):
        out = {}
        for key, item in value.items():
            here = f"{path}.{key}" if path else key
            name = key if same_case else next((f for f in shape.fields if f.lower() == key.lower()), key)
            if name not in shape.fields:
                unknown.append(here)
            elif item is not None:
                out[name] = _decode(item, shape.fields[name], here, f"{go_path}.{name}", root, unknown, same_case)
        return out
    if isinstance(shape, list) and isinstance(value, list):
        made = [_decode(item, shape[0], f"{path}[{i}]", go_path, root, unknown, same_case) for i, item in enumerate(value)]
        return [_zero(shape[0]) if item is None else item for item in made]
    if shape == STRINGS and isinstance(value, dict):
        return {k: "" if v is None else _decode(v, STRING, f"{path}.{k}", go_path, root, unknown, same_case) for k, v in value.items()}
    if shape == STRING and isinstance(value, str):
        return value
    if shape == BOOL and isinstance(value, bool):
        return value
    if shape == DURATION and isinstance(value, str):
        try:
            return duration.parse(value)
        except ValueError as e:
            raise ConfigurationError(str(e)) from None
    if isinstance(shape, str) and shape in _BITS and type(value) is int and -(1 << _BITS[shape]) <= value < 1 << _BITS[shape]:
        return value
    if shape == DURATION:  # reads its own JSON, a string, and so does not know where it stands
        raise ConfigurationError(f"json: cannot unmarshal {_json_type(value)} into Go value of type string")
    where = f"Go struct field {root}{go_path}" if go_path else "Go value"
    raise ConfigurationError(f"json: cannot unmarshal {_json_type(value)} into {where} of type {_go_type(shape)}")


def _zero(shape: Any) -> Any:
    return {STRING: "", BOOL: False, INT32: 0, INT64: 0, DURATION: 0}.get(shape) if isinstance(shape, str) else {}


def _json_type(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, (int, float)):
        return f"number {value}" if not isinstance(value, int) or not -(1 << 31) <= value < 1 << 31 else "number"
    return "string" if isinstance(value, str) else "object" if isinstance(value, dict) else "array"


def _go_type(shape: Any) -> str:
    if isinstance(shape, list):
        return "[]" + _go_type(shape[0])
    return shape.name if isinstance(shape, Struct) else shape


def check(found: Iterable[FieldError]) -> None:
    """Raises ConfigurationError with all that validation found, as ``field.ErrorList.ToAggregate`` prints it."""
    texts = list(dict.fromkeys(map(str, found)))
    if texts:
        raise ConfigurationError(texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]")


# --- documents


class Document(NamedTuple):
    """A JSON value and what strict decoding has against its text."""

    value: Any
    repeated: list[str]


def parse(data: bytes) -> Document:
    """YAML or JSON. Raises ConfigurationError."""
    from kas.types import yaml_codec  # PyYAML is large and few servers have such a file

    try:
        value, repeated = yaml_codec.decode(data)
    except yaml_codec.YAMLError as e:
        raise ConfigurationError(" ".join(str(e).split())) from None
    return Document(value, [" ".join(text.split()) for text in repeated])


def read_file(path: str) -> bytes:
    """Raises ConfigurationError in Go's words."""
    try:
        with open(path, "rb") as f:
            return f.read()
    except OSError as e:
        raise ConfigurationError(f"open {path}: {(e.strerror or str(e)).lower()}") from None


class KindError(ConfigurationError):
    """The document says no kind, or one that is not known here."""


def of_kind(document: Document, kinds: Kinds, scheme: str = "") -> dict[str, Any]:
    """The fields of a document of one of ``kinds``, by (apiVersion, kind). ``scheme`` is what upstream calls its list of kinds in an
    error. Raises KindError when it says no kind, or another one, ConfigurationError for what strict decoding objects to.
    """
    value = {} if document.value is None else document.value
    unfit = "couldn't get version/kind; json parse error: json: cannot unmarshal"
    if not isinstance(value, dict):
        raise ConfigurationError(f"couldn't get version/kind; json parse error: {gojson.cannot_unmarshal(value, gojson.TYPE_META)}")
    api_version, kind = value.get("apiVersion") or "", value.get("kind") or ""
    for name, said in (("Kind", kind), ("apiVersion", api_version)):
        if not isinstance(said, str):
            raise ConfigurationError(f"{unfit} {_json_type(said)} into a string")
        if not said:
            shown = orjson.dumps(value).decode() if value else ""
            raise KindError(f"Object '{name}' is missing in '{shown[:MAX_SHOWN]}'")
    shape = kinds.get((api_version, kind))
    if shape is None:
        where = f" in scheme {go_quote(scheme)}" if scheme else ""
        raise KindError(f"no kind {go_quote(kind)} is registered for version {go_quote(api_version)}{where}")
    if document.repeated:
        raise ConfigurationError("strict decoding error: " + ", ".join(document.repeated))
    return decode({k: v for k, v in value.items() if k not in ("apiVersion", "kind")}, shape)
