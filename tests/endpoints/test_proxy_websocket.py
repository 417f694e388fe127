"""WebSockets of misbehaving backends: empty frames, messages without end."""

from __future__ import annotations

import asyncio
import gc
import weakref
from types import SimpleNamespace
from typing import Any

import pytest

from kas.client.http import BackendError
from kas.endpoints import proxy_websocket
from kas.endpoints.proxy_websocket import FREE_MESSAGE, MAX_HELD, MAX_MESSAGE, WebSocket

EMPTY_PONG, EMPTY_PIECE, LAST = b"\x8a\x00", b"\x00\x00", b"\x80\x01x"


class Sent:
    """A fake writer."""

    def __init__(self) -> None:
        self.data = bytearray()

    def write(self, data: bytes) -> None:
        self.data += data

    async def drain(self) -> None:
        """Accepts everything at once."""


def socket(said: bytes) -> tuple[WebSocket, Sent]:
    """Returns a WebSocket whose backend sent this and closed."""
    reader, writer = asyncio.StreamReader(), Sent()
    reader.feed_data(said)
    reader.feed_eof()
    connection: Any = SimpleNamespace(reader=reader, writer=writer)
    return WebSocket(connection), writer


def large(size: int) -> bytes:
    return b"\x82\x7f" + size.to_bytes(8, "big") + b"x" * size


@pytest.mark.parametrize("said", [EMPTY_PONG, b"\x89\x00", EMPTY_PIECE], ids=["pongs", "pings", "pieces"])
def test_empty_frames_yield_the_loop(said: bytes) -> None:
    turns = 0

    async def beside() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def run() -> bytes | str | None:
        first, last = (b"\x02\x00", LAST) if said == EMPTY_PIECE else (b"", b"\x82\x01x")
        backend, _ = socket(first + said * 200_000 + last)
        other = asyncio.create_task(beside())
        try:
            return await backend.receive()
        finally:
            other.cancel()
            backend.release()

    assert asyncio.run(run()) == b"x"
    assert turns > 5


def test_a_fragmented_message_is_one_and_may_contain_pings() -> None:
    async def run() -> tuple[Any, ...]:
        backend, sent = socket(b"\x01\x02ab\x89\x01p\x00\x01c\x80\x00\x82\x00\x88\x02\x0b\xb8")
        return await backend.receive(), await backend.receive(), await backend.receive(), backend.code, len(sent.data)

    assert asyncio.run(run()) == ("abc", b"", None, 3000, 7)


