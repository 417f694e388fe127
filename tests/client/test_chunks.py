"""Chunked bodies, however they are cut."""

from __future__ import annotations

import pytest

from kas.client.chunks import LINES, TRAILER_BYTES, ChunkError, Chunks

BODY = b"5;x=y\r\nhello\r\n1\r\n \r\n5\nworld\r\n0\r\nT: v\r\n\r\n"


def take(*pieces: bytes, most: int = 1 << 20) -> tuple[bytes, bool, bytes]:
    """Returns (the body, whether its end has come, the rest)."""
    chunks, got, body = Chunks(), bytearray(), bytearray()
    for piece in pieces:
        got += piece
        while chunks.take(got, body, most):
            pass
    return bytes(body), chunks.done, bytes(got)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_chunks_are_read_however_they_are_cut(size: int) -> None:
    assert take(*(BODY[i : i + size] for i in range(0, len(BODY), size))) == (b"hello world", True, b"")


def test_data_after_the_body_is_left() -> None:
    assert take(BODY + b"HTTP/1.1") == (b"hello world", True, b"HTTP/1.1")


def test_no_more_is_read_than_requested() -> None:
    body, done, _ = take(b"1\r\nx\r\n" * 100, most=10)
    assert (body, done) == (b"x" * 10, False)


def test_one_call_reads_a_bounded_number_of_lines() -> None:
    """Other tasks want the loop meanwhile."""
    chunks, got, body, calls = Chunks(), bytearray(b"1\r\nx\r\n" * 10 * LINES), bytearray(), 1
    while chunks.take(got, body, 1 << 20):
        calls += 1
    assert len(body) == 10 * LINES and calls > 10


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (b"-1\r\n", "invalid byte in chunk length"),
        (b"2\r\nabc\r\n", "malformed chunked encoding"),
        (b"1" * (65 << 10), "unexpected EOF"),
        (b"1;" + b"x" * 40_000 + b"\r\n", "http: chunked encoding contains too much non-data"),
        (b"0\r\n" + b"a:b\r\n" * TRAILER_BYTES, "http: suspiciously long trailer after chunked body"),
    ],
)
def test_invalid_chunks_are_refused(sent: bytes, said: str) -> None:
    with pytest.raises(ChunkError, match=said):
        take(sent)
