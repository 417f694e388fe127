"""The well-known protobuf messages, which any expression may construct: ``google.protobuf.Int64Value{value: 1}`` (cel-go
``common/types/pb`` and ``types/provider.go``). Nearly all of them become plain values.
"""

from __future__ import annotations

import base64
import math
import struct as packing
from collections.abc import Callable, Mapping
from typing import Any

from kas.cel.environment import Variable
from kas.cel.problems import EvaluationError
from kas.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    STRING,
    TIMESTAMP,
    UINT,
    Type,
    list_of,
    map_of,
    nullable,
    struct,
    type_of,
    type_text,
)
from kas.cel.values import NS, Duration, Message, Timestamp, TypeValue, Uint, key_value, type_of_value

P = "google.protobuf."
MAX_EXACT = 1 << 53  # integers up to here are exact in JSON numbers
Make = Callable[[dict[str, Any]], Any]


def _number(bits: int, signed: bool) -> Callable[[Any], Any]:
    least, most = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)

    def convert(v: Any) -> Any:
        if type(v) is not (int if signed else Uint):
            raise _unsupported(v, f"{'' if signed else 'u'}int{bits}")
        if not least <= v <= most:
            raise EvaluationError("integer overflow" if signed else "unsigned integer overflow")
        return v

    return convert


def _plain(wanted: type, name: str) -> Callable[[Any], Any]:
    def convert(v: Any) -> Any:
        if type(v) is not wanted:
            raise _unsupported(v, name)
        return v

    return convert


def _float(v: Any) -> float:
    try:
        return packing.unpack("f", packing.pack("f", _plain(float, "float32")(v)))[0]
    except OverflowError:
        return math.copysign(math.inf, v)


def _unsupported(v: Any, wanted: str) -> EvaluationError:
    return EvaluationError(f"unsupported native conversion from {type_text(type_of_value(v))} to '{wanted}'")


def _json(v: Any) -> Any:
    """Return a value as JSON, as ``google.protobuf.Value`` holds it. Raises EvaluationError if it has no JSON form."""
    if v is None or isinstance(v, (bool, str, float)):
        return v
    if isinstance(v, int):
        return float(v) if abs(v) <= MAX_EXACT - 1 else str(int(v))
    if isinstance(v, bytes):
        return base64.b64encode(v).decode()
    if isinstance(v, Duration):
        fraction = f".{abs(v.ns) % NS:09d}".rstrip("0") if v.ns % NS else ""
        return f"{'-' if v.ns < 0 else ''}{abs(v.ns) // NS}{fraction}s"
    if isinstance(v, Timestamp):
        return v.text()
    if isinstance(v, list):
        return _json_list(v)
    if isinstance(v, dict):
        return _json_map(v)
    raise _unsupported(v, "*structpb.Value")


def _json_list(v: Any) -> list[Any]:
    if not isinstance(v, list):
        raise _unsupported(v, "*structpb.ListValue")
    return [_json(x) for x in v]


def _json_map(v: Any) -> dict[str, Any]:
    if not isinstance(v, dict):
        raise _unsupported(v, "*structpb.Struct")
    return {_key(k): _json(x) for k, x in v.items()}


def _key(k: Any) -> str:
    if not isinstance(k, str):
        raise _unsupported(key_value(k), "string")
    return k


_INT32, _INT64 = _number(32, True), _number(64, True)
_BOOL, _STRING, _DOUBLE, _BYTES = _plain(bool, "bool"), _plain(str, "string"), _plain(float, "float64"), _plain(bytes, "[]uint8")
_Field = tuple[Type, Callable[[Any], Any]]


def _wrapper(t: Type, convert: Callable[[Any], Any], zero: Any) -> tuple[Type, dict[str, _Field], Make]:
    return nullable(t), {"value": (t, convert)}, lambda fields: fields.get("value", zero)


def _ns(fields: dict[str, Any]) -> int:
    return fields.get("seconds", 0) * NS + fields.get("nanos", 0)


def _any(fields: dict[str, Any]) -> Any:
    raise EvaluationError(f'anypb.UnmarshalNew() failed for type "{fields.get("type_url", "")}": proto: not found')


def _message(name: str) -> Make:
    return lambda fields: Message(name)


_TIME: dict[str, _Field] = {"seconds": (INT, _INT64), "nanos": (INT, _INT32)}
_MAP, _LIST = map_of(STRING, DYN), list_of(DYN)
_VALUE: dict[str, _Field] = {
    "null_value": (INT, lambda v: None), "number_value": (DOUBLE, _DOUBLE), "string_value": (STRING, _STRING), "bool_value": (BOOL, _BOOL),
    "struct_value": (_MAP, _json_map), "list_value": (_LIST, _json_list),
}  # fmt: skip
# (type, fields with their types and conversions, function that makes the value) by name.
_KNOWN: dict[str, tuple[Type, dict[str, _Field], Make]] = {
    "BoolValue": _wrapper(BOOL, _BOOL, False), "BytesValue": _wrapper(BYTES, _BYTES, b""), "DoubleValue": _wrapper(DOUBLE, _DOUBLE, 0.0),
    "FloatValue": _wrapper(DOUBLE, _float, 0.0), "Int32Value": _wrapper(INT, _INT32, 0), "Int64Value": _wrapper(INT, _INT64, 0),
    "StringValue": _wrapper(STRING, _STRING, ""), "UInt32Value": _wrapper(UINT, _number(32, False), Uint(0)),
    "UInt64Value": _wrapper(UINT, _number(64, False), Uint(0)),
    "Duration": (DURATION, _TIME, lambda fields: Duration(_ns(fields))),
    "Timestamp": (TIMESTAMP, _TIME, lambda fields: Timestamp(_ns(fields))),
    "Struct": (_MAP, {"fields": (_MAP, _json_map)}, lambda fields: fields.get("fields", {})),
    "ListValue": (_LIST, {"values": (_LIST, _json_list)}, lambda fields: fields.get("values", [])),
    "Value": (DYN, _VALUE, lambda fields: next(reversed(fields.values()), None)),
    "Any": (DYN, {"type_url": (STRING, _STRING), "value": (BYTES, _BYTES)}, _any),
    "Empty": (struct(f"{P}Empty"), {}, _message(f"{P}Empty")),
}  # fmt: skip

VARIABLES: Mapping[str, Variable] = {
    **{f"{P}{name}": Variable(f"{P}{name}", type_of(t), TypeValue(struct(f"{P}{name}"))) for name, (t, _, _) in _KNOWN.items()},
    f"{P}NullValue.NULL_VALUE": Variable(f"{P}NullValue.NULL_VALUE", INT, 0),
}


def fields_of(name: str) -> Mapping[str, Type] | None:
    """Return the types of the message's fields; None if it is not a well-known message."""
    known = _KNOWN.get(name.removeprefix(P)) if name.startswith(P) else None
    return {field: t for field, (t, _) in known[1].items()} if known is not None else None


def make(name: str, fields: dict[str, Any]) -> Any:
    """Return the value of the message. Raises EvaluationError if a field has a value of the wrong type."""
    _, known, made = _KNOWN[name.removeprefix(P)]
    out = {}
    for field, value in fields.items():
        try:
            out[field] = known[field][1](value)
        except EvaluationError as e:
            raise EvaluationError(f"field type conversion error for {name}.{field} value type: {e}") from None
    return made(out)