def test_the_size_of_a_fragmented_message_is_bounded() -> None:
    piece = b"\x00\x7f" + (1 << 20).to_bytes(8, "big") + b"x" * (1 << 20)

    async def run() -> None:
        backend, _ = socket(b"\x02\x00" + piece * (MAX_MESSAGE // (1 << 20) + 1))
        with pytest.raises(BackendError, match="message too large"):
            await backend.receive()
        backend.release()

    asyncio.run(run())


def test_messages_of_all_backends_are_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy_websocket._Held, "total", 0)  # whatever else ran in this process

    async def run() -> None:
        one = large(MAX_MESSAGE)
        many = [socket(one)[0] for _ in range(MAX_HELD // MAX_MESSAGE)]
        for backend in many:
            assert len(await backend.receive() or "") == MAX_MESSAGE
        small, _ = socket(large(FREE_MESSAGE) * 2)
        assert len(await small.receive() or "") == FREE_MESSAGE, "as much as a kubelet sends"
        more, _ = socket(large(MAX_MESSAGE))
        with pytest.raises(BackendError, match="message too large"):
            await more.receive()
        more.release()
        for backend in many:
            backend.release()
        again, _ = socket(large(MAX_MESSAGE))
        assert len(await again.receive() or "") == MAX_MESSAGE
        again.release()
        small.release()

    asyncio.run(run())
    assert proxy_websocket._Held.total == 0


class Client:
    """A client that neither reads nor sends, and disconnects once a message waits for it."""

    def __init__(self) -> None:
        self.offered = asyncio.Event()

    async def receive(self) -> None:
        await self.offered.wait()

    async def send(self, message: bytes | str) -> None:
        self.offered.set()
        await asyncio.Event().wait()


@pytest.mark.parametrize("said", [large(100), b"\xff\xff", b"\x82\x02x"], ids=["leaves", "bad frame", "cut off"])
def test_a_relays_buffer_is_freed_with_it(said: bytes) -> None:
    """Not when the garbage collector runs: it may be 16 MiB for each of a hundred clients."""

    async def run() -> weakref.ref[Client]:
        client, (backend, _) = Client(), socket(said)
        backend._connection.close = lambda: None  # type: ignore[method-assign]
        await proxy_websocket.relay(client, backend)  # type: ignore[arg-type]
        return weakref.ref(client)

    gc.collect()
    gc.disable()
    try:
        assert asyncio.run(run())() is None
    finally:
        gc.enable()


class Slow(Sent):
    """A backend that reads nothing before ``taking`` is set; ``most`` is the largest write it got."""

    def __init__(self) -> None:
        super().__init__()
        self.given, self.taking, self.most = asyncio.Event(), asyncio.Event(), 0

    def write(self, data: bytes) -> None:
        super().write(data)
        self.most = max(self.most, len(data))

    async def drain(self) -> None:
        self.given.set()
        await self.taking.wait()


def unmasked(frame: bytes) -> tuple[int, bytes, bytes]:
    """Parses a frame of 64 KiB and more: its kind, its payload, and what follows it."""
    size, key = int.from_bytes(frame[2:10], "big"), frame[10:14]
    body = frame[14 : 14 + size]
    mask = (key * (size // 4 + 1))[:size]
    said = (int.from_bytes(body, "little") ^ int.from_bytes(mask, "little")).to_bytes(size, "little")
    return frame[0], said, frame[14 + size :]


@pytest.mark.parametrize("message", [bytes(range(256)) * 4097, "é" * 600_001], ids=["binary", "text"])
def test_a_large_message_is_sent_in_parts_without_a_pong_inside(message: bytes | str) -> None:
    """One of 64 MiB held the loop for 0.4 s until it was masked and encrypted."""

    async def run() -> None:
        backend, _ = socket(b"\x89\x01p" + large(3))
        slow = Slow()
        backend._connection.writer = slow  # type: ignore[assignment]
        sending = asyncio.ensure_future(backend.send(message))
        await slow.given.wait()
        receiving = asyncio.ensure_future(backend.receive())
        for _ in range(10):
            await asyncio.sleep(0)
        assert len(slow.data) <= 14 + proxy_websocket.PIECE, "it is waited for what was given before"
        slow.taking.set()
        await sending
        assert await receiving == b"xxx"
        backend.release()
        kind, said, after = unmasked(bytes(slow.data))
        assert said == (message.encode() if isinstance(message, str) else message) and kind == (0x81 if isinstance(message, str) else 0x82)
        assert after[:2] == b"\x8a\x81" and len(after) == 7 and slow.most <= proxy_websocket.PIECE

    asyncio.run(run())


def test_no_close_frame_is_sent_inside_a_message() -> None:
    async def run() -> None:
        backend, _ = socket(b"")
        slow = Slow()
        backend._connection.writer, backend._connection.close = slow, lambda: None  # type: ignore[assignment, method-assign]
        sending = asyncio.ensure_future(backend.send(bytes(1 << 20)))
        await slow.given.wait()
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        given = len(slow.data)
        slow.taking.set()
        await backend.close()
        assert len(slow.data) == given

    asyncio.run(run())


def test_a_backend_that_reads_nothing_does_not_delay_the_end() -> None:
    """Its connection, and the buffers of the disconnected client's request, used to stay as long as it did not read."""

    async def run() -> None:
        backend, _ = socket(b"")
        slow, closed = Slow(), list[bool]()
        backend._connection.writer, backend._connection.close = slow, lambda: closed.append(True)  # type: ignore[assignment, method-assign]
        sending = asyncio.ensure_future(backend.send(b"x"))
        await slow.given.wait()
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        given = len(slow.data)
        async with asyncio.timeout(20):
            await backend.close()
        assert closed == [True] and slow.data[given:][:2] == b"\x88\x82" and len(slow.data) == given + 8

    asyncio.run(run())


def test_text_is_decoded_incrementally() -> None:
    text = "é€" * 50_000
    body = text.encode() + b"\xe2\x82"  # and truncated text
    frame = b"\x81\x7f" + len(body).to_bytes(8, "big") + body

    async def run() -> None:
        backend, _ = socket(frame)
        assert await backend.receive() == text + "\N{REPLACEMENT CHARACTER}"
        backend.release()

    asyncio.run(run())


class Talker:
    """A client that sends this many bytes at once, and nothing more."""

    def __init__(self, size: int) -> None:
        self.said = [bytes(size)]

    async def receive(self) -> bytes | None:
        return self.said.pop() if self.said else None

    async def send(self, message: bytes | str) -> None:
        """Drops the message."""


def test_messages_that_backends_do_not_read_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forty clients send messages of 60 MB that a kubelet does not read."""
    monkeypatch.setattr(proxy_websocket, "MAX_PASSING", 100)
    monkeypatch.setattr(proxy_websocket, "FREE_MESSAGE", 10)

    async def run() -> None:
        free = asyncio.Event()

        async def give(message: bytes | str) -> None:
            await free.wait()

        def begun(size: int) -> asyncio.Task[int]:
            return asyncio.ensure_future(proxy_websocket.passed_on(Talker(size), give))  # type: ignore[arg-type]

        waiting = [begun(60), begun(10), begun(30)]
        await asyncio.sleep(0)
        with pytest.raises(BackendError, match="too large"):
            await begun(11)
        waiting.append(begun(10))  # as much as any client sends at once
        await asyncio.sleep(0)
        assert proxy_websocket._Passing.total == 110
        waiting.pop(0).cancel()
        await asyncio.sleep(0)
        waiting.append(begun(50))
        free.set()
        assert await asyncio.gather(*waiting) == [1000] * 4
        assert proxy_websocket._Passing.total == 0

    asyncio.run(run())
