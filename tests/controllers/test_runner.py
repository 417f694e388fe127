"""The leading worker's other periodic work continues, whatever error one run has."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from kas.controllers import Deferred, runner
from kas.controllers.runner import Runner
from kas.observe.hooks import Hooks
from kas.store import Full, StoreError, TransformError, Unavailable, Unknown


@pytest.mark.parametrize("error", [StoreError("full"), OSError(28, "No space left on device"), KeyError("bug")])
def test_compaction_and_expiry_continue_after_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    monkeypatch.setattr(runner, "COMPACT_EVERY_S", 0)
    monkeypatch.setattr(runner, "EXPIRE_EVERY_S", 0)
    turns = {"compaction": 0, "expiry": 0}

    def turn(what: str) -> int:
        turns[what] += 1
        raise error

    class Store:
        def expire(self, now_s: None, limit: int) -> int:
            return turn("expiry")

    async def run() -> None:
        own = Runner(0, tmp_path, Store(), lambda now_s: turn("compaction"), (), lambda: (), Hooks((), {}, tmp_path / "hooks"))
        own.start()
        async with asyncio.timeout(60):
            while min(turns.values()) < 3:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        await own.stop()

    asyncio.run(run())


def test_a_worker_that_cannot_lead_yet_reports_it_and_retries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(runner, "LEAD_EVERY_S", 0)
    ran = asyncio.Event()

    class Loop:
        name = "loop"

        async def run(self) -> None:
            ran.set()
            await asyncio.Event().wait()

    class Store:
        def expire(self, now_s: None, limit: int) -> int:
            return 0

    async def run() -> None:
        away = tmp_path / "run"
        hooks = Hooks((), {"loop": "hook"}, tmp_path / "hooks")
        own = Runner(0, away, Store(), lambda now_s: None, (), lambda: [Loop()], hooks)
        own.start()
        for _ in range(9):
            await asyncio.sleep(0)
        assert "No such file or directory" in hooks.why("hook"), "the health of its loops says so"
        away.mkdir()
        await asyncio.wait_for(ran.wait(), 60)
        assert hooks.why("hook") == ""
        await own.stop()

    asyncio.run(run())
    assert [r.levelname for r in caplog.records] == ["ERROR"], "told once"


def test_a_controller_that_cannot_be_created_is_reported_and_retried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """And the others run."""
    monkeypatch.setattr(runner, "PAUSE_S", 0)
    may, ran = asyncio.Event(), dict[str, int]()

    class Loop:
        def __init__(self, name: str) -> None:
            if name == "broken" and not may.is_set():
                raise KeyError("bug")
            self.name = name

        async def run(self) -> None:
            ran[self.name] = ran.get(self.name, 0) + 1
            if self.name == "broken" and ran[self.name] == 1:
                raise ValueError("once")
            await asyncio.Event().wait()

    def loops() -> list[Deferred]:
        return [Deferred(name, lambda name=name: Loop(name)) for name in ("first", "broken", "last")]  # type: ignore[misc]

    hooks = Hooks((), {"first": "one", "broken": "two", "last": "three"}, tmp_path / "hooks")

    class Store:
        def expire(self, now_s: None, limit: int) -> int:
            return 0

    async def run() -> None:
        own = Runner(0, tmp_path, Store(), lambda now_s: None, (), loops, hooks)
        own.start()
        async with asyncio.timeout(60):
            while set(ran) != {"first", "last"} or not hooks.why("two"):  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            assert {name: hooks.why(name) for name in hooks.names} == {"one": "", "two": "KeyError: 'bug'", "three": ""}
            may.set()
            while ran.get("broken") != 2 or hooks.why("two"):  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        await own.stop()

    asyncio.run(run())
    assert ran == {"first": 1, "broken": 2, "last": 1}
    assert "controller broken failed" in caplog.messages


@pytest.mark.parametrize("error", [
    Unavailable("no server can be reached"), Unknown("etcdserver: the connection broke off"), Full("database space exceeded"),
    ExceptionGroup("in a task of its own", [Unavailable("no server can be reached")]),
])
def test_a_store_that_refuses_writes_does_not_fail_a_controller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    """Nor is it logged with a traceback, whether the write was refused or its outcome is unknown."""
    monkeypatch.setattr(runner, "STORE_PAUSE_S", 0)
    hooks = Hooks((), {"loop": "hook"}, tmp_path / "hooks")
    runs, why = 0, list[str]()

    class Loop:
        name = "loop"

        async def run(self) -> None:
            nonlocal runs
            runs += 1
            why.append(hooks.why("hook"))
            if runs == 3:
                raise asyncio.CancelledError
            raise error

    async def run() -> None:
        hooks.begin()
        hooks.lead()
        with pytest.raises(asyncio.CancelledError):
            await runner.keep(Loop(), hooks)

    asyncio.run(run())
    assert why == [""] * 3
    said = error.exceptions[0] if isinstance(error, ExceptionGroup) else error
    assert [(r.getMessage(), r.exc_info) for r in caplog.records] == [(f"controller loop waits: {said}", None)] * 2


def test_an_object_that_cannot_be_decrypted_fails_a_controller_without_a_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is not the controller's fault, which continues when the object can be decrypted."""
    monkeypatch.setattr(runner, "PAUSE_S", 0)
    hooks = Hooks((), {"loop": "hook"}, tmp_path / "hooks")
    errors = [
        FileNotFoundError(2, "No such file or directory", "ca.crt"),
        TransformError("/a", "no key"), ExceptionGroup("in a task of its own", [TransformError("/b", "no key")]),
    ]

    class Loop:
        name = "loop"

        async def run(self) -> None:
            if not errors:
                raise asyncio.CancelledError
            raise errors.pop()

    async def run() -> None:
        hooks.begin()
        hooks.lead()
        with pytest.raises(asyncio.CancelledError):
            await runner.keep(Loop(), hooks)

    asyncio.run(run())
    said = ("/b cannot be opened: no key", "/a cannot be opened: no key", "[Errno 2] No such file or directory: 'ca.crt'")
    assert [(r.getMessage(), r.exc_info) for r in caplog.records] == [(f"controller loop failed: {why}", None) for why in said]


