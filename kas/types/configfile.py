"""Strict decoding of configuration files that flags name: unknown fields are errors, so that a misspelt name never weakens a policy. Error
texts are upstream's where upstream has any.

A file is parsed with ``parse``, then ``of_kind`` looks up its kind and reads its fields; ``check`` turns validation errors into one error.
Upstream: a codec with ``serializer.EnableStrict``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import orjson

from kas._codecs import DecodeError, go_base64
from kas.meta import duration, gojson
from kas.meta.field import FieldError, go_quote
from kas.meta.files import read_configuration
from kas.meta.goerrors import unreadable
from kas.meta.records import NamedTuple


class ConfigurationError(ValueError):
    """An invalid configuration. The message may have several lines: CEL expressions are quoted with their errors."""


# --- shapes: what a document may contain

STRING, BOOL, INT32, INT64, STRINGS, RAW = "string", "bool", "int32", "int64", "map[string]string", "raw"
DURATION = "metav1.Duration"  # decoded to nanoseconds
DURATION_POINTER = "*metav1.Duration"  # a nullable one
BYTES = "[]uint8"  # base64 in the document, decoded to bytes
_BITS = {INT32: 31, INT64: 63}


class Struct(NamedTuple):
    """A Go struct: its name and the shapes of its fields. The shape of a list is a list with one shape, that of its elements."""

    name: str
    fields: Mapping[str, Any]


class Named(NamedTuple):
    """A named Go type that is decoded like ``shape``."""

    name: str
    shape: str = STRING


Shape = str | list[Any] | Struct | Named
Kinds = Mapping[tuple[str, str], Struct]


def decode(
    value: Any, shape: Struct, same_case: bool = True, package: str = "v1", strict: bool = True, repeated: Sequence[str] = ()
) -> dict[str, Any]:
    """Decodes the fields of ``shape`` in ``value``, without null ones. Raises ConfigurationError for values of wrong types and, if
    ``strict``, for unknown fields.

    ``same_case`` is False for types that upstream decodes with encoding/json, which ignores the case of names. ``package`` is the package
    of the Go types, which errors mention. ``repeated`` are strict decoding errors already found in the text.
    """
    found = _Found([], [], same_case)
    out = _decode(value, shape, _Place("", "", shape.name, package), found)
    if found.wrong:
        raise ConfigurationError(found.wrong[0])
    if strict and (repeated or found.unknown):
        said = [*repeated, *(f"unknown field {go_quote(p)}" for p in found.unknown)]
        raise ConfigurationError("strict decoding error: " + ", ".join(said))
    return out or {}


class _Found(NamedTuple):
    """The errors of a document, in its order: values of wrong types, of which Go reports the first after decoding everything, and unknown
    fields. Errors of types with their own JSON decoder end the decoding at once instead.
    """

    wrong: list[str]
    unknown: list[str]
    same_case: bool


class _Place(NamedTuple):
    """The position of a value: its path in the document, the path of Go's fields, and the struct that contains the last of them."""

    path: str
    fields: str
    struct: str
    package: str

    def at(self, index: int) -> _Place:
        return self._replace(path=f"{self.path}[{index}]")

    def of(self, struct: str, name: str, key: str) -> _Place:
        return _Place(f"{self.path}.{key}" if self.path else key, f"{self.fields}.{name}", struct, self.package)


