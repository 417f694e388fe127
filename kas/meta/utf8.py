"""Text from bytes that need not be UTF-8."""

from __future__ import annotations


def text(raw: bytes) -> str:
    """As Go reads it, where each byte that is part of no character is U+FFFD; Python's ``replace`` has one for all that begin one."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        # One half of a surrogate pair for each such byte, and then U+FFFD for each half.
        halves = raw.decode("utf-8", "surrogateescape")
        return halves.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
