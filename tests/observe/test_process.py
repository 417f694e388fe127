"""What a process gives back."""

from __future__ import annotations

from kas.observe import process
from kas.observe.process import Trimmer


def test_freed_memory_is_given_back_once_there_is_more(monkeypatch):
    trimmed: list[int] = []
    resident = [100 << 20]
    monkeypatch.setattr(process, "_resident_bytes", lambda: resident[0])
    one = Trimmer()
    monkeypatch.setattr(one, "_trim", trimmed.append)
    assert not one.due()
    resident[0] += process.GROWN_BYTES
    assert one.due()
    one.trim()
    assert trimmed == [0] and not one.due()
    resident[0] -= 2 * process.GROWN_BYTES  # what it was at least counts
    assert not one.due()
    resident[0] += process.GROWN_BYTES
    assert one.due()


def test_where_the_allocator_has_no_such_function_nothing_is_due(monkeypatch):
    one = Trimmer()
    monkeypatch.setattr(one, "_trim", None)
    assert not one.due()
    one.trim()


def test_another_system_is_told_at_the_start(monkeypatch):
    monkeypatch.setattr(process.sys, "platform", "darwin")
    assert process.unfit().startswith("kas runs on Linux: ")
