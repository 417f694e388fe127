"""The protobuf encoding of OpenAPI documents, which kubectl requests: gnostic's ``openapi.v2`` and ``openapi.v3`` Documents.

Messages are tables from a JSON key to (field number, writer), for the keys that our documents use. An unknown key is a bug and raises
KeyError. ``x-`` keys go to the message's extension field, with their values as YAML, of which JSON is a subset. Field numbers:
google/gnostic openapiv2/OpenAPIv2.proto and openapiv3/OpenAPIv3.proto.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import orjson

from kas._codecs import varint

Encoder = Callable[[Any], bytes]


def _chunk(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


# Writes a value, given the field's number. Returns the field with its tag, or nothing for a zero value.
Writer = Callable[[int, Any], bytes]


def _text(number: int, value: str) -> bytes:
    return _chunk(number, value.encode()) if value else b""


def _texts(number: int, value: list[str]) -> bytes:
    return b"".join(_chunk(number, v.encode()) for v in value)


def _flag(number: int, value: bool) -> bytes:
    return varint(number << 3) + b"\x01" if value else b""


def _integer(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value & (2**64 - 1)) if value else b""


def _double(number: int, value: float) -> bytes:
    return varint(number << 3 | 1) + struct.pack("<d", value) if value else b""


def _yaml(value: Any) -> bytes:
    """Return an Any message, whose field 2 is YAML text."""
    return _chunk(2, orjson.dumps(value, option=orjson.OPT_SORT_KEYS) + b"\n")


def _any(number: int, value: Any) -> bytes:
    return _chunk(number, _yaml(value))


def _anys(number: int, value: list[Any]) -> bytes:
    return b"".join(_any(number, v) for v in value)


class Message:
    """A message as a table of fields. ``extension`` is the field number for ``x-`` keys. Tables may refer to one another."""

    __slots__ = ("extension", "fields")

    def __init__(self, extension: int = 0) -> None:
        self.extension = extension
        self.fields: dict[str, tuple[int, Writer]] = {}

    def encode(self, value: dict[str, Any]) -> bytes:
        """Encode the message with its fields in numeric order. Raises KeyError for a key that is not in the table."""
        parts: list[tuple[int, bytes]] = []
        for key, item in value.items():
            if key.startswith("x-"):
                parts.append((self.extension, _chunk(self.extension, _text(1, key) + _chunk(2, _yaml(item)))))
            else:
                number, write = self.fields[key]
                parts.append((number, write(number, item)))
        parts.sort(key=lambda part: part[0])
        return b"".join(data for _, data in parts)


def _one(encode: Encoder) -> Writer:
    return lambda number, value: _chunk(number, encode(value))


def _many(encode: Encoder) -> Writer:
    return lambda number, value: b"".join(_chunk(number, encode(v)) for v in value)


def _pairs(encode: Encoder) -> Encoder:
    """Return the encoder of a message whose field 1 repeats (name, value) pairs."""
    return lambda value: b"".join(_chunk(1, _text(1, name) + _chunk(2, encode(v))) for name, v in value.items())


def _named(encode: Encoder, number: int = 1) -> Encoder:
    return lambda value: b"".join(_chunk(number, _text(1, name) + _chunk(2, encode(v))) for name, v in value.items())


def _string_array(value: list[str]) -> bytes:
    return _texts(1, value)


def _requirement(value: dict[str, list[str]]) -> bytes:
    return _pairs(_string_array)(value)


# --- version 2 ---

_schema2 = Message(31)


def _additional2(value: Any) -> bytes:
    return b"\x10" + bytes([value]) if isinstance(value, bool) else _chunk(1, _schema2.encode(value))


_schema2.fields = {
    "$ref": (1, _text), "format": (2, _text), "title": (3, _text), "description": (4, _text), "default": (5, _any),
    "multipleOf": (6, _double), "maximum": (7, _double), "exclusiveMaximum": (8, _flag), "minimum": (9, _double),
    "exclusiveMinimum": (10, _flag), "maxLength": (11, _integer), "minLength": (12, _integer), "pattern": (13, _text),
    "maxItems": (14, _integer), "minItems": (15, _integer), "uniqueItems": (16, _flag), "maxProperties": (17, _integer),
    "minProperties": (18, _integer), "required": (19, _texts), "enum": (20, _anys), "additionalProperties": (21, _one(_additional2)),
    "type": (22, lambda n, v: _chunk(n, _text(1, v))), "items": (23, lambda n, v: _chunk(n, _chunk(1, _schema2.encode(v)))),
    "allOf": (24, _many(_schema2.encode)), "properties": (25, _one(_named(_schema2.encode))), "example": (30, _any),
}  # fmt: skip

_body2 = Message(6)
_body2.fields = {
    "description": (1, _text), "name": (2, _text), "in": (3, _text), "required": (4, _flag), "schema": (5, _one(_schema2.encode)),
}  # fmt: skip
_query2 = Message(23)
_query2.fields = {
    "required": (1, _flag), "in": (2, _text), "description": (3, _text), "name": (4, _text), "type": (6, _text), "format": (7, _text),
    "uniqueItems": (20, _flag),
}  # fmt: skip
_path2 = Message(22)
_path2.fields = {
    "required": (1, _flag), "in": (2, _text), "description": (3, _text), "name": (4, _text), "type": (5, _text), "format": (6, _text),
    "uniqueItems": (19, _flag),
}  # fmt: skip


def _parameter2(value: dict[str, Any]) -> bytes:
    match value["in"]:
        case "body":
            return _chunk(1, _body2.encode(value))
        case "query":
            return _chunk(2, _chunk(3, _query2.encode(value)))
        case "path":
            return _chunk(2, _chunk(4, _path2.encode(value)))
    raise KeyError(value["in"])


def _parameter_item2(value: dict[str, Any]) -> bytes:
    return _chunk(2, _text(1, value["$ref"])) if "$ref" in value else _chunk(1, _parameter2(value))


_response2 = Message(5)
_response2.fields = {"description": (1, _text), "schema": (2, lambda n, v: _chunk(n, _chunk(1, _schema2.encode(v))))}
_operation2 = Message(13)
_operation2.fields = {
    "tags": (1, _texts), "summary": (2, _text), "description": (3, _text), "operationId": (5, _text), "produces": (6, _texts),
    "consumes": (7, _texts), "parameters": (8, _many(_parameter_item2)),
    "responses": (9, _one(_named(lambda v: _chunk(1, _response2.encode(v))))), "schemes": (10, _texts), "deprecated": (11, _flag),
    "security": (12, _many(_requirement)),
}  # fmt: skip
_item2 = Message(10)
_item2.fields = {
    "get": (2, _one(_operation2.encode)), "put": (3, _one(_operation2.encode)), "post": (4, _one(_operation2.encode)),
    "delete": (5, _one(_operation2.encode)), "options": (6, _one(_operation2.encode)), "head": (7, _one(_operation2.encode)),
    "patch": (8, _one(_operation2.encode)), "parameters": (9, _many(_parameter_item2)),
}  # fmt: skip
_info2 = Message(7)
_info2.fields = {"title": (1, _text), "version": (2, _text), "description": (3, _text)}
_api_key2 = Message(5)
_api_key2.fields = {"type": (1, _text), "name": (2, _text), "in": (3, _text), "description": (4, _text)}
_V2_ENTRIES = (_named(_schema2.encode), _named(_item2.encode, 2))  # definitions and paths
_document2 = Message(16)
_document2.fields = {
    "swagger": (1, _text), "info": (2, _one(_info2.encode)), "paths": (8, _one(_V2_ENTRIES[1])),
    "definitions": (9, _one(_V2_ENTRIES[0])), "parameters": (10, _one(_named(_parameter2))),
    "security": (12, _many(_requirement)), "securityDefinitions": (13, _one(_named(lambda v: _chunk(2, _api_key2.encode(v))))),
}  # fmt: skip

# --- version 3 ---

_schema3 = Message(36)


def _schema_or_ref3(value: dict[str, Any]) -> bytes:
    return _chunk(2, _text(1, value["$ref"])) if "$ref" in value else _chunk(1, _schema3.encode(value))


def _additional3(value: Any) -> bytes:
    return b"\x10" + bytes([value]) if isinstance(value, bool) else _chunk(1, _schema_or_ref3(value))


def _default3(number: int, value: Any) -> bytes:
    """Write a default. v3 supports only numbers, booleans and strings; gnostic leaves out other values."""
    if isinstance(value, bool):
        return _chunk(number, b"\x10" + bytes([value]))
    if isinstance(value, int | float):
        return _chunk(number, b"\x09" + struct.pack("<d", value))
    return _chunk(number, _chunk(3, value.encode())) if isinstance(value, str) else b""


_schema3.fields = {
    "nullable": (1, _flag), "example": (7, _any), "title": (9, _text), "multipleOf": (10, _double), "maximum": (11, _double),
    "exclusiveMaximum": (12, _flag), "minimum": (13, _double), "exclusiveMinimum": (14, _flag), "maxLength": (15, _integer),
    "minLength": (16, _integer), "pattern": (17, _text), "maxItems": (18, _integer), "minItems": (19, _integer),
    "uniqueItems": (20, _flag), "maxProperties": (21, _integer), "minProperties": (22, _integer), "required": (23, _texts),
    "enum": (24, _anys), "type": (25, _text), "allOf": (26, _many(_schema_or_ref3)), "oneOf": (27, _many(_schema_or_ref3)),
    "anyOf": (28, _many(_schema_or_ref3)), "not": (29, _one(_schema3.encode)),
    "items": (30, lambda n, v: _chunk(n, _chunk(1, _schema_or_ref3(v)))), "properties": (31, _one(_named(_schema_or_ref3))),
    "additionalProperties": (32, _one(_additional3)), "default": (33, _default3), "description": (34, _text), "format": (35, _text),
}  # fmt: skip

_media3 = Message(5)
_media3.fields = {"schema": (1, _one(_schema_or_ref3))}
_content3 = _one(_named(_media3.encode))
_parameter3 = Message(14)
_parameter3.fields = {
    "name": (1, _text), "in": (2, _text), "description": (3, _text), "required": (4, _flag), "schema": (10, _one(_schema_or_ref3)),
}  # fmt: skip


def _or_reference(encode: Encoder) -> Encoder:
    """Return the encoder of a choice: field 1 for the value itself, field 2 for a reference to it."""
    return lambda value: _chunk(2, _text(1, value["$ref"])) if "$ref" in value else _chunk(1, encode(value))


_parameters3 = _many(_or_reference(_parameter3.encode))
_request3 = Message(4)
_request3.fields = {"description": (1, _text), "content": (2, _content3), "required": (3, _flag)}
_response3 = Message(5)
_response3.fields = {"description": (1, _text), "content": (3, _content3)}
_operation3 = Message(13)
_operation3.fields = {
    "tags": (1, _texts), "summary": (2, _text), "description": (3, _text), "operationId": (5, _text), "parameters": (6, _parameters3),
    "requestBody": (7, _one(lambda v: _chunk(1, _request3.encode(v)))),
    "responses": (8, _one(_named(_or_reference(_response3.encode), 2))), "deprecated": (10, _flag),
    "security": (11, _many(_requirement)),
}  # fmt: skip
_item3 = Message(14)
_item3.fields = {
    "summary": (2, _text), "description": (3, _text), "get": (4, _one(_operation3.encode)), "put": (5, _one(_operation3.encode)),
    "post": (6, _one(_operation3.encode)), "delete": (7, _one(_operation3.encode)), "options": (8, _one(_operation3.encode)),
    "head": (9, _one(_operation3.encode)), "patch": (10, _one(_operation3.encode)), "parameters": (13, _parameters3),
}  # fmt: skip
_info3 = Message(7)
_info3.fields = {"title": (1, _text), "description": (2, _text), "version": (6, _text)}
_security3 = Message(9)
_security3.fields = {"type": (1, _text), "description": (2, _text), "name": (3, _text), "in": (4, _text)}
_V3_ENTRIES = (_named(_schema_or_ref3), _named(_item3.encode))  # schemas and paths
_components3 = Message(10)
_components3.fields = {
    "schemas": (1, _one(_V3_ENTRIES[0])), "responses": (2, _one(_named(_or_reference(_response3.encode)))),
    "securitySchemes": (7, _one(_named(lambda v: _chunk(1, _security3.encode(v))))),
}  # fmt: skip
_document3 = Message(9)
_document3.fields = {
    "openapi": (1, _text), "info": (2, _one(_info3.encode)), "paths": (4, _one(_V3_ENTRIES[1])),
    "components": (5, _one(_components3.encode)), "security": (6, _many(_requirement)),
}  # fmt: skip


def encode_v2(document: dict[str, Any]) -> bytes:
    """Encode an OpenAPI v2 document as ``openapi.v2.Document``."""
    return _document2.encode(document)


def entries(version: str, which: int, value: dict[str, Any]) -> bytes:
    """Encode schemas (0) or paths (1) as the entries of a document of ``version`` ("v2", "v3"). Results can be concatenated."""
    return (_V2_ENTRIES if version == "v2" else _V3_ENTRIES)[which](value)


def framed(version: str, document: dict[str, Any], sizes: Sequence[int]) -> Iterator[bytes | int]:
    """Yield the bytes around the entries of a document, and in place of the entries the number that ``entries`` takes.

    ``sizes`` are the bytes of the two kinds of entries.
    """
    table = _document2 if version == "v2" else _document3
    for key in sorted(document, key=lambda key: table.fields[key][0]):
        number = table.fields[key][0]
        if key in ("definitions", "paths"):
            which = int(key == "paths")
            yield _head(number, sizes[which])
            yield which
        elif key == "components":
            begin = _head(_components3.fields["schemas"][0], sizes[0])
            rest = _components3.encode({name: value for name, value in document[key].items() if name != "schemas"})
            yield _head(number, len(begin) + sizes[0] + len(rest)) + begin
            yield 0
            yield rest
        else:
            yield table.encode({key: document[key]})


def _head(number: int, size: int) -> bytes:
    return varint(number << 3 | 2) + varint(size)


def encode_v3(document: dict[str, Any]) -> bytes:
    """Encode an OpenAPI v3 document as ``openapi.v3.Document``."""
    return _document3.encode(document)
