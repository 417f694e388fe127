"""Where a frame may be put in."""

from __future__ import annotations

import pytest

from kas.edge.front.frames import GOAWAY, Frames


def frame(kind: int, payload: bytes, flags: int = 0, stream: int = 1) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


SETTINGS, DATA = frame(4, b"", stream=0), frame(0, b"x" * 300)
HEADERS, WHOLE, GOES_ON, LAST = frame(1, b"h" * 20), frame(1, b"h", 4), frame(9, b"c" * 9), frame(9, b"c", 4)
STREAM = SETTINGS + DATA + WHOLE + DATA + HEADERS + GOES_ON + LAST + DATA + SETTINGS


def edges() -> set[int]:
    """Of the stream: the ends of frames that do not lie in a block of headers."""
    out, at = set(), 0
    for piece in (SETTINGS, DATA, WHOLE, DATA, HEADERS, GOES_ON, LAST, DATA, SETTINGS):
        at += len(piece)
        if piece not in (HEADERS, GOES_ON):
            out.add(at)
    return out


@pytest.mark.parametrize("size", [1, 2, 7, 9, 10, 64, 311, 5000])
def test_edges_however_the_stream_is_cut(size):
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
