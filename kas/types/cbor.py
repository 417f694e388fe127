"""CBOR (RFC 8949) as used by Kubernetes: JSON's values, with byte strings for texts (``apimachinery`` ``runtime/serializer/cbor``).

Values that JSON cannot express are refused: keys that are not texts, infinities, integers beyond 64 bits, undefined. A byte string tagged
for conversion to base64 or hexadecimal becomes that text; any other is a text itself, in which each byte that is not valid UTF-8 becomes
U+FFFD. A tagged time becomes a text; other tags are ignored. Strings, arrays and maps may have indefinite length.
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
    """Encodes a JSON value, with the self-described CBOR tag. ``turned`` rotates the entries of each map by a random amount, so that no
    client depends on their order.
    """
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
    """Encodes a float in the fewest bytes that hold it exactly. Raises CBORError for infinities and NaN."""
    for info, form in _FLOATS.items():
        try:
            data = struct.pack(form, value)
        except OverflowError:
            continue
        if struct.unpack(form, data)[0] == value:
            return bytes((_SIMPLE << 5 | info,)) + data
    raise CBORError("infinities and NaN are not allowed")


def decode(data: bytes, items: int = sys.maxsize) -> Any:
    """Decodes one data item, with or without the self-described CBOR tag, to a JSON value. Raises CBORError, also for a repeated key, and
    CBORTooLongError when it has more than ``items`` values.
    """
    return cbor_value(data, len(SELF_DESCRIBED) if data.startswith(SELF_DESCRIBED) else 0, items)
