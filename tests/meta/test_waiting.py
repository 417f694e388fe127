"""The waiting tasks that continue in a loop iteration when many could."""

from __future__ import annotations

import asyncio
from collections import Counter

from kas.meta.fairqueue import works_for
from kas.meta.waiting import TIME_SLICE_S, Throttle


class _Clock:
    """A clock that only advances by the duration of work."""

    now = 1.0

    def __call__(self) -> float:
        return self.now


async def _turns(turn: list[int]) -> None:
    while True:
        turn[0] += 1
        await asyncio.sleep(0)


def _went(seconds: list[float], clients: list[str] | None = None, leave: int = 0) -> tuple[list[int], list[int]]:
    """Returns, by iteration, the tasks that continued, in order, whose work takes this long, for these clients; the last ``leave`` are
    cancelled first."""
    clock, turn, went, order = _Clock(), [0], [0] * len(seconds), list[int]()
    throttle = Throttle(clock)

    async def come(i: int) -> None:
        works_for(clients[i] if clients else "a")
        await asyncio.sleep(0)
        if throttle.exhausted:
            await throttle.wait()
        clock.now += seconds[i]
        went[i] = turn[0]
        order.append(i)

    async def run() -> None:
        counted = asyncio.ensure_future(_turns(turn))
        all_ = [asyncio.ensure_future(come(i)) for i in range(len(seconds))]
        for _ in range(2):
            await asyncio.sleep(0)
        for one in all_[len(all_) - leave :]:
            one.cancel()
        async with asyncio.timeout(60):
            await asyncio.gather(*all_, return_exceptions=True)
        counted.cancel()

    asyncio.run(run())
    return went, order


def test_long_tasks_continue_one_in_each_iteration() -> None:
    went, order = _went([2 * TIME_SLICE_S] * 100)
    assert max(Counter(went).values()) == 1
    assert order == sorted(order), "of one client the oldest is first"


def test_short_tasks_continue_together() -> None:
    went, _ = _went([TIME_SLICE_S / 100] * 1000)
    assert max(Counter(went).values()) <= 101 and len(set(went)) < 100
    assert len(set(_went([0.0] * 1000)[0])) == 1, "who takes nothing waits for nobody"


def test_a_long_task_ends_the_iteration() -> None:
    went, _ = _went([TIME_SLICE_S / 100, 5 * TIME_SLICE_S] * 40)
    long = Counter(turn for i, turn in enumerate(went) if i % 2)
    assert max(long.values()) == 1


def test_clients_take_turns() -> None:
    clients = ["flood"] * 100 + ["other"]
    _, order = _went([2 * TIME_SLICE_S] * 101, clients)
    assert order.index(100) <= 3


def test_cancelled_tasks_delay_no_others() -> None:
    went, order = _went([2 * TIME_SLICE_S] * 100, leave=90)
    assert order == list(range(10)) and all(went[:10])
    _, order = _went([2 * TIME_SLICE_S] * 100, ["a"] * 20 + ["b"] * 80, leave=80)
    assert sorted(order) == list(range(20))
