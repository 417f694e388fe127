"""The counters that growth is measured by."""

from __future__ import annotations

import threading
import time

import pytest

from tests.growth import counting


def work() -> None:
    sum(i * i for i in range(300_000))


def test_all_threads_are_counted() -> None:
    with counting.Spent() as none:
        pass
    with counting.Spent() as one:
        work()
    with counting.Spent() as two:
        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert none.seconds < one.seconds < two.seconds


def test_events_are_those_of_threads_that_are_there_and_of_their_children() -> None:
    """By a clock that is counted everywhere the call is allowed: the hardware's counters are read in the same way."""
    try:
        events = counting.Events(counting.SOFTWARE, counting.TASK_CLOCK)
    except OSError:
        assert not counting.COUNTED
        return
    began = time.process_time_ns()
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    spent = time.process_time_ns() - began
    counted = events.count()
    events.close()
    assert counted >= spent // 4 > 0


@pytest.mark.parametrize("counted", [True, False])
def test_instructions_stand_for_seconds(monkeypatch: pytest.MonkeyPatch, counted: bool) -> None:
    class Events:
        def count(self) -> int:
            return counting.PER_SECOND // 2

        def close(self) -> None:
            pass

    monkeypatch.setattr(counting, "Events", Events)
    monkeypatch.setattr(counting, "COUNTED", counted)
    with counting.Spent() as spent:
        pass
    assert (spent.seconds == 0.5) is counted
