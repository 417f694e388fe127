"""Work off the event loop: results, cancellation, and that nothing of it is left."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
import weakref
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from kas.meta import offload
from kas.meta.errors import ApiError
from kas.meta.fairqueue import works_for
from kas.meta.offload import OffloadPool, abandoned, step
from kas.meta.waiting import awaited, eager


class Large:
    pass


def good(x: Large) -> Large:
    return x


def bad(x: Large) -> Large:
    raise ValueError("no")


def test_large_work_runs_in_a_thread_and_small_work_does_not() -> None:
    async def go() -> None:
        assert await OffloadPool().run(threading.get_ident) != threading.get_ident()
        assert await step(True, threading.get_ident) != threading.get_ident()
        assert await step(False, threading.get_ident) == threading.get_ident()
        with pytest.raises(ValueError, match="no"):
            await step(True, bad, Large())

    asyncio.run(go())


@pytest.mark.parametrize("work", [good, bad])
@pytest.mark.parametrize("way", ["task", "eager"])
def test_no_reference_cycle_is_left(work: Callable[[Large], Large], way: str) -> None:
    """The garbage collector of cycles runs once in many requests: a body of 3 MB that waits for it is a leak."""
    pool = OffloadPool()

    @eager
    async def eagerly(x: Large) -> Any:
        return await awaited(pool.run(work, x))

    async def one() -> weakref.ref[Large]:
        x = Large()
        try:
            waiting: Awaitable[Any] = pool.run(work, x) if way == "task" else eagerly(x)
            await waiting
        except ValueError:
            pass
        waiting = asyncio.sleep(0)
        await waiting
        found = weakref.ref(x)
        del x
        return found

    async def go() -> None:
        gc.collect()
        gc.disable()
        try:
            left = await asyncio.create_task(one())
            for _ in range(600):  # the thread releases it a moment later
                if left() is None:
                    return
                await asyncio.sleep(0.1)
            pytest.fail("it is kept")
        finally:
            gc.enable()

    asyncio.run(go())


def test_an_error_holds_nothing_large() -> None:
    """Nor do the errors of which it was made: freeing 400,000 dicts takes the loop 75 ms."""
    held: list[weakref.ref[Large]] = []

    def decoded() -> None:
        text = Large()
        held.append(weakref.ref(text))
        raise ValueError("no")

    def refused() -> None:
        large = Large()
        held.append(weakref.ref(large))
        try:
            decoded()
        except ValueError:
            raise ApiError(422, "Invalid", "no", {}) from None

    async def go() -> None:
        with pytest.raises(ApiError) as e:
            await OffloadPool().run(refused)
        assert [ref() for ref in held] == [None, None] and e.value.code == 422

    asyncio.run(go())


def test_cancelled_work_is_not_begun() -> None:
    begun: list[int] = []

    async def go() -> None:
        pool, block = OffloadPool(threads=1), threading.Event()
        first = asyncio.create_task(pool.run(block.wait))
        second = asyncio.create_task(pool.run(begun.append, 1))
        third = asyncio.create_task(pool.run(begun.append, 2))
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)
        block.set()
        await asyncio.gather(first, third)

    asyncio.run(go())
    assert begun == [2]


def test_a_forked_process_has_its_own_threads() -> None:
    script = """
import asyncio, os
from kas.meta.offload import POOL
assert asyncio.run(POOL.run(sum, [1, 2])) == 3
pid = os.fork()
if not pid:
    os._exit(asyncio.run(asyncio.wait_for(POOL.run(sum, [3, 4]), 60)))
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)


@pytest.mark.parametrize("given", [0, 1, 2])
def test_existing_threads_do_the_work_if_none_can_be_created(monkeypatch: pytest.MonkeyPatch, given: int) -> None:
    """It is refused while there is no thread at all, and done again once one can be created; abandoned work is skipped."""
    start, left, undone = threading.Thread.start, [given], []

    def start_or_not(thread: threading.Thread) -> None:
        if not left[0]:
            raise RuntimeError("can't start new thread")
        left[0] -= 1
        start(thread)

    async def go() -> None:
        pool = OffloadPool()
        for _ in range(3):
            monkeypatch.setattr(threading.Thread, "start", start_or_not)
            if given:
                assert await pool.run(sum, [1, 2]) == 3
            else:
                pool.soon(lambda: undone.append(1))
                with pytest.raises(ApiError, match="no more threads") as e:
                    await pool.run(sum, [1, 2])
                assert (e.value.code, e.value.headers) == (503, {"retry-after": "1"})
        monkeypatch.undo()
        assert await asyncio.wait_for(pool.run(sum, [1, 2]), 60) == 3
        assert pool._missing == 0 and not undone

    asyncio.run(go())


