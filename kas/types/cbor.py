"""CBOR (RFC 8949) as Kubernetes speaks it: JSON's values, with byte strings for texts (``apimachinery`` ``runtime/serializer/cbor``).

What JSON cannot say is refused: other keys than texts, infinities, integers beyond 64 bits, undefined. A byte string that is tagged
to become base64 or hexadecimal is that text; others are texts themselves, of which each byte that is no UTF-8 is U+FFFD. What is tagged
as a time is one in text; other tags say nothing. Strings, arrays and maps may come without a length.
"""

from __future__ import annotations

import struct
import sys
from random import random
from typing import Any

from kas._codecs import CBORError, CBORTooLongError, cbor_value

__all__ = ["SELF_DESCRIBED", "CBORError", "CBORTooLongError", "decode", "encode"]

SELF_DESCRIBED = b"\xd9\xd9\xf7"
_UNSIGNED, _NEGATIVE, _BYTES, _TEXT, _ARRAY, _MAP, _TAG, _SIMPLE = range(8)
_FLOATS = {25: ">e", 26: ">f", 27: ">d"}


def encode(value: Any, turned: bool = False) -> bytes:
    """A JSON value with the tag that says it is CBOR. Where a map that is ``turned`` begins is random: no client comes to depend on it."""
    out = bytearray(SELF_DESCRIBED)
    _encode(value, out, turned)
    return bytes(out)


def _head(major: int, n: int, out: bytearray) -> None:
    if n < 24:
        out.append(major << 5 | n)
        return
    size = 0 if n < 1 << 8 else 1 if n < 1 << 16 else 2 if n < 1 << 32 else 3
    out.append(major << 5 | 24 + size)
    out += n.to_bytes(1 << size, "big")


def _encode(value: Any, out: bytearray, turned: bool) -> None:
    if isinstance(value, str):
        data = value.encode()
        _head(_BYTES, len(data), out)
        out += data
    elif isinstance(value, bool) or value is None:
        out.append(_SIMPLE << 5 | (22 if value is None else 21 if value else 20))
    elif isinstance(value, int):
        _head(_UNSIGNED if value >= 0 else _NEGATIVE, value if value >= 0 else -1 - value, out)
    elif isinstance(value, float):
        out += _float(value)
    elif isinstance(value, dict):
        _head(_MAP, len(value), out)
        pairs = list(value.items())
        first = int(random() * len(pairs)) if turned else 0
        for key, item in pairs[first:] + pairs[:first]:
            _encode(key, out, turned)
            _encode(item, out, turned)
    else:
        _head(_ARRAY, len(value), out)
        for item in value:
            _encode(item, out, turned)


def _float(value: float) -> bytes:
    """In as few bytes as hold it."""
    for info, form in _FLOATS.items():
        try:
            data = struct.pack(form, value)
        except OverflowError:
            continue
        if struct.unpack(form, data)[0] == value:
            return bytes((_SIMPLE << 5 | info,)) + data
    raise CBORError("infinities and NaN are not allowed")


def decode(data: bytes, items: int = sys.maxsize) -> Any:
    """The JSON value of one data item, with or without the tag that says it is CBOR. Raises CBORError, also for a repeated key;
    CBORTooLongError for more values in it than ``items``."""
    return cbor_value(data, len(SELF_DESCRIBED) if data.startswith(SELF_DESCRIBED) else 0, items)