def _decode(value: Any, shape: Any, place: _Place, found: _Found) -> Any:
    read = shape.shape if isinstance(shape, Named) else shape
    if shape == DURATION and value is None:  # its decoder accepts null
        value = ""
    if value is None or read == RAW:
        return value
    if isinstance(shape, Struct) and isinstance(value, dict):
        return _fields(value, shape, place, found)
    if isinstance(shape, list) and isinstance(value, list):
        made = [_decode(item, shape[0], place.at(i), found) for i, item in enumerate(value)]
        return [_zero(shape[0]) if item is None else item for item in made]
    if shape == STRINGS and isinstance(value, dict):
        # A map entry is not a struct field: it does not extend the path of Go's fields.
        return {
            k: "" if v is None else _decode(v, STRING, place._replace(path=f"{place.path}.{k}"), found)
            for k, v in value.items()
        }  # fmt: skip
    if read == STRING and isinstance(value, str):
        return value
    if read == BOOL and isinstance(value, bool):
        return value
    if shape in (DURATION, DURATION_POINTER) and isinstance(value, str):
        try:
            return duration.parse(value)
        except ValueError as e:
            raise ConfigurationError(str(e)) from None
    if shape == BYTES and isinstance(value, str):
        try:
            return go_base64(value)
        except DecodeError as e:
            found.wrong.append(str(e))
            return None
    if isinstance(shape, str) and shape in _BITS and type(value) is int and -(1 << _BITS[shape]) <= value < 1 << _BITS[shape]:
        return value
    where = f"Go struct field {place.struct}{place.fields}" if place.fields else "Go value"
    said = f"number {value}" if shape in (INT32, INT64) and type(value) in (int, float) else _json_type(value)
    why = f"json: cannot unmarshal {said} into {where} of type {_go_type(shape, place.package)}"
    if shape in (DURATION, DURATION_POINTER):
        raise ConfigurationError(why)
    found.wrong.append(why)
    return None


def _fields(value: dict[str, Any], shape: Struct, place: _Place, found: _Found) -> dict[str, Any]:
    out = {}
    for key, item in value.items():
        name = key if found.same_case else next((f for f in shape.fields if f.lower() == key.lower()), key)
        here = place.of(shape.name, name, key)
        if name not in shape.fields:
            found.unknown.append(here.path)
        elif (read := _decode(item, shape.fields[name], here, found)) is not None:
            out[name] = read
    return out


def _zero(shape: Any) -> Any:
    if isinstance(shape, Named):
        shape = shape.shape
    return {STRING: "", BOOL: False, INT32: 0, INT64: 0, DURATION: 0}.get(shape) if isinstance(shape, str) else {}


def _json_type(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, (int, float)):
        return "number"
    return "string" if isinstance(value, str) else "object" if isinstance(value, dict) else "array"


def _go_type(shape: Any, package: str) -> str:
    if isinstance(shape, list):
        return "[]" + _go_type(shape[0], package)
    if shape in (DURATION, DURATION_POINTER):  # they have their own JSON decoder, which reads a string
        return STRING
    return f"{package}.{shape.name}" if isinstance(shape, (Struct, Named)) else str(shape)


def check(found: Iterable[FieldError]) -> None:
    """Raises ConfigurationError with all validation errors, formatted like ``field.ErrorList.ToAggregate``."""
    texts = list(dict.fromkeys(map(str, found)))
    if texts:
        raise ConfigurationError(texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]")


# --- documents


class Document(NamedTuple):
    """A JSON value, the strict decoding errors of its text, and the text itself ("" if it was embedded in another document)."""

    value: Any
    repeated: list[str]
    text: str = ""


def parse(data: bytes) -> Document:
    """Parses YAML or JSON. Raises ConfigurationError."""
    from kas.types import yaml_codec  # PyYAML is large and few servers have such a file

    why = gojson.syntax_error(data) if data.lstrip()[:1] == b"{" else None  # text that looks like JSON is not parsed as YAML
    if why is not None:
        raise ConfigurationError(f"{UNREADABLE}: {why}")
    try:
        value, repeated = yaml_codec.decode(data)
    except yaml_codec.YAMLError as e:
        raise ConfigurationError(" ".join(str(e).split())) from None
    if data.lstrip()[:1] != b"{":
        value = _in_order(value)
    return Document(value, repeated, data.decode("utf-8", "replace"))