def test_clients_take_turns_and_leave_a_thread_to_others() -> None:
    done: list[tuple[str, int]] = []

    async def request(pool: OffloadPool, client: str, number: int, steps: int, block: threading.Event) -> None:
        works_for(client)
        for _ in range(steps):
            await pool.run(block.wait)
            done.append((client, number))

    async def go() -> None:
        pool, block, free = OffloadPool(threads=2), threading.Event(), threading.Event()
        free.set()
        held = [asyncio.create_task(request(pool, "many", i, 1, block)) for i in range(10)]
        await asyncio.sleep(0)
        await request(pool, "one", 0, 3, free)
        assert done == [("one", 0)] * 3, "one of two threads works for somebody else"
        block.set()
        await asyncio.gather(*held)
        assert [number for _, number in done[3:]] == list(range(10))

    asyncio.run(go())


def test_begun_work_is_finished_first() -> None:
    """Otherwise all bodies would be decoded before the first one is written."""
    done: list[int] = []

    async def request(pool: OffloadPool, number: int, block: threading.Event) -> None:
        works_for("many")
        await pool.run(block.wait)
        for _ in range(3):
            await pool.run(done.append, number)

    async def go() -> None:
        pool, block = OffloadPool(threads=1), threading.Event()
        held = [asyncio.create_task(request(pool, i, block)) for i in range(5)]
        await asyncio.sleep(0)
        block.set()
        await asyncio.gather(*held)

    asyncio.run(go())
    assert done.index(0) < done.index(4) and done.count(0) == 3
    assert [done.index(i) for i in range(5)] == sorted(done.index(i) for i in range(5)), done


def test_abandoned_work_can_see_that_it_is_abandoned() -> None:
    told: list[bool] = []

    async def go() -> None:
        pool, loop, begun, left = OffloadPool(threads=1), asyncio.get_running_loop(), asyncio.Event(), threading.Event()

        def work() -> None:
            told.append(abandoned())
            loop.call_soon_threadsafe(begun.set)
            left.wait()
            told.append(abandoned())

        task = asyncio.create_task(pool.run(work))
        await begun.wait()
        task.cancel()
        await asyncio.wait([task])
        left.set()
        assert not await pool.run(abandoned), "the next job of the thread is another one"

    asyncio.run(go())
    assert told == [False, True] and not abandoned()


def test_long_work_yields_to_clients_without_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the long work is of several users: each works until all have begun and the short one has run."""
    monkeypatch.setattr(offload, "SLICE_S", 0.0)

    async def go() -> None:
        pool, over, began = OffloadPool(threads=2), threading.Event(), list[int]()
        each = threading.Event()  # of the users has begun: a thread that was given work may run last

        def long(number: int) -> int:
            began.append(number)
            if len(began) == 5:
                each.set()
            while not over.is_set():
                assert not abandoned()
            return number

        def end() -> None:
            assert each.wait(60)
            over.set()

        async def one(client: str, work: Callable[[], object]) -> object:
            works_for(client)
            return await pool.run(work)

        made = [asyncio.create_task(one(f"user-{i % 5}", partial(long, i))) for i in range(10)]
        short = asyncio.create_task(one("other", end))
        assert await asyncio.wait_for(asyncio.gather(*made), 60) == list(range(10)) and await short is None
        # Of one user, work that has begun goes first, however often others went before it.
        assert sorted(began[:5]) == list(range(5)) and pool._suspended == 0
        assert [t.name for t in threading.enumerate()].count("kas-offload") >= 2 and pool._queue.free == 2

    asyncio.run(go())
