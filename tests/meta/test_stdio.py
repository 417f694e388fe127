"""Writing lines to a stream whose reader has stopped reading."""

from __future__ import annotations

import os
import select

import pytest

from kas.meta import stdio
from kas.meta.stdio import Blocked, Outlet, put

LINE = b"x" * 99 + b"\n"


@pytest.fixture
def pipe():
    reader, writer = os.pipe()
    yield reader, writer
    os.close(reader)
    os.close(writer)


@pytest.fixture
def waits(monkeypatch) -> list[float]:
    """Records how long each wait was; no time passes."""
    waited: list[float] = []

    def takes(self: Outlet, within_s: float) -> bool:
        waited.append(within_s)
        look = select.poll()
        look.register(self._fd, select.POLLOUT)
        return bool(look.poll(0))

    monkeypatch.setattr(Outlet, "_takes", takes)
    return waited


def outlet(writer: int) -> Outlet:
    return Outlet(writer, os.fstat(writer).st_mode)


def lines_until_blocked(out: Outlet) -> int:
    for n in range(10_000):
        try:
            out.write(LINE)
        except Blocked:
            return n
    raise AssertionError("it takes everything")


def test_a_reader_that_does_not_read_is_waited_for_once(pipe, waits):
    reader, writer = pipe
    out = outlet(writer)
    taken = lines_until_blocked(out)
    assert taken > 10 and len(waits) == 1 and 0 < waits.pop() <= stdio.PATIENCE_S
    for _ in range(3):
        with pytest.raises(Blocked, match="logging blocked"):
            out.write(LINE)
    assert waits == []
    assert os.read(reader, 1 << 20) == LINE * taken, "what was not written whole is not there in part"
    out.write(LINE)
    lines_until_blocked(out)
    assert len(waits) == 1, "who has read is waited for again"


def test_other_users_of_the_pipe_block_as_before(pipe):
    _, writer = pipe
    outlet(writer).write(LINE)
    assert os.get_blocking(writer)


def test_a_truncated_line_is_ended_before_the_next_one(pipe, waits):
    reader, writer = pipe
    out = outlet(writer)
    with pytest.raises(Blocked):
        out.write(b"y" * (1 << 20) + b"\n")
    assert set(os.read(reader, 1 << 20)) == {ord("y")}
    out.write(LINE)
    out.write(LINE)
    assert os.read(reader, 1 << 20) == b"\n" + LINE + LINE


def test_a_stream_that_cannot_be_reopened_is_polled_first(pipe, waits, monkeypatch):
    """The terminal of a user who became another one."""
    reader, writer = pipe

    def refuses(path: str, flags: int) -> int:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(stdio.os, "open", refuses)
    out = outlet(writer)
    lines_until_blocked(out)
    monkeypatch.undo()
    while os.read(reader, 1 << 16).endswith(LINE) and select.select([reader], [], [], 0)[0]:
        pass
    out.write(LINE)
    assert os.read(reader, 1 << 16) == LINE


def test_a_redirected_stream_is_followed(tmp_path):
    with (tmp_path / "a").open("w") as stream:
        put(stream, "1\n")
        with (tmp_path / "b").open("w") as other:
            os.dup2(other.fileno(), stream.fileno())
        put(stream, "2\ud800\n")
    assert (tmp_path / "a").read_text() == "1\n" and (tmp_path / "b").read_text() == "2\\ud800\n"
