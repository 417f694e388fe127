"""One timer for all deadlines."""

from __future__ import annotations

import asyncio
import collections
import contextlib

from kas.meta.deadlines import AT_ONCE, Deadlines


def test_one_passed_deadline_leaves_the_others():
    async def run():
        deadlines, now = Deadlines(), asyncio.get_running_loop().time
        ended: list[tuple[str, bool]] = []

        async def one(name: str, deadline: float, wait: asyncio.Event):
            task = asyncio.current_task()
            deadlines.add(task, deadline)
            with contextlib.suppress(asyncio.CancelledError):
                await wait.wait()
            ended.append((name, deadlines.drop(task)))

        released, never = asyncio.Event(), asyncio.Event()
        start = now()
        tasks = [
            asyncio.ensure_future(one("late", start + 60, released)),
            asyncio.ensure_future(one("early", start + 0.01, never)),  # sets the timer again
            asyncio.ensure_future(one("next", start + 0.02, never)),
        ]
        await asyncio.wait(tasks[1:])
        assert ended == [("early", True), ("next", True)]
        released.set()
        await tasks[0]
        assert ended[2] == ("late", False)
        assert [t.cancelling() for t in tasks] == [0, 0, 0]

    asyncio.run(run())


def test_of_many_late_tasks_only_some_are_cancelled_in_a_loop_iteration():
    """Requests that timed out together, for example behind a webhook that hangs, were all answered in one iteration."""

    async def run():
        deadlines, loop = Deadlines(), asyncio.get_running_loop()
        turn, ended = 0, collections.Counter[int]()
        start = loop.time()

        async def one(deadline: float) -> None:
            task = asyncio.current_task()
            deadlines.add(task, deadline)
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                assert deadlines.drop(task)
            ended[turn] += 1

        tasks = [asyncio.ensure_future(one(start + 0.01)) for _ in range(5 * AT_ONCE)]
        late = asyncio.ensure_future(one(start + 0.02))  # set again once the others have been cancelled
        while not late.done():
            await asyncio.sleep(0)
            turn += 1
            if len(ended) == 2 and len(tasks) == 5 * AT_ONCE:
                tasks.append(asyncio.ensure_future(one(start)))  # comes while others are being cancelled
        await asyncio.wait(tasks)
        assert ended.total() == 5 * AT_ONCE + 2 and max(ended.values()) <= AT_ONCE

    asyncio.run(run())


def test_another_cancellation_is_not_taken_for_the_deadline():
    async def run():
        deadlines = Deadlines()

        async def one():
            deadlines.add(asyncio.current_task(), asyncio.get_running_loop().time() + 60)
            try:
                await asyncio.Event().wait()
            finally:
                assert not deadlines.drop(asyncio.current_task())

        task = asyncio.ensure_future(one())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()

    asyncio.run(run())


def test_nested_deadlines_are_distinguished():
    """Something that a request waits for may have a deadline of its own: the request continues when that one passes, and ends when its own
    does."""

    async def run():
        outer, inner, now = Deadlines(), Deadlines(), asyncio.get_running_loop().time

        async def request(own: float, others: float) -> list[str]:
            task, said = asyncio.current_task(), list[str]()
            outer.add(task, own)
            try:
                inner.add(task, others)
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    if not inner.drop(task):
                        raise
                    said.append("inner")
                    outer.add(task, now())
                finally:
                    inner.drop(task)
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                assert outer.drop(task)
                said.append("outer")
            return said

        start = now()
        both, own = await asyncio.gather(request(start + 60, start + 0.01), request(start + 0.01, start + 60))
        assert (both, own) == (["inner", "outer"], ["outer"])
        assert await request(start, start) == ["outer"], "where both have passed in one loop iteration the request ends"

    asyncio.run(run())
