"""Minimal reader and writer of DER (X.690), for the few places that parse keys and certificates directly."""

from __future__ import annotations


def member(data: bytes, tag: int) -> bytes:
    """The content of the first element. Raises ValueError when its tag is not ``tag``."""
    found = members(data, 1)
    if not found or found[0][0] != tag:
        raise ValueError("another element was expected")
    return found[0][1]


def members(data: bytes, most: int) -> list[tuple[int, bytes]]:
    """The first elements, at most ``most``, as (tag, content). Raises ValueError for data that ends within one."""
    out: list[tuple[int, bytes]] = []
    at = 0
    while at < len(data) and len(out) < most:
        if at + 2 > len(data):
            raise ValueError("the data ends within an element")
        tag, length, at = data[at], data[at + 1], at + 2
        if length & 0x80:
            count = length & 0x7F
            length, at = int.from_bytes(data[at : at + count], "big"), at + count
            if not 0 < count <= 4:
                raise ValueError("a length that is none")
        if at + length > len(data):
            raise ValueError("the data ends within an element")
        out.append((tag, data[at : at + length]))
        at += length
    return out


def element(tag: int, content: bytes) -> bytes:
    """Encodes an element."""
    length = len(content)
    if length < 0x80:
        return bytes((tag, length)) + content
    size = length.to_bytes((length.bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(size))) + size + content
