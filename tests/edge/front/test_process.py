"""How the front cleans up after connections that have ended."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kas.edge.front import process
from kas.meta.threads import Threads, no_thread
from tests.edge.front.test_relay import scene, until
from tests.growth.counting import CONFIRMED_S, Spent, confirmed


class Silent:
    """A relay whose client sends nothing."""

    def __init__(self, waiting: process._Waiting) -> None:
        self._waiting = waiting

    def close(self) -> None:
        self._waiting.drop(self)  # type: ignore[arg-type]


def _sweep(n: int) -> float:
    """Measures how long it takes to close this many."""
    waiting = process._Waiting(0.0, process.OwnTime())
    for _ in range(n):
        waiting.add(Silent(waiting))  # type: ignore[arg-type]
    gc.collect()
    with Spent() as spent:
        waiting.sweep(waiting._time.now())
    assert not waiting.since
    return spent.seconds


@pytest.mark.timeout(CONFIRMED_S)
def test_silent_clients_are_closed_in_linear_time(request):
    """Finding the first one by skipping all closed ones was quadratic: 4 s of the front for 100,000."""
    few, many = (min(_sweep(n) for _ in range(3)) for n in (20_000, 80_000))
    assert not confirmed(request.node.nodeid, "" if many < 8 * few else f"four times as many: {few}, {many}")


def test_memory_of_closed_connections_is_returned(tmp_path: Path, monkeypatch: Any):
    monkeypatch.setattr(process, "SWEEP_S", 0.01)
    monkeypatch.setattr(process, "GIVE_BACK_S", 0.01)
    said = {"due": False, "trims": 0}

    def trim() -> None:
        said["trims"] += 1
        said["due"] = False

    async def test() -> None:
        async with scene(tmp_path) as s:
            s.front._trimmer = SimpleNamespace(due=lambda: said["due"], trim=trim)  # type: ignore[assignment]
            said["due"] = True
            await until(lambda: said["trims"])
            assert said["trims"] == 1

    asyncio.run(test())


def test_the_sweep_continues_where_no_thread_can_be_created(tmp_path: Path, monkeypatch: Any):
    monkeypatch.setattr(process, "SWEEP_S", 0.01)
    monkeypatch.setattr(process, "GIVE_BACK_S", 0.01)
    asked: list[int] = []

    class NoThreads(Threads):
        def submit(self, *_: Any, **__: Any) -> Any:
            asked.append(1)
            raise no_thread()

    async def test() -> None:
        async with scene(tmp_path) as s:
            s.front.loop.set_exception_handler(lambda *_: None)
            s.front.loop.set_default_executor(NoThreads())
            s.front._trimmer = SimpleNamespace(due=lambda: True, trim=lambda: None)  # type: ignore[assignment]
            await until(lambda: len(asked) > 2)

    asyncio.run(test())
