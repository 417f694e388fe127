"""How reads wait until the replica is as new as etcd: which call to etcd answers which readers, and for how long a reader waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kas.store.errors import Behind, StoreError, Unavailable
from kas.store.etcd.freshness import Freshness, Waiter


class Etcd:
    """A fake etcd. ``pending`` has the callbacks of the calls that have no answer yet; a test answers them with ``answer``."""

    def __init__(self) -> None:
        self.pending: list[Callable[[Any], None]] = []
        self.found: list[int | StoreError] = []  # results of ``anew``
        self.reachable = True
        self.fences, self.fenced = 0, asyncio.Event()

    def ask(self, callback: Callable[[Any], None]) -> bool:
        if self.reachable:
            self.pending.append(callback)
        return self.reachable

    def revision(self, over: Any) -> int:
        return over if isinstance(over, int) else -1

    def ended(self, over: Any) -> Any:
        if isinstance(over, StoreError):
            raise over
        return over and SimpleNamespace(header=SimpleNamespace(revision=over))

    async def anew(self, within_s: float) -> Any:
        return self.ended(self.found.pop(0))

    async def call(self, call: Any, request: Any, within_s: float) -> None:
        assert "Put" in call.path
        self.fences += 1
        self.fenced.set()

    def answer(self, outcome: int | StoreError | None) -> None:
        self.pending.pop(0)(outcome)


@pytest.fixture(autouse=True)
def no_check_of_parked_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parked requests are not checked for how long they wait: on a slow machine the check would come before they continue."""
    monkeypatch.setattr("kas.store.etcd.freshness.PARKED_S", 3600.0)


class World:
    """A replica at ``revision``, and the waiters for a newer one."""

    def __init__(self, ordered: bool = True) -> None:
        self.etcd, self.revision, self.waiting, self.progress = Etcd(), 5, list[tuple[int, Waiter]](), 0
        self.ordered = ordered
        self.freshness = self.made()

    def made(self) -> Freshness:
        loop, etcd = asyncio.get_running_loop(), cast(Any, self.etcd)
        return Freshness(loop, etcd, etcd, b"/fence", self, self, self._wait, self._ask_progress, lambda: self.ordered)

    def _wait(self, revision: int, waiter: Waiter) -> bool:
        if revision > self.revision:
            self.waiting.append((revision, waiter))
        return revision > self.revision

    def _ask_progress(self) -> None:
        self.progress += 1

    def join(self, n: int = 1) -> list[asyncio.Future[None]]:
        return [self.freshness.join() for _ in range(n)]


class Parked:
    """A parked request. ``continued`` counts how often it continued; ``passed`` has the futures that it has to wait for."""

    def __init__(self) -> None:
        self.continued, self.passed = 0, list[Any]()

    def go_on(self) -> None:
        self.continued += 1

    def wait(self, passed: Any) -> None:
        self.passed.append(passed)


async def turn() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def test_an_answer_releases_the_readers_that_came_before_the_call() -> None:
    async def check() -> None:
        world = World()
        first = world.join(3)
        await turn()
        assert len(world.etcd.pending) == 1
        second = world.join(2)
        await turn()
        assert len(world.etcd.pending) == 1  # one call at a time
        world.etcd.answer(5)
        assert all(f.done() for f in first) and not any(f.done() for f in second)
        assert len(world.etcd.pending) == 1  # the call for the second group
        world.etcd.answer(5)
        assert all(f.done() for f in second) and not world.etcd.pending

    asyncio.run(check())


def test_readers_of_an_older_replica_wait_and_the_next_call_begins_meanwhile() -> None:
    async def check() -> None:
        world = World()
        first = world.join(2)
        await turn()
        world.etcd.answer(7)
        (revision, waiter), *_ = world.waiting
        assert (revision, world.progress) == (7, 1) and not first[0].done() and not waiter.done()
        second = world.join()
        await turn()
        first[0].cancel()
        world.revision = 7
        world.etcd.answer(7)
        assert second[0].done()
        waiter.reached()
        assert first[0].cancelled() and first[1].result() is None and waiter.done()

    asyncio.run(check())


def test_a_key_is_written_where_progress_notifications_are_unordered_and_no_event_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kas.store.etcd.freshness.ON_ITS_WAY_S", 0.0)

    async def check() -> None:
        world = World(ordered=False)
        world.join()
        await turn()
        world.etcd.answer(7)
        await world.etcd.fenced.wait()
        assert world.progress == 0
        world.waiting.pop()[1].reached()  # here the next event comes by itself
        world.join()
        await turn()
        world.etcd.answer(8)
        world.waiting.pop()[1].reached()
        await turn()
        assert world.etcd.fences == 1

    asyncio.run(check())


def test_an_error_fails_the_readers_of_that_call_only() -> None:
    async def check() -> None:
        world = World()
        for outcome in (Unavailable("away"), StoreError("etcdserver: permission denied")):
            joined = world.join(2)
            await turn()
            later = world.join()
            world.etcd.answer(outcome)
            assert [type(f.exception()) for f in joined] == [type(outcome)] * 2
            world.etcd.answer(5)
            assert later[0].result() is None
        joined = world.join()
        await turn()
        world.etcd.answer(4)
        with pytest.raises(Unavailable, match="gone back"):
            await joined[0]

    asyncio.run(check())


def test_another_server_is_asked_if_one_did_not_answer() -> None:
    async def check() -> None:
        world = World()
        joined = world.join()
        await turn()
        world.etcd.found.append(5)
        world.etcd.answer(None)
        await joined[0]
        world.etcd.reachable = False
        world.etcd.found += [5, Unavailable("no server can be reached")]
        await world.join()[0]
        with pytest.raises(Unavailable, match="no server"):
            await world.join()[0]

    asyncio.run(check())


