"""What the worker that leads does beside its controllers goes on, whatever happens to a turn of it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kas.controllers import runner
from kas.controllers.runner import Runner
from kas.observe.hooks import Hooks
from kas.store import StoreError


@pytest.mark.parametrize("error", [StoreError("full"), OSError(28, "No space left on device"), KeyError("bug")])
def test_compaction_and_expiry_go_on_after_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    monkeypatch.setattr(runner, "COMPACT_EVERY_S", 0)
    monkeypatch.setattr(runner, "EXPIRE_EVERY_S", 0)
    turns = {"compaction": 0, "expiry": 0}

    def turn(what: str) -> int:
        turns[what] += 1
        raise error

    class Store:
        def expire(self, now_s: int, limit: int) -> int:
            return turn("expiry")

    async def run() -> None:
        own = Runner(0, tmp_path, Store(), lambda now_s: turn("compaction"), (), lambda: (), Hooks((), {}, tmp_path / "hooks"))
        own.start()
        async with asyncio.timeout(60):
            while min(turns.values()) < 3:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        await own.stop()

    asyncio.run(run())
