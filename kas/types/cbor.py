"""CBOR (RFC 8949) as Kubernetes speaks it: JSON's values, with byte strings for texts (``apimachinery`` ``runtime/serializer/cbor``).

What JSON cannot say is refused: other keys than texts, infinities, integers beyond 64 bits, undefined, tags. A byte string that is tagged
to become base64 or hexadecimal is that text; others are texts themselves, which have to be UTF-8.
"""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Callable
from typing import Any

SELF_DESCRIBED = b"\xd9\xd9\xf7"
MOST_LEVELS = 64
_UNSIGNED, _NEGATIVE, _BYTES, _TEXT, _ARRAY, _MAP, _TAG, _SIMPLE = range(8)
_CONSTANTS = {20: False, 21: True, 22: None}
_FLOATS = {25: ">e", 26: ">f", 27: ">d"}
_LATER: dict[int, Callable[[bytes], bytes]] = {21: base64.urlsafe_b64encode, 22: base64.b64encode, 23: base64.b16encode}


class CBORError(ValueError):
    """No CBOR, or what no object can be."""


def encode(value: Any) -> bytes:
    """A JSON value with the tag that says it is CBOR."""
    out = bytearray(SELF_DESCRIBED)
    _encode(value, out)
    return bytes(out)


def _head(major: int, n: int, out: bytearray) -> None:
    if n < 24:
        out.append(major << 5 | n)
        return
    size = 0 if n < 1 << 8 else 1 if n < 1 << 16 else 2 if n < 1 << 32 else 3
    out.append(major << 5 | 24 + size)
    out += n.to_bytes(1 << size, "big")


def _encode(value: Any, out: bytearray) -> None:
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
        for key, item in value.items():
            _encode(key, out)
            _encode(item, out)
    else:
        _head(_ARRAY, len(value), out)
        for item in value:
            _encode(item, out)


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


def decode(data: bytes) -> Any:
    """The JSON value of one data item, with or without the tag that says it is CBOR. Raises CBORError, also for a repeated key."""
    d = _Decoder(data, len(SELF_DESCRIBED) if data.startswith(SELF_DESCRIBED) else 0)
    value = d.item(0)
    if d.at != len(data):
        raise CBORError(f"{len(data) - d.at} bytes of extraneous data starting at index {d.at}")
    return value


class _Decoder:
    def __init__(self, data: bytes, at: int) -> None:
        self.data, self.at = data, at

    def take(self, n: int) -> bytes:
        found = self.data[self.at : self.at + n]
        if len(found) < n:
            raise CBORError("unexpected EOF")
        self.at += n
        return found

    def head(self) -> tuple[int, int, int]:
        """Major type, what the lower bits say, and the number they mean or announce."""
        first = self.take(1)[0]
        major, info = first >> 5, first & 31
        if info < 24:
            return major, info, info
        if info > 27:
            raise CBORError("indefinite lengths are not allowed" if info == 31 else f"additional information {info} is reserved")
        return major, info, int.from_bytes(self.take(1 << (info - 24)), "big")

    def item(self, level: int) -> Any:
        if level > MOST_LEVELS:
            raise CBORError(f"exceeded max nested level {MOST_LEVELS}")
        major, info, n = self.head()
        if major <= _NEGATIVE:
            if n >= 1 << 63:
                raise CBORError("an integer is larger than 64 bits")
            return n if major == _UNSIGNED else -1 - n
        if major in (_BYTES, _TEXT):
            return self.text(n)
        if major == _ARRAY:
            return [self.item(level + 1) for _ in range(n)]
        if major == _MAP:
            return self.map(n, level)
        if major == _TAG:
            return self.tagged(n)
        return self.simple(info, n)

    def text(self, n: int) -> str:
        try:
            return self.take(n).decode()
        except UnicodeDecodeError:
            raise CBORError("a text is not UTF-8") from None

    def map(self, n: int, level: int) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for _ in range(n):
            major, _, size = self.head()
            if major not in (_BYTES, _TEXT):
                raise CBORError("a map's key is no text")
            key = self.text(size)
            if key in out:
                raise CBORError(f'found duplicate map key "{key}"')
            out[key] = self.item(level + 1)
        return out

    def tagged(self, tag: int) -> str:
        major, _, n = self.head()
        if tag not in _LATER or major != _BYTES:
            raise CBORError(f"tag {tag} is not allowed")
        return _LATER[tag](self.take(n)).decode()

    def simple(self, info: int, n: int) -> Any:
        if info in _CONSTANTS:
            return _CONSTANTS[info]
        if info not in _FLOATS:
            raise CBORError(f"simple value {n} is not allowed")
        self.at -= 1 << (info - 24)
        (value,) = struct.unpack(_FLOATS[info], self.take(1 << (info - 24)))
        if not math.isfinite(value):
            raise CBORError("infinities and NaN are not allowed")
        return value
