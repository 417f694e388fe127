"""Where a frame may be inserted into an HTTP/2 stream."""

from __future__ import annotations

import pytest

from kas.edge.front.frames import GOAWAY, Frames, Idle


def frame(kind: int, payload: bytes, flags: int = 0, stream: int = 1) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
PING, RESET, WINDOW = frame(6, bytes(8), stream=0), frame(3, bytes(4)), frame(8, bytes(4))
SETTINGS, DATA = frame(4, b"", stream=0), frame(0, b"x" * 300)
HEADERS, WHOLE, GOES_ON, LAST = frame(1, b"h" * 20), frame(1, b"h", 4), frame(9, b"c" * 9), frame(9, b"c", 4)
STREAM = SETTINGS + DATA + WHOLE + DATA + HEADERS + GOES_ON + LAST + DATA + SETTINGS


def edges() -> set[int]:
    """Yields the ends of frames that are not inside a header block."""
    out, at = set(), 0
    for piece in (SETTINGS, DATA, WHOLE, DATA, HEADERS, GOES_ON, LAST, DATA, SETTINGS):
        at += len(piece)
        if piece not in (HEADERS, GOES_ON):
            out.add(at)
    return out


@pytest.mark.parametrize("size", [1, 2, 7, 9, 10, 64, 311, 5000])
def test_edges_do_not_depend_on_how_the_stream_is_cut(size):
    frames, found = Frames(), set()
    for at in range(0, len(STREAM), size):
        piece = STREAM[at : at + size]
        edge = frames.edge(piece)
        last = max((e for e in edges() if at < e <= at + len(piece)), default=None)
        assert edge == (-1 if last is None else last - at)
        found.add(last)
    assert len(STREAM) in found


def test_the_frame():
    assert len(GOAWAY) == 17 and GOAWAY[3] == 7


@pytest.mark.parametrize("size", [1, 7, 9, 17, 64, 5000])
def test_frames_without_a_request_are_counted_however_they_are_cut(size):
    padded, unknown = frame(0, b"\xff" + bytes(255), 8), frame(0xEE, b"x" * 40)
    stream = PREFACE + SETTINGS + PING * 40 + WHOLE + RESET + WINDOW * 2 + DATA * 9 + frame(0, b"", 1) * 3 + padded * 5 + unknown + LAST
    idle, found = Idle(), 0
    for at in range(0, len(stream), size):
        found = idle.add(stream[at : at + size])
    assert idle.http2 and found == 1 + 40 - 8 + 1 + 2 + 3 + 5 + 1 + 1
    idle.take(128 * 20)
    assert idle.add(PING) == found - 20 + 1
    idle.reset()
    assert idle.add(b"") == 0


@pytest.mark.parametrize("client", [WHOLE + frame(0, b"", 1) + RESET + WINDOW * 2 + frame(2, bytes(5)), WHOLE + PING, DATA, WHOLE * 3])
def test_frames_of_requests_are_not_counted(client):
    idle = Idle()
    idle.add(PREFACE)
    assert max(idle.add(client) for _ in range(2000)) < 10


def test_window_updates_of_readers_are_not_counted():
    """Two for each event of a watch or line of a log, as some clients send, or for each 4 KiB of a list, as Go does."""
    for answer, windows in ((40, 2), (256, 2), (65_536, 32)):
        idle = Idle()
        idle.add(PREFACE)
        for _ in range(2000):
            idle.take(answer)
            assert idle.add(WINDOW * windows) <= windows


@pytest.mark.parametrize("first", [b"GET / HTTP/1.1\r\n", b"PRI * HTTP/2.0\r\n\r\nXX", b"\0", b"P" * 30])
def test_nothing_is_counted_outside_of_http2(first):
    idle = Idle()
    assert idle.add(first[:1]) == idle.add(first[1:] or b"x") == 0
    assert not idle.http2 and idle.add(PING * 100) == 0
