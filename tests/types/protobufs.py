"""Builds and splits protobuf messages."""

from __future__ import annotations

from collections.abc import Iterator


def varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out, value = out + bytes((value & 127 | 128,)), value >> 7
    return out + bytes((value,))


def field(number: int, content: bytes) -> bytes:
    """Returns a field of bytes, text or a message."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def parts(message: bytes) -> Iterator[tuple[int, int, bytes, bytes]]:
    """Yields number, wire type, content (if it has a length) and all bytes of each field."""
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            value, shift, at = value | (byte & 127) << shift, shift + 7, at + 1
            if byte < 128:
                return value

    while at < len(message):
        begin, tag = at, number()
        content = b""
        if tag & 7 == 2:
            size = number()
            content = message[at : at + size]
            at += size
        elif tag & 7 == 1:
            at += 8
        else:
            number()
        yield tag >> 3, tag & 7, content, message[begin:at]
