"""OpenAPI documents that are decompressed while they are sent."""

from __future__ import annotations

import asyncio
import gzip
import random
import zlib
from types import SimpleNamespace

import pytest

from kas.endpoints import documents, listpages
from kas.endpoints.listpages import LEAST_BYTES, Room, Underway
from kas.endpoints.openapi import JSON, Document
from kas.meta import waiting
from kas.meta.errors import ApiError
from kas.meta.waiting import TIME_SLICE_S, Throttle
from kas.request.http import Request, Response

WHOLE = random.Random(1).randbytes(1 << 20)


def answer(*headers: tuple[bytes, bytes]) -> Response:
    return documents._document(Request("GET", "/openapi/v2", "", list(headers)), Document(gzip.compress(WHOLE, 1), JSON, '"a"'))


async def sent(resp: Response) -> bytes:
    pieces: list[bytes] = []

    async def write(piece: bytes) -> None:
        pieces.append(piece)

    assert resp.stream is not None
    await resp.stream(write)
    return b"".join(pieces)


def test_many_answers_share_one_slice_of_a_loop_iteration(monkeypatch: pytest.MonkeyPatch) -> None:
    """800 streams of HTTP/2 with a zero window held the loop for 250 ms: each decompressed its next piece in every loop iteration."""
    turn, made, clock = [0], list[int](), SimpleNamespace(now=1.0)
    monkeypatch.setattr(waiting, "Throttle", lambda: Throttle(lambda: clock.now))
    real = zlib.decompressobj

    class Slow:
        def __init__(self, bits: int) -> None:
            self._real = real(bits)

        def __getattr__(self, name: str) -> object:
            return getattr(self._real, name)

        def decompress(self, data: bytes, most: int) -> bytes:
            made.append(turn[0])
            clock.now += 2 * TIME_SLICE_S
            return self._real.decompress(data, most)

    monkeypatch.setattr(zlib, "decompressobj", Slow)

    async def turns() -> None:
        while True:
            turn[0] += 1
            await asyncio.sleep(0)

    async def run() -> list[bytes]:
        counted = asyncio.ensure_future(turns())
        async with asyncio.timeout(60):
            found = await asyncio.gather(*(sent(answer()) for _ in range(20)))
        counted.cancel()
        return found

    assert asyncio.run(run()) == [WHOLE] * 20
    assert len(made) >= 20 * 64 and len(set(made)) == len(made)


@pytest.mark.parametrize("headers", [(), ((b"range", b"bytes=0-900000"),)])
def test_unread_documents_count_and_come_in_small_pieces_on_a_busy_server(
    monkeypatch: pytest.MonkeyPatch, headers: tuple[tuple[bytes, bytes], ...]
) -> None:
    """800 unread documents took 800 MB, which no limit counted."""
    room, underway = Room(most_bytes=4 * LEAST_BYTES), Underway()
    underway.answers = 10_000
    for module in (documents, listpages):
        monkeypatch.setattr(module, "room", room)
        monkeypatch.setattr(module, "underway", underway)

    async def run() -> None:
        taken, stalls, stalled, sizes = asyncio.Event(), asyncio.Semaphore(0), list[int](), list[int]()

        async def write(piece: bytes) -> None:
            sizes.append(len(piece))
            if not taken.is_set():
                stalled.append(len(piece))
                stalls.release()
                await taken.wait()

        tasks = []
        async with asyncio.timeout(60):
            while True:
                try:
                    resp = answer(*headers)
                except ApiError as e:
                    assert e.code == 429
                    break
                assert resp.stream is not None
                tasks.append(asyncio.ensure_future(resp.stream(write)))
                await stalls.acquire()
            assert 4 <= len(tasks) <= 4 * LEAST_BYTES // min(stalled) + 1 and sum(room.held.values()) >= sum(stalled) > 0
            taken.set()
            await asyncio.gather(*tasks)
        assert max(sizes) <= LEAST_BYTES and not room.held and underway.answers == 10_000

    asyncio.run(run())
