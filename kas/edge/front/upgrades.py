"""Which connections ask for SPDY: exec, attach and port-forward of clients that take over the raw connection.

granian cannot hand a connection over, so the front looks at the first bytes of a client and gives such connections
to where the worker accepts raw connections (``edge/spdylistener.py``). All others go on as they are. How much is
looked at is bounded.
"""

from __future__ import annotations

import re

MAX_HEAD = 64 << 10
END = b"\r\n\r\n"
_STREAMS = re.compile(rb"(?:GET|POST) /api/v1/[^ ?]{1,1024}/(?:exec|attach|portforward)[? ]")
_UNFINISHED = re.compile(rb"(?:GET|POST) /api/v1/[^ ?]{0,1024}")
_UPGRADE = re.compile(rb"\r\nupgrade:[ \t]*spdy/3\.1[ \t]*\r\n", re.IGNORECASE)


def wants_spdy(data: bytes, known: int = 0) -> bool | None:
    """Whether a connection that begins with these bytes asks for SPDY; None if that depends on bytes still to come.
    ``known`` is how many of them have been looked at before."""
    if not _STREAMS.match(data):
        return None if _UNFINISHED.fullmatch(data) else False
    end = data.find(END, max(0, known - len(END)))
    if end < 0:
        return None if len(data) < MAX_HEAD else False
    return _UPGRADE.search(data, 0, end + 2) is not None
