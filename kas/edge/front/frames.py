"""HTTP/2 frames as the front sees them: where a GOAWAY may be inserted in a server's, and how many of a client's
request nothing."""

from __future__ import annotations

from kas.edge.front._frames import Frames, Idle

__all__ = ["GOAWAY", "Frames", "Idle"]

# The largest stream id keeps every open stream and forbids new ones (RFC 9113 6.8); no error, no debug data.
GOAWAY = b"\x00\x00\x08\x07\x00\x00\x00\x00\x00" + b"\x7f\xff\xff\xff" + b"\x00\x00\x00\x00"