def test_a_full_disk_ends_no_loop(tmp_path: Path) -> None:
    hooks = Hooks((), {"a": "hook"}, tmp_path / "not there" / "hooks")
    hooks.begin()
    hooks.lead()
    hooks.failed("a", "why")
    assert hooks.why("hook") == "why"
    hooks.running("a")
    assert hooks.why("hook") == ""


def test_a_status_that_a_full_disk_kept_from_other_workers_is_shared_later(tmp_path: Path) -> None:
    """Otherwise a worker would report for ever that a loop fails which has long been running again."""
    away = tmp_path / "run"
    away.mkdir()
    leader, other = (Hooks((), {"a": "hook"}, away / "hooks") for _ in range(2))
    for hooks in (leader, other):
        hooks.begin()
    leader.lead()
    leader.failed("a", "why")
    assert other.why("hook") == "why"
    (away / "hooks.new").mkdir()  # has the effect of a full disk
    leader.running("a")
    leader.tell()
    assert other.why("hook") == "why"
    (away / "hooks.new").rmdir()
    leader.tell()
    assert other.why("hook") == ""


def test_compaction_does_not_depend_on_the_clock_being_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "COMPACT_EVERY_S", 0)
    wall = iter((0.0, 2e9, -2e9) * 1000)
    monkeypatch.setattr(time, "time", lambda: next(wall))
    told: list[float] = []

    class Store:
        def expire(self, now_s: None, limit: int) -> int:
            return 0

    async def run() -> None:
        own = Runner(0, tmp_path, Store(), told.append, (), lambda: (), Hooks((), {}, tmp_path / "hooks"))
        own.start()
        async with asyncio.timeout(60):
            while len(told) < 10:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        await own.stop()

    asyncio.run(run())
    assert told == sorted(told) and told[-1] - told[0] < 1e6


def test_a_failure_that_repeats_each_second_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Until it fails differently, or again: a full disk must not be filled with log lines."""
    full = OSError(28, "No space left on device")
    turns = iter([full, full, full, None, full, full, KeyError("bug"), KeyError("bug")])
    over = asyncio.Event()

    def work() -> None:
        error = next(turns, StopIteration)
        if error is StopIteration:
            over.set()
        elif error is not None:
            raise error

    class Store:
        def expire(self, now_s: int, limit: int) -> int:
            return 0

    async def run() -> None:
        own = Runner(0, tmp_path, Store(), lambda now_s: None, [("numbers", 0, work)], lambda: (), Hooks((), {}, tmp_path / "hooks"))
        own.start()
        async with asyncio.timeout(60):
            await over.wait()
        await own.stop()

    asyncio.run(run())
    told = [str(r.exc_info[1]) for r in caplog.records if r.getMessage() == "numbers, every 0 s, failed"]
    assert told == ["[Errno 28] No space left on device"] * 2 + ["'bug'"]
