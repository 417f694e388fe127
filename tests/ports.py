"""Reserves ports for programs that must be told theirs before they listen."""

from __future__ import annotations

import socket

_kept: list[socket.socket] = []


def reserve() -> int:
    """Reserve a loopback port that is not used otherwise while this process lives.

    A bound socket keeps it: a socket that does not listen leaves the port free for a program that sets ``SO_REUSEADDR`` (as Go's and ours
    do), also after a restart, and excludes it from ephemeral ports and ``bind(0)``. Connections are refused until that program listens.
    """
    kept = socket.socket()
    kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    kept.bind(("127.0.0.1", 0))
    _kept.append(kept)
    return int(kept.getsockname()[1])
