"""The protobuf wire format, for messages without a descriptor here: those of plug-ins and of etcd.

A message is the concatenation of its fields (``put_…``); ``fields`` reads one message, level by level. Errors have the texts of Go's
library. API objects have codecs of their own (``kas/_codecs.pyx``).
"""

from __future__ import annotations

from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
INVALID = "proto: cannot parse invalid wire-format data"
_MAX_NUMBER = (1 << 29) - 1


def varint(n: int) -> bytes:
    """Encodes a 64-bit number as a varint; a negative one in two's complement, like int64."""
    n &= (1 << 64) - 1
    out = bytearray()
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def put_bytes(number: int, value: bytes) -> bytes:
    """A field of bytes, a string or a message; b"" for an empty value, which proto3 leaves out."""
    return varint(number << 3 | BYTES) + varint(len(value)) + value if value else b""


def put_text(number: int, value: str) -> bytes:
    """A field of type string."""
    return put_bytes(number, value.encode())


def put_int(number: int, value: int) -> bytes:
    """A field of an integer, bool or enum; b"" for 0, which proto3 leaves out."""
    return varint(number << 3) + varint(value) if value else b""


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Returns (64-bit number, offset after it). Raises ValueError when it is truncated or longer than ten bytes."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise ValueError(INVALID)
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> 64:
                break
            return value, at
    raise ValueError(INVALID)


def fields(data: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """Yields (number, wire type, value) of each field in order; the value is an int for VARINT, else bytes. Raises ValueError for an
    invalid message, and for groups, which are obsolete.
    """
    at, end = 0, len(data)
    while at < end:
        tag, at = read_varint(data, at)
        number, kind = tag >> 3, tag & 7
        if not 0 < number <= _MAX_NUMBER:
            raise ValueError(INVALID)
        if kind == VARINT:
            value, at = read_varint(data, at)
            yield number, kind, value
            continue
        if kind == BYTES:
            size, at = read_varint(data, at)
        elif kind in (FIXED64, FIXED32):
            size = 8 if kind == FIXED64 else 4
        else:
            raise ValueError(INVALID)
        if size > end - at:
            raise ValueError(INVALID)
        yield number, kind, data[at : at + size]
        at += size


def text(value: int | bytes) -> str:
    """The value of a string field. Raises ValueError when it is not UTF-8."""
    if not isinstance(value, bytes):
        raise ValueError(INVALID)
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise ValueError("proto: string field contains invalid UTF-8") from None
