"""Byte ranges of a document, as Go's ``http.ServeContent`` serves them: ``Range`` and ``If-Range`` (RFC 9110, 14)."""

from __future__ import annotations

import re

from kas.meta.records import NamedTuple
from kas.request.http import Write

INVALID, NO_OVERLAP = "invalid range", "invalid range: failed to overlap"
_NUMBER = re.compile(r"\+?[0-9]{1,18}", re.ASCII)


class RangeError(ValueError):
    """A range that cannot be served (416). ``overlaps`` is false if it lies outside the document."""

    def __init__(self, overlaps: bool) -> None:
        super().__init__(INVALID if overlaps else NO_OVERLAP)
        self.overlaps = overlaps


class Part(NamedTuple):
    """The bytes from ``first`` to ``last``, inclusive, of a document of ``size`` bytes."""

    first: int
    last: int
    size: int

    @property
    def length(self) -> int:
        """The number of bytes."""
        return self.last - self.first + 1

    @property
    def content_range(self) -> str:
        """The value of Content-Range."""
        return f"bytes {self.first}-{self.last}/{self.size}"


def requested_part(text: str, if_range: str, etag: str, size: int) -> Part | None:
    """Return the part that a Range header asks for, given the document's strong tag and size, or None for the whole document.

    None is returned without a Range header, if If-Range names another document, and for several ranges, which a server need not support.
    Raises RangeError.
    """
    if not text or (if_range and if_range.strip() != etag):
        return None
    parts = _parts(text, size)
    return parts[0] if len(parts) == 1 else None


def _parts(text: str, size: int) -> list[Part]:
    if not text.startswith("bytes="):
        raise RangeError(True)
    found, outside = list[Part](), False
    for each in text[len("bytes=") :].split(","):
        each = each.strip()
        if not each:
            continue
        begin, dash, end = (word.strip() for word in each.partition("-"))
        if not dash or not (begin or end) or not all(_NUMBER.fullmatch(word) for word in (begin, end) if word):
            raise RangeError(True)
        if not begin:
            length = min(int(end), size)
            part = Part(size - length, size - 1, size)
        else:
            part = Part(int(begin), min(int(end), size - 1) if end else size - 1, size)
            if end and int(begin) > int(end):
                raise RangeError(True)
        if part.first >= size:
            outside = True
        else:
            found.append(part)
    if outside and not found:
        raise RangeError(False)
    return found


class Window:
    """Forwards the bytes of a part from all the pieces that it is given."""

    def __init__(self, write: Write, part: Part) -> None:
        self._write, self._part, self._at = write, part, 0

    async def __call__(self, piece: bytes) -> None:
        """Take the next piece of the whole document."""
        begin, end = max(self._part.first - self._at, 0), max(self._part.last + 1 - self._at, 0)
        self._at += len(piece)
        if within := piece[begin:end]:
            await self._write(within)
