"""The counters by which growth is measured."""

from __future__ import annotations

import shutil
import subprocess
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
    with counting.Spent() as four:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert none.seconds < one.seconds < four.seconds


def test_counters_include_existing_threads_and_their_children() -> None:
    """Tested with a software clock, which works wherever the call is allowed: the hardware's counters are read in the same way."""
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
def test_instructions_are_converted_to_seconds(monkeypatch: pytest.MonkeyPatch, counted: bool) -> None:
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


@pytest.mark.skipif(not shutil.which("valgrind"), reason="needs valgrind")
def test_valgrind_counts_instructions_anywhere() -> None:
    script = """
from tests.growth.counting import PER_SECOND, Spent
for n in (20_000, 40_000):
    with Spent() as spent:
        sum(i * i for i in range(n))
    print(round(spent.seconds * PER_SECOND))
"""
    done = counting.under_callgrind(["-c", script], {})
    assert done.returncode == 0, done.stderr
    once, twice = map(int, done.stdout.split())
    assert 20_000 * 10 < once < twice < 2.2 * once


def test_a_fault_stands_when_it_cannot_be_counted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    assert counting.confirmed("tests/growth/test_growth.py::test_named[none]", "") == ""
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert counting.confirmed("tests/growth/test_growth.py::test_named[none]", "n^2") == "n^2"


@pytest.mark.parametrize(("code", "stands"), [(0, False), (1, True)])
def test_a_fault_stands_when_counting_confirms_it(monkeypatch: pytest.MonkeyPatch, code: int, stands: bool) -> None:
    asked = []

    def under(args: list[str], env: dict[str, str]) -> subprocess.CompletedProcess[str]:
        asked.append((args[-1], env["KAS_GROWTH_ONLY"]))
        return subprocess.CompletedProcess(args, code, "log\nE   AssertionError: n^1.9\n", "")

    monkeypatch.setattr(counting, "COUNTED", False)
    monkeypatch.setattr(counting, "under_callgrind", under)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    said = counting.confirmed("some::test", "n^2", "pods create")
    assert asked == [("some::test", "pods create")]
    assert said == ("n^2\ncounted in instructions:\nE   AssertionError: n^1.9" if stands else "")
