"""Thread pools when the system gives no thread."""

from __future__ import annotations

import logging
import threading
import time

import pytest

from kas.meta import threads
from kas.meta.errors import ApiError
from kas.meta.threads import Threads, no_thread


def test_work_without_a_thread_is_refused_and_not_done_later(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[int] = []

    def none(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with Threads(2) as pool:
        monkeypatch.setattr(threading.Thread, "start", none)
        for i in range(2):
            with pytest.raises(ApiError, match="no more threads"):
                pool.submit(done.append, i)
        monkeypatch.undo()
        ready = threading.Event()
        first = pool.submit(ready.wait, 60)  # it keeps the only thread busy
        monkeypatch.setattr(threading.Thread, "start", none)
        second = pool.submit(done.append, 2)
        ready.set()
        assert (first.result(60), second.result(60)) == (True, None)
    assert done == [2]


def test_it_is_logged_once_in_a_while(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads._Logged, "at", float("-inf"))
    monkeypatch.setattr(threads._Logged, "suppressed", 0)
    now = time.monotonic()
    with caplog.at_level(logging.ERROR, "kas.threads"):
        for i in range(1000):
            no_thread(now + i / 90)
    assert [r.getMessage().rpartition(" 503, ")[2] for r in caplog.records] == ["0 before this one", "899 before this one"]
    assert not any(r.exc_info for r in caplog.records)
