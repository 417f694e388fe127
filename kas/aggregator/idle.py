"""A pool of idle connections to backends: a new connection costs a millisecond of TLS.

A connection is reused only if no data has arrived since its last response. The backend may still close it at the same moment; so only
requests that may be repeated use such a connection (``proxy.py``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable

from kas.client.http import CONNECTION_BYTES, Connection
from kas.observe import caches

MOST_IDLE, IDLE_S = 25, 90.0  # per backend; as Go's http.Transport in upstream
MOST_OF_ALL = 250  # for all backends: each takes a file descriptor


class IdleConnections:
    """Keyed by whatever makes connections interchangeable. Used on the event loop's thread only."""

    def __init__(self) -> None:
        self._idle: dict[Hashable, list[tuple[asyncio.TimerHandle, Connection]]] = {}
        what = "connections to other API servers that are not in use"
        caches.follow("aggregator_connections", what, MOST_OF_ALL * CONNECTION_BYTES, self, lambda own: len(own) * CONNECTION_BYTES)

    def take(self, key: Hashable) -> Connection | None:
        """Return the most recently used open connection, or None."""
        found = self._idle.get(key)
        while found:
            timer, connection = found.pop()
            timer.cancel()
            if not found:
                del self._idle[key]
            if connection.quiet:
                return connection
            connection.close()
        return None

    def keep(self, key: Hashable, connection: Connection) -> None:
        """Put back a connection whose response was read completely. It is closed if the pool is full, and after ``IDLE_S``."""
        if len(self._idle.get(key, ())) >= MOST_IDLE or len(self) >= MOST_OF_ALL:
            connection.close()
            return
        found = self._idle.setdefault(key, [])
        timer = asyncio.get_running_loop().call_later(IDLE_S, self._expire, key, connection)
        found.append((timer, connection))

    def close(self) -> None:
        """Close all connections."""
        for found in self._idle.values():
            for timer, connection in found:
                timer.cancel()
                connection.close()
        self._idle.clear()

    def __len__(self) -> int:
        return sum(map(len, self._idle.values()))

    def _expire(self, key: Hashable, connection: Connection) -> None:
        left = [entry for entry in self._idle.pop(key, ()) if entry[1] is not connection]
        if left:
            self._idle[key] = left
        connection.close()
