"""Reports about an event loop that is blocked."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable
from types import FrameType

import pytest

from kas.observe.looptime import HELD_S, LoopTime, Used
from kas.observe.metrics import Registry


def whose(frame: FrameType) -> str:
    return f"the request of {frame.f_locals['req']}" if "req" in frame.f_locals else ""


def run(hold: Callable[[LoopTime], None], made: type[LoopTime] = LoopTime) -> tuple[float, float]:
    """Returns (delay, held) in seconds, added up, after ``hold(timer)`` ran in the loop."""
    metrics = Registry()

    async def main() -> None:
        timer = made(metrics, whose)
        timer.start()
        await asyncio.sleep(0.1)
        hold(timer)
        await asyncio.sleep(0.2)

    asyncio.run(main())
    delay = metrics.metrics["apiserver_event_loop_delay_seconds"].values[()]
    held = metrics.metrics["apiserver_event_loop_held_seconds"].values[()]
    return delay[-1], held[-1]


class Kept(LoopTime):
    """Keeps what it saw of alice: it may look once more between her end and the timer's turn."""

    found = ""

    def _describe(self) -> str:
        if "alice" not in self.found:
            self.found = super()._describe()
        return self.found


def test_the_blocking_code_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def inner(req: str, timer: LoopTime) -> None:
        time.sleep(1.5 * HELD_S)
        while "alice" not in timer._seen:  # the observing thread runs when the machine lets it
            time.sleep(0.05)

    with caplog.at_level(logging.WARNING, "kas.loop"):
        delay, _ = run(lambda timer: inner("alice", timer), Kept)
    assert delay > HELD_S
    line = next(said for r in caplog.records if "test_looptime.py" in (said := r.getMessage()) and "was blocked" in said)
    said = re.match(r"the event loop was blocked for ([0-9.]+) s, of which ([0-9.]+) s were processor time, by ", line)
    assert said and float(said[1]) >= HELD_S > float(said[2])
    assert "by the request of alice at " in line and "test_looptime.py:" in line


def test_waiting_for_the_processor_does_not_count_as_held() -> None:
    before = time.process_time()
    delay, held = run(lambda timer: time.sleep(1.0))
    computed = time.process_time() - before  # by this loop and everything else in this process: the garbage collector takes its time
    assert delay > 0.9 and held <= computed < 0.9


@pytest.mark.parametrize(
    ("late", "own", "others", "queued", "held"),
    [
        (0.1, 0.02, 0.0, 0.08, 0.02),  # other processes had the processor
        (0.1, 0.02, 0.3, 0.08, 0.02),  # and its own threads had another one: it did not wait for the lock
        (0.1, 0.02, 0.3, 0.0, 0.1),  # it did
        (0.1, 0.02, 0.3, 0.05, 0.05),  # both
        (0.1, 0.0, 0.0, 0.0, 0.0),  # it waited for something else
        (0.1, 0.3, 0.0, 0.0, 0.1),  # what it did before it was late
        (0.0, 0.05, 0.05, 0.0, 0.0),
    ],
)
def test_work_of_other_threads_counts_if_the_loop_waited_for_it(
    late: float, own: float, others: float, queued: float, held: float
) -> None:
    before = Used(1.0, 2.0, 3.0)
    assert Used(1.0 + own, 2.0 + others, 3.0 + queued).held(late, before) == pytest.approx(held)


def test_work_counts_as_held() -> None:
    def work(timer: LoopTime) -> None:
        until = time.thread_time() + 0.4
        while time.thread_time() < until:
            pass

    delay, held = run(work)
    assert delay >= held > 0.3
