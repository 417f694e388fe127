"""SPDY streams with misbehaving kubelets."""

from __future__ import annotations

import asyncio
import struct
import zlib
from types import SimpleNamespace

import pytest

from kas.client.http import BackendError
from kas.endpoints import proxy_spdy, proxy_websocket
from kas.endpoints.proxy_spdy import ERROR, FIN, MAX_DATA, RESIZE, STDERR, STDIN, STDOUT, Streams, channels

PING, RST_STREAM, SETTINGS, SYN_REPLY = 6, 3, 4, 2


class Sent:
    """A fake writer."""

    def __init__(self) -> None:
        self.data = bytearray()

    def write(self, data: bytes) -> None:
        self.data += data

    async def drain(self) -> None:
        """Accepts everything at once."""


def control(kind: int, payload: bytes) -> bytes:
    return struct.pack("!HHI", 0x8003, kind, len(payload)) + payload


def data(stream: int, payload: bytes, flags: int = 0) -> bytes:
    return struct.pack("!II", stream, flags << 24 | len(payload)) + payload


def said(frames: bytes, opened=(ERROR, STDIN, STDOUT)) -> tuple[Streams, Sent]:
    """Returns the streams of a kubelet that sent this and closed."""
    reader, writer = asyncio.StreamReader(), Sent()
    reader.feed_data(frames)
    reader.feed_eof()
    return Streams(SimpleNamespace(reader=reader, writer=writer), opened), writer  # type: ignore[arg-type]


def heard(frames: bytes) -> tuple[list[bytes], bytes]:
    """Returns the messages in frames, and the answers."""

    async def all_of_them() -> tuple[list[bytes], bytes]:
        streams, sent = said(frames)
        return [message async for message in streams.receive()], sent.data

    return asyncio.run(all_of_them())


def test_the_streams_of_each_request():
    assert channels(True, True, True, False) == [ERROR, STDIN, STDOUT, STDERR]
    assert channels(False, True, True, True) == [ERROR, STDOUT, RESIZE]


def test_frames_that_end_a_connection():
    frames = data(5, b"a") + data(1, b"b") + data(5, b"", FIN) + data(1, b"c", FIN) + data(1, b"late")
    assert heard(frames) == ([b"\1a", b"\3b", b"\3c"], b"")
    reset = control(RST_STREAM, struct.pack("!II", 5, 5)) + control(RST_STREAM, struct.pack("!II", 1, 5))
    assert heard(reset + data(1, b"late")) == ([], b"")
    assert heard(data(5, b"a")) == ([b"\1a"], b""), "an end between frames is one"
    for cut in (b"\0", data(5, b"abc")[:-1], control(SETTINGS, b"abcd")[:-1]):
        with pytest.raises(BackendError, match="spdy: EOF"):
            heard(cut)


def test_unknown_frames_are_skipped():
    nothing = data(5, b"") + data(99, b"nobody's") + control(SETTINGS, b"x" * 200_000) + control(77, b"") + control(PING, b"\0\0\0\1")
    assert heard(nothing * 3 + data(5, b"a")) == ([b"\1a"], b"")
    assert heard(control(PING, b"\0\0\0\2"))[1] == control(PING, b"\0\0\0\2")


def test_a_long_frame_is_passed_on_in_parts():
    async def run() -> list[int]:
        streams, _ = said(data(5, b"x" * MAX_DATA, FIN) + data(1, b"", FIN))
        return [len(message) async for message in streams.receive()]

    sizes = asyncio.run(run())
    assert sum(sizes) - len(sizes) == MAX_DATA and max(sizes) <= (64 << 10) + 1


def test_no_data_is_sent_before_the_kubelet_accepts_the_streams(monkeypatch):
    answers = b"".join(control(SYN_REPLY, struct.pack("!I", number)) for number in (1, 3, 5))

    async def run(frames: bytes) -> bytes:
        streams, sent = said(frames)
        await streams.open()
        opened, sent.data = sent.data, b""
        assert opened.count(b"\x80\x03\x00\x01") == 3
        first = opened[18 : 8 + int.from_bytes(opened[5:8], "big")]
        assert zlib.decompressobj().decompress(first).endswith(b"streamtype\0\0\0\5error")
        asking = asyncio.ensure_future(streams.send(b"\0hello"))
        await asyncio.sleep(0)
        assert sent.data == b""
        async for _ in streams.receive():
            pass
        await asking
        await streams.send(b"\xff\0")
        await streams.send(b"\0after its end")
        return sent.data

    assert asyncio.run(run(answers)) == data(3, b"hello") + data(3, b"", FIN)
    monkeypatch.setattr(proxy_spdy, "ANSWER_S", 0)
    with pytest.raises(BackendError, match="timed out"):
        asyncio.run(run(answers[:-12]))


def test_a_message_longer_than_a_frame_is_split():
    """Its length used to overflow into the flags: 16 MiB ended the stream, and what followed was read as the client's own frames."""
    message = bytes(range(256)) * (1 << 16) + b"more"

    async def run() -> bytes:
        streams, sent = said(b"")
        streams._answered.set()
        await streams.send(bytes((STDIN,)) + message)
        return sent.data

    frames, came, at = asyncio.run(run()), list[bytes](), 0
    while at < len(frames):
        number, size = struct.unpack_from("!II", frames, at)
        assert number == 3 and 0 < size <= proxy_websocket.PIECE
        came.append(frames[at + 8 : at + 8 + size])
        at += 8 + size
    assert b"".join(came) == message
