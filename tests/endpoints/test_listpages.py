"""How the pages of a list are written to the connection."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator
from types import SimpleNamespace

import pytest

from kas.endpoints import listing, listpages, respond
from kas.endpoints.listpages import END_BYTES, FEW, LEAST_BYTES, PAGE_BYTES, PIECE_BYTES, Ahead, Listing, Underway, room, stream
from kas.meta import waiting
from kas.meta.waiting import TIME_SLICE_S, Throttle
from kas.request.http import Request, Response


def asked(sent: list[bytes], ahead: Ahead) -> Response:
    async def pieces() -> AsyncIterator[bytes]:
        for i, piece in enumerate(sent):
            ahead.more = i + 1 < len(sent)
            yield piece

    req = Request("GET", "/api/v1/pods", "", [])
    listing = Listing(req, None, respond.media(req), "/registry/pods/", None, "", 0, 0)
    return stream(listing, pieces(), ahead=ahead)


def written(answer: Response) -> list[bytes]:
    out: list[bytes] = []

    async def write(piece: bytes) -> None:
        out.append(piece)

    assert answer.stream is not None
    asyncio.run(answer.stream(write))
    return out


def test_a_page_with_a_successor_is_sent_unchanged() -> None:
    sent = [bytes([65 + i]) * PAGE_BYTES for i in range(3)]
    got = written(asked(sent, Ahead()))
    assert b"".join(got) == b"".join(sent)
    assert got[0] is sent[0] and got[1] is sent[1]


@pytest.mark.parametrize("size", [1, LEAST_BYTES - 1, LEAST_BYTES, PAGE_BYTES])
def test_the_end_is_sent_separately_so_that_its_delivery_is_known(size: int) -> None:
    got = written(asked([b"x" * PAGE_BYTES, b"y" * size], Ahead()))
    assert b"".join(got) == b"x" * PAGE_BYTES + b"y" * size
    assert all(len(piece) == 1 for piece in got[-min(size, 6) :])  # more than the HTTP server buffers
    assert not room.held


def test_a_last_page_with_a_separate_end_is_sent_unchanged() -> None:
    sent, end, ahead = [bytes([65 + i]) * PAGE_BYTES for i in range(3)], bytes(range(END_BYTES)), Ahead()

    async def pieces() -> AsyncIterator[bytes]:
        for i, piece in enumerate(sent):
            ahead.more, ahead.end = i < 2, end if i == 2 else b""
            yield piece

    for gzipped in (False, True):
        req = Request("GET", "/api/v1/pods", "", [(b"accept-encoding", b"gzip")] if gzipped else [])
        listing = Listing(req, None, respond.media(req), "/registry/pods/", None, "", 0, 0)
        got = written(stream(listing, pieces(), ahead=ahead))
        if gzipped:
            assert gzip.decompress(b"".join(got)) == b"".join(sent) + end
        else:
            assert all(a is b for a, b in zip(got, sent, strict=False)) and b"".join(got[3:]) == end
            assert len(got[3]) > 1 and all(len(piece) == 1 for piece in got[-6:])  # more pieces than the HTTP server holds
        assert not room.held


@pytest.mark.parametrize("size", [10, LEAST_BYTES + 1, 3 * PAGE_BYTES])
def test_a_page_that_may_be_the_last_is_sent_once(size: int) -> None:
    sent, ahead = [bytes([65 + i]) * size for i in range(5)], Ahead()

    async def pieces() -> AsyncIterator[bytes]:
        for piece, more in zip(sent, (False, True, True, False, False), strict=True):
            ahead.more = more
            yield piece

    req = Request("GET", "/api/v1/pods", "", [])
    listing = Listing(req, None, respond.media(req), "/registry/pods/", None, "", 0, 0)
    assert b"".join(written(stream(listing, pieces(), ahead=ahead))) == b"".join(sent)


def test_pages_of_equal_size_are_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = [PAGE_BYTES - n * 1000 for n in (0, 3, 1, 7, 2)]
    added: list[int] = []
    real = room.add

    def add(user: str, size: int) -> None:
        added.append(size)
        real(user, size)

    monkeypatch.setattr(room, "add", add)
    answer = asked([b"x" * size for size in sizes], Ahead())
    held: list[tuple[int, int]] = []

    async def write(piece: bytes) -> None:
        held.append((room.held[""], len(piece)))

    assert answer.stream is not None
    asyncio.run(answer.stream(write))
    assert all(size <= now <= PAGE_BYTES for now, size in held)  # never less than is given away
    assert added == [PAGE_BYTES, -PAGE_BYTES] and not room.held


def test_the_held_size_follows_growing_and_shrinking_pages() -> None:
    sizes = [PAGE_BYTES // 4, PAGE_BYTES, LEAST_BYTES, 10 * LEAST_BYTES, 1]
    answer, held = asked([b"x" * size for size in sizes], Ahead()), []

    async def write(piece: bytes) -> None:
        if len(piece) in sizes[:-1]:
            held.append(room.held[""] - len(piece))

    assert answer.stream is not None
    asyncio.run(answer.stream(write))
    assert len(held) == 4 and all(0 <= over <= LEAST_BYTES for over in held) and not room.held


def test_pages_are_smaller_when_there_are_many_answers() -> None:
    underway = Underway()
    found = []
    for answers in (0, FEW, FEW + 1, 127, 255, 10_000):
        underway.answers = answers
        found.append(underway.page_bytes)
    assert found == [PAGE_BYTES, PAGE_BYTES, PIECE_BYTES, PIECE_BYTES, PIECE_BYTES // 2, LEAST_BYTES]


@pytest.mark.parametrize("encoding", [b"gzip", b"identity"])
def test_the_loop_is_yielded_before_the_next_page_after_long_work(monkeypatch: pytest.MonkeyPatch, encoding: bytes) -> None:
    """Threads that compress complete many pages in one loop iteration, and each started the next: 209 blocks of 25 to 50 ms a minute
    beside forty Tables."""
    paused: list[int] = []

    class Over:
        over = True

        async def pause(self) -> None:
            paused.append(1)

    monkeypatch.setattr(listpages, "TimeSlice", Over)
    sent = [bytes([65 + i]) * PAGE_BYTES for i in range(5)]

    async def pieces() -> AsyncIterator[bytes]:
        for piece in sent:
            yield piece

    req = Request("GET", "/api/v1/pods", "", [(b"accept-encoding", encoding)])
    listing = Listing(req, None, respond.media(req), "/registry/pods/", None, "", 0, 0)
    got = b"".join(written(stream(listing, pieces())))
    assert (gzip.decompress(got) if encoding == b"gzip" else got) == b"".join(sent) and len(paused) == len(sent)


def test_pages_of_many_answers_are_built_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forty answers whose clients had read in the same loop iteration each built their next page in it."""
    turn, made = [0], list[int]()
    clock = SimpleNamespace(now=1.0)
    monkeypatch.setattr(waiting, "Throttle", lambda: Throttle(lambda: clock.now))
    result = SimpleNamespace(revision=1, count=1, more=True, next_key="", end=b"")

    def page(*_: object) -> tuple[object, bytes]:
        made.append(turn[0])
        clock.now += 2 * TIME_SLICE_S
        return SimpleNamespace(revision=1, count=1, more=False, next_key="", end=b""), b"2"

    async def turns() -> None:
        while True:
            turn[0] += 1
            await asyncio.sleep(0)

    async def one() -> bytes:
        q = SimpleNamespace(served=SimpleNamespace(registry=SimpleNamespace(pages=SimpleNamespace(revision=1))), limit=0, in_thread=False)
        return b"".join([piece async for piece in listing._pages(q, page, result, b"1", {}, Ahead())])  # type: ignore[arg-type]

    async def run() -> list[bytes]:
        counted = asyncio.ensure_future(turns())
        async with asyncio.timeout(60):
            found = await asyncio.gather(*(one() for _ in range(40)))
        counted.cancel()
        return found

    assert asyncio.run(run()) == [b"12"] * 40
    assert len(set(made)) == len(made) == 40
