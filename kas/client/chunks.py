"""Decodes a chunked body (RFC 9112, 7.1) as it arrives. Data around the chunks is bounded as in Go's ``net/http``."""

from __future__ import annotations

from kas.meta.patterns import later

_CHUNK = later(rb"([0-9A-Fa-f]{1,16})[ \t]*(?:;[^\r\n]*)?\r?\n?")
_SIZE, _DATA, _GAP, _TRAILER = range(4)  # what comes next
LINE_BYTES = 64 << 10
TRAILER_BYTES = 4 << 10
# Bytes around the data of chunks, beyond 16 for each and twice the data.
MOST_EXCESS = 16 << 10
LINES = 2000  # processed in one call: some milliseconds


class ChunkError(ValueError):
    """An invalid chunked body, in Go's words."""


class Chunks:
    """Decodes a body from received data. ``done`` is set once its end was taken."""

    __slots__ = ("_excess", "_left", "_phase", "_trailer", "done")

    def __init__(self) -> None:
        self._phase, self._left, self._excess, self._trailer, self.done = _SIZE, 0, 0, 0, False

    def take(self, got: bytearray, body: bytearray, most: int, steps: int = LINES) -> bool:
        """Moves body data from ``got`` to the end of ``body``, until that has at least ``most`` bytes, in at most
        ``steps`` steps, of which a chunk takes three. Returns whether there may be more to take at once. Raises ChunkError."""
        at = 0
        for _ in range(steps):
            if self._phase == _DATA:
                piece = got[at : at + self._left]
                body += piece
                at += len(piece)
                self._left -= len(piece)
                if self._left or len(body) >= most:
                    break
                self._phase = _GAP
                continue
            end = got.find(b"\n", at)
            if end < 0:
                if len(got) - at > LINE_BYTES:
                    raise ChunkError("unexpected EOF")
                break
            line, at = bytes(got[at:end]).strip(), end + 1
            self._line(line)
            if self.done:
                break
        else:
            del got[:at]
            return True
        del got[:at]
        return False

    def _line(self, line: bytes) -> None:
        if self._phase == _SIZE:
            self._left = chunk_size(line)
            self._excess = max(0, self._excess + len(line) - 14 - 2 * self._left)
            if self._excess > MOST_EXCESS:
                raise ChunkError("http: chunked encoding contains too much non-data")
            self._phase = _DATA if self._left else _TRAILER
        elif self._phase == _GAP:
            if line:
                raise ChunkError("malformed chunked encoding")
            self._phase = _SIZE
        else:
            self._trailer += len(line) + 2
            if self._trailer > TRAILER_BYTES:
                raise ChunkError("http: suspiciously long trailer after chunked body")
            self.done = not line


def chunk_size(line: bytes) -> int:
    """The size in a chunk header. Raises ChunkError for one that other implementations might read differently."""
    found = _CHUNK.fullmatch(line)
    if found is None:
        raise ChunkError("invalid byte in chunk length")
    return int(found[1], 16)