def _in_order(value: Any) -> Any:
    """Sorts all keys: upstream converts YAML to JSON with sorted keys before it decodes the fields."""
    if isinstance(value, dict):
        return {key: _in_order(value[key]) for key in sorted(value, key=str)}
    return [_in_order(item) for item in value] if isinstance(value, list) else value


def read_file(path: str) -> bytes:
    """Reads a file. Raises ConfigurationError with Go's error text."""
    try:
        return read_configuration(path)
    except OSError as e:
        raise ConfigurationError(unreadable(path, e)) from None


_GROUP = "apiserver.config.k8s.io"
# The configuration kinds in upstream's API server scheme, with their versions.
APISERVER_KINDS = {
    "AdmissionConfiguration": (f"{_GROUP}/v1", "apiserver.k8s.io/v1alpha1"),
    "AuthenticationConfiguration": (f"{_GROUP}/v1", f"{_GROUP}/v1beta1", f"{_GROUP}/v1alpha1"),
    "AuthorizationConfiguration": (f"{_GROUP}/v1", f"{_GROUP}/v1beta1", f"{_GROUP}/v1alpha1"),
    "EgressSelectorConfiguration": ("apiserver.k8s.io/v1beta1", "apiserver.k8s.io/v1alpha1"),
    "EncryptionConfiguration": (f"{_GROUP}/v1",),
    "TracingConfiguration": (f"{_GROUP}/v1", f"{_GROUP}/v1beta1", f"{_GROUP}/v1alpha1"),
}


UNREADABLE = "couldn't get version/kind; json parse error"


class KindError(ConfigurationError):
    """The document has no kind, or an unknown one."""


def kind_of(value: Any) -> tuple[str, str]:
    """(apiVersion, kind) of a JSON value, each "" when missing. Raises ConfigurationError when they have wrong types."""
    if not isinstance(value, dict):
        raise ConfigurationError(f"{UNREADABLE}: {gojson.cannot_unmarshal(value, gojson.TYPE_META)}")
    for name, said in value.items():
        if name in ("apiVersion", "kind") and said is not None and not isinstance(said, str):
            # Upstream decodes them into an anonymous struct.
            where = f"Go struct field .{name} of type string"
            raise ConfigurationError(f"{UNREADABLE}: json: cannot unmarshal {gojson.go_type(said)} into {where}")
    return value.get("apiVersion") or "", value.get("kind") or ""


def named(document: Document) -> tuple[str, str]:
    """(apiVersion, kind) of a document. Raises KindError when one is missing."""
    value = {} if document.value is None else document.value
    api_version, kind = kind_of(value)
    for name, said in (("Kind", kind), ("apiVersion", api_version)):
        if not said:
            shown = document.text or (orjson.dumps(value).decode() if value else "")
            raise KindError(f"Object '{name}' is missing in '{shown}'")
    return api_version, kind


def of_kind(document: Document, kinds: Kinds, scheme: str = "", unexpected: Callable[[str, str], str] | None = None) -> dict[str, Any]:
    """The fields of a document of one of ``kinds``, which are keyed by (apiVersion, kind).

    ``scheme`` is upstream's name of its scheme in errors. ``unexpected(apiVersion, kind)`` returns upstream's error for another kind of API
    server configuration. Raises KindError when the kind is missing or another one, and ConfigurationError for what ``decode`` refuses.
    """
    api_version, kind = named(document)
    shape = kinds.get((api_version, kind))
    if shape is None:
        if unexpected is not None and api_version in APISERVER_KINDS.get(kind, ()):
            raise KindError(unexpected(api_version, kind))
        where = f" in scheme {go_quote(scheme)}" if scheme else ""
        raise KindError(f"no kind {go_quote(kind)} is registered for version {go_quote(api_version)}{where}")
    package = api_version.rpartition("/")[2]
    fields = {k: v for k, v in document.value.items() if k not in ("apiVersion", "kind")}
    return decode(fields, shape, package=package, repeated=document.repeated)
