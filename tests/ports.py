"""Ports for programs that must be told theirs before they listen."""

from __future__ import annotations

import socket

_kept: list[socket.socket] = []


def reserve() -> int:
    """A port of loopback that nobody else is given while this process lives.

    A bound socket keeps it: one that does not listen leaves the port free for a program that sets ``SO_REUSEADDR`` (as Go's and ours
    do), also after a restart, and takes it from the ports of connections and of ``bind(0)``. Nobody listens until that program does."""
    kept = socket.socket()
    kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    kept.bind(("127.0.0.1", 0))
    _kept.append(kept)
    return int(kept.getsockname()[1])
