"""Where in a stream of HTTP/2 frames another frame may be put in: after a whole one, and not inside a block of headers."""

from __future__ import annotations

_HEAD = 9  # bytes: length (3), type, flags, stream (4)
_BLOCKS = (1, 5, 9)  # HEADERS, PUSH_PROMISE, CONTINUATION: nothing may come before their last
_END_HEADERS = 4
# "Open no stream here any more": the largest stream id keeps every stream that is open (RFC 9113 6.8), no error, no text.
GOAWAY = b"\x00\x00\x08\x07\x00\x00\x00\x00\x00" + b"\x7f\xff\xff\xff" + b"\x00\x00\x00\x00"


class Frames:
    """Follows what a server sends from its first byte on. Holds no data but a head that came in pieces."""

    __slots__ = ("_head", "_left", "_open", "whole")

    def __init__(self) -> None:
        self._head = b""
        self._left = 0  # of the payload
        self._open = False  # a block of headers goes on in the next frame
        self.whole = False  # what was sent so far, the first frame at least, ends where another may follow

    def edge(self, data: bytes) -> int:
        """How many of these bytes, the next of the stream, come before the last place where a frame may be put in; -1 without any."""
        at, found = 0, -1
        while at < len(data):
            if self._left:
                taken = min(self._left, len(data) - at)
                self._left -= taken
                at += taken
            else:
                piece = data[at : at + _HEAD - len(self._head)]
                self._head += piece
                at += len(piece)
                if len(self._head) < _HEAD:
                    break
                self._left = int.from_bytes(self._head[:3], "big")
                if self._head[3] in _BLOCKS:
                    self._open = not self._head[4] & _END_HEADERS
                self._head = b""
            if not self._left and not self._open:
                found = at
        self.whole = found == len(data)
        return found
