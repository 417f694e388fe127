"""Connections that wait for the next request."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from kas.aggregator.idle import MOST_IDLE, IdleConnections
from kas.client.http import Connection


class Fake:
    def __init__(self) -> None:
        self.quiet, self.closed = True, False

    def close(self) -> None:
        self.closed = True


def test_the_last_one_that_is_open_is_taken():
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
