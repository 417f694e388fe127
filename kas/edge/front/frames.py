"""A frame of HTTP/2 that is put in between two of a server's; where there is a place for it; and which of a client's ask for nothing."""

from __future__ import annotations

from kas.edge.front._frames import Frames, Idle

__all__ = ["GOAWAY", "Frames", "Idle"]

# "Open no stream here any more": the largest stream id keeps every stream that is open (RFC 9113 6.8), no error, no text.
GOAWAY = b"\x00\x00\x08\x07\x00\x00\x00\x00\x00" + b"\x7f\xff\xff\xff" + b"\x00\x00\x00\x00"
