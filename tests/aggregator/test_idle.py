"""Idle connections to backends."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from kas.aggregator.idle import MOST_IDLE, MOST_OF_ALL, IdleConnections
from kas.client.http import CONNECTION_BYTES, Connection
from kas.observe import caches


class Fake:
    def __init__(self) -> None:
        self.quiet, self.closed = True, False

    def close(self) -> None:
        self.closed = True


def test_the_most_recently_used_open_connection_is_taken():
    async def run() -> None:
        idle, made = IdleConnections(), [Fake() for _ in range(MOST_IDLE + 1)]
        for connection in made:
            idle.keep("a", cast(Connection, connection))
        assert len(idle) == MOST_IDLE and [c.closed for c in made] == [False] * MOST_IDLE + [True]
        made[MOST_IDLE - 1].quiet = False
        taken: Any = idle.take("a")
        assert taken is made[MOST_IDLE - 2] and made[MOST_IDLE - 1].closed and not taken.closed
        assert idle.take("b") is None
        idle._expire("a", cast(Connection, made[0]))
        assert made[0].closed and len(idle) == MOST_IDLE - 3
        idle.close()
        assert len(idle) == 0 and all(c.closed for c in made if c is not taken)
        assert idle.take("a") is None

    asyncio.run(run())


def test_idle_connections_are_bounded_and_listed():
    async def run() -> None:
        idle, made = IdleConnections(), [Fake() for _ in range(MOST_OF_ALL + 5)]
        before = next(row.size for row in caches.rows() if row.name == "aggregator_connections")
        for i, connection in enumerate(made):
            idle.keep(f"backend {i}", cast(Connection, connection))
        row = next(row for row in caches.rows() if row.name == "aggregator_connections")
        assert row.size - before == MOST_OF_ALL * CONNECTION_BYTES <= row.budget
        assert len(idle) == MOST_OF_ALL and [c.closed for c in made].count(True) == 5
        idle.close()

    asyncio.run(run())
