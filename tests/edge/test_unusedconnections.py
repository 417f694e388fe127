"""Which connections count as silent: not those whose requests wait for their turn."""

from __future__ import annotations

import asyncio
from typing import Any

from kas.edge.dispatch import Dispatcher
from tests.edge.test_dispatch import Arrived


async def until_some_are_begun() -> None:
    spoke, begun, some = set[int](), list[str](), asyncio.Event()

    def begin(request: Any, scope: dict[str, Any] | None) -> None:
        begun.append(request.name)
        some.set()

    # requests wait for seats, so some are begun in each iteration
    turns = Dispatcher(asyncio.get_running_loop(), lambda: 1, spoke=spoke.add)
    for i in range(100):
        turns.arrive(begin, None, Arrived(f"r{i}", "ann", port=1000 + i))
    await some.wait()
    assert len(begun) < 20 and spoke == set(range(1000, 1100))


def test_a_connection_whose_request_waits_is_not_silent() -> None:
    asyncio.run(until_some_are_begun())