def test_each_reader_waits_only_until_its_own_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kas.store.etcd.freshness.FRESH_S", 1000.0)

    async def check() -> None:
        loop, passed = asyncio.get_running_loop(), 0.0
        monkeypatch.setattr(loop, "time", lambda real=loop.time: real() + passed)
        world = World()
        silent = world.join()
        await turn()
        next_ = world.join()
        passed += 1001.0
        with pytest.raises(Unavailable) as caught:
            await silent[0]
        assert type(caught.value) is Unavailable
        with pytest.raises(Unavailable):
            await next_[0]
        world.etcd.answer(Unavailable("late"))  # no reader is left, so no further call is made
        assert not world.etcd.pending
        behind = world.join()
        await turn()
        monkeypatch.setattr("kas.store.etcd.freshness.FRESH_S", 1e6)
        world.etcd.answer(9)
        waiter = world.waiting.pop()[1]
        passed += 1001.0
        with pytest.raises(Behind):
            await behind[0]
        assert waiter.done()
        # A reader that joins a round already in progress has its full time.
        world.join()
        await turn()
        monkeypatch.setattr("kas.store.etcd.freshness.FRESH_S", 1000.0)
        early = world.join()
        monkeypatch.setattr("kas.store.etcd.freshness.FRESH_S", 1e6)
        late = world.join()
        passed += 1001.0
        with pytest.raises(Unavailable):
            await early[0]
        world.etcd.answer(5)
        world.etcd.answer(5)
        assert late[0].result() is None

    asyncio.run(check())


def test_close_cancels_all_readers() -> None:
    async def check() -> None:
        world = World()
        joined = world.join()
        await turn()
        next_ = world.join()
        world.freshness.close()
        assert joined[0].cancelled() and next_[0].cancelled()
        world.etcd.answer(5)
        assert not world.etcd.pending

    asyncio.run(check())


def test_parked_requests_continue_after_the_answer_to_their_round() -> None:
    async def check() -> None:
        world, parked = World(), [Parked() for _ in range(3)]
        for one in parked[:2]:
            world.freshness.park(one)
        joined = world.join()
        await turn()
        world.freshness.park(parked[2])  # belongs to the next call
        world.etcd.answer(7)
        (_, waiter), *_ = world.waiting
        await turn()
        assert not waiter.done() and [one.continued for one in parked] == [0, 0, 0]
        waiter.reached()
        assert joined[0].done() and waiter.done() and [one.continued for one in parked] == [0, 0, 0]  # not before the loop's next iteration
        await turn()
        assert [one.continued for one in parked] == [1, 1, 0]
        world.revision = 7
        world.etcd.answer(7)
        await turn()
        assert [one.continued for one in parked] == [1, 1, 1] and not any(one.passed for one in parked)

    asyncio.run(check())


def test_a_request_parked_during_an_answer_waits_for_a_later_call() -> None:
    async def check() -> None:
        world, first, second, third = World(), Parked(), Parked(), Parked()
        world.freshness.park(first)
        await turn()
        world.freshness.park(second)
        world.etcd.answer(5)
        assert len(world.etcd.pending) == 1 and first.continued == 0  # the call for the second request has already begun
        world.freshness.park(third)
        joined = world.join()
        await turn()
        assert (first.continued, second.continued, third.continued) == (1, 0, 0) and len(world.etcd.pending) == 1
        world.etcd.answer(5)
        await turn()
        assert (second.continued, third.continued) == (1, 0) and not joined[0].done() and len(world.etcd.pending) == 1
        world.etcd.answer(5)
        await turn()
        assert third.continued == 1 and joined[0].done() and not world.etcd.pending

    asyncio.run(check())


def test_an_exception_fails_its_round_and_the_next_round_still_asks() -> None:
    async def check() -> None:
        world = World()

        def broken(revision: int, waiter: Waiter) -> bool:
            raise RuntimeError("a bug")

        world._wait = broken  # type: ignore[method-assign]
        world.freshness = world.made()
        joined, parked = world.join(), Parked()
        await turn()
        world.freshness.park(parked)
        world.etcd.answer(7)
        with pytest.raises(RuntimeError, match="a bug"):
            await joined[0]
        world.etcd.answer(5)
        await turn()
        assert parked.continued == 1

    asyncio.run(check())


def test_parked_requests_continue_over_several_loop_iterations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kas.store.etcd.freshness.TIME_SLICE_S", -1.0)

    async def check() -> None:
        world, parked = World(), [Parked() for _ in range(10)]
        for one in parked:
            world.freshness.park(one)
        await asyncio.sleep(0)
        world.etcd.answer(5)
        for turns in range(10):
            assert sum(one.continued for one in parked) == turns
            await asyncio.sleep(0)

    asyncio.run(check())


def test_requests_parked_for_long_or_failed_wait_as_other_readers_do(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check() -> None:
        world, failed, closed, slow = World(), Parked(), Parked(), Parked()
        world.freshness.park(failed)
        await turn()
        world.etcd.answer(Unavailable("etcdserver: no leader"))
        with pytest.raises(Unavailable, match="no leader"):
            await failed.passed[0]
        monkeypatch.setattr("kas.store.etcd.freshness.PARKED_S", 0.0)
        world = World()  # its parked requests are not checked yet
        world.freshness.park(slow)
        while not slow.passed:
            await turn()
        assert not slow.passed[0].done()
        world.etcd.answer(5)
        assert slow.passed[0].done()
        monkeypatch.undo()
        world.freshness.park(closed)
        world.freshness.close()
        assert closed.passed[0].cancelled() and [one.continued for one in (failed, closed, slow)] == [0, 0, 0]

    asyncio.run(check())
