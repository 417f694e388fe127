"""Measures what the limits cost a small request in worker time.

The limits are turns by client, and budgets, paces and deadlines for a body. For comparison, a GET takes some 46 µs and a small create 228
(README).
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from kas.edge.body import Bounds, Disconnects, Inlet
from kas.edge.dispatch import Dispatcher
from kas.meta.fairqueue import works_for

TIMES, AGAIN = 2000, 30
BODY = b'{"metadata":{"name":"a"},"data":{"a":"1"}}'
SCOPE: dict[str, Any] = {"headers": [(b"host", b"x"), (b"authorization", b"Bearer x")], "client": ("127.0.0.1", 1)}


def least(*work: Callable[[], object]) -> list[float]:
    """Microseconds of each, interleaved, the least of many."""
    found = [float("inf")] * len(work)
    gc.disable()
    try:
        for _ in range(AGAIN):
            for i, one in enumerate(work):
                began = time.thread_time()
                for _ in range(TIMES):
                    one()
                found[i] = min(found[i], (time.thread_time() - began) / TIMES * 1e6)
    finally:
        gc.enable()
    return found


class _Loop:
    """Each request has a turn of its own, at once: the dearest way."""

    def call_soon_threadsafe(self, turn: Callable[[], object]) -> None:
        turn()


async def _received() -> dict[str, Any]:
    return {"type": "http.request", "body": BODY, "more_body": False}


HANDED: Any = SimpleNamespace(scope=SCOPE, proto=SimpleNamespace(receive=_received))


def read(bounds: Bounds | None) -> Callable[[], object]:
    """Reads a small body in the current task."""

    def run() -> None:
        try:
            Inlet(_received, len(BODY), False, bounds).read().send(None)
        except StopIteration as done:
            assert done.value == BODY

    return run


def test_what_bounds_cost_a_get_and_a_small_create() -> None:
    async def run() -> list[float]:
        turns, nobody = Dispatcher(_Loop()), lambda request, scope: None  # type: ignore[arg-type]
        departures, task, source = Disconnects(), asyncio.current_task(), Inlet(_received)
        assert task is not None

        def departs() -> None:
            departures.add(task, source)
            departures.drop(task)

        def arrives() -> None:
            turns.arrive(nobody, None, HANDED)

        return least(lambda: None, arrives, lambda: works_for("a"), departs, read(None), read(Bounds()))

    nothing, turn, works, departs, without, bounded = asyncio.run(run())
    get = turn - nothing
    create = get + works + departs - 2 * nothing + bounded - without
    print(f"a GET {get:.2f} µs; a small create {create:.2f}: whose it is {works - nothing:.2f}, who leaves {departs - nothing:.2f}, "
          f"its body {without:.2f} without bounds and {bounded:.2f} with them")  # fmt: skip
