"""An abandoned connection leaves no reference cycle."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import ssl
import struct
from collections.abc import Callable, Coroutine
from pathlib import Path

import pytest
import uvloop

from kas.client.exchange import Exchange, exchange
from kas.client.http import MAX_HEAD, BackendError, Target, _Plain, connect, insecure_tls
from tests import ports
from tests.endpoints.fakekubelet import make_certificate


async def _flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
    with contextlib.suppress(OSError, ssl.SSLError):
        while True:
            writer.write(b"x" * 100_000)
            await writer.drain()


async def _given_up(target: Target) -> None:
    connection = await connect(target)
    try:
        await connection.send("GET", target, [])
        await connection.head()
        async with asyncio.timeout(60):
            while len(connection.reader._buffer) < 2 * MAX_HEAD:  # noqa: ASYNC110  # more comes than anybody takes
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)  # TLS holds some of them, too
    finally:
        connection.close()


def _run_until_none_is_left(loop: Callable[[], asyncio.AbstractEventLoop], run: Callable[[], Coroutine], left: Callable[[], int]) -> None:
    """Runs ``run``, and then waits until ``left()`` is 0, while the garbage collector does not run."""

    async def all_of_it() -> None:
        await run()
        async with asyncio.timeout(60):
            while left():  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    gc.collect()
    gc.disable()
    try:
        with asyncio.Runner(loop_factory=loop) as runner:
            runner.run(all_of_it())
    finally:
        gc.enable()


@pytest.mark.parametrize("tls", [True, False])
@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_no_cycle_is_left(tmp_path: Path, loop: Callable[[], asyncio.AbstractEventLoop], tls: bool) -> None:
    sealed = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    sealed.load_cert_chain(*make_certificate(tmp_path, "127.0.0.1"))

    def left() -> int:
        return sum(isinstance(o, _Plain) for o in gc.get_objects())

    async def run() -> None:
        server = await asyncio.start_server(_flood, "127.0.0.1", 0, ssl=sealed if tls else None)
        port = str(server.sockets[0].getsockname()[1])
        target = Target("https" if tls else "http", "127.0.0.1", port, "/", tls=insecure_tls() if tls else None)
        for _ in range(8):
            await _given_up(target)
        server.close()

    _run_until_none_is_left(loop, run, left)


async def _reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


@pytest.mark.parametrize("opened", [connect, exchange])
@pytest.mark.parametrize("why", ["connection refused", "reset by peer", "failed to verify certificate"])
@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_an_attempt_leaves_no_cycle(tmp_path: Path, loop: Callable[[], asyncio.AbstractEventLoop], why: str, opened: Callable) -> None:
    """A TLS buffer used to remain of each request to a server that does not answer."""
    sealed = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    sealed.load_cert_chain(*make_certificate(tmp_path, "127.0.0.1"))
    trusting = ssl.create_default_context()  # with no CA that signed it

    def left() -> int:
        objects = gc.get_objects()
        return sum(isinstance(o, (_Plain, Exchange)) or (isinstance(o, ssl.SSLObject) and not o.server_side) for o in objects)

    async def run() -> None:
        tls = sealed if "certificate" in why else None
        server = await asyncio.start_server(_reset, "127.0.0.1", 0, ssl=tls)
        port = str(ports.reserve() if "refused" in why else server.sockets[0].getsockname()[1])
        for _ in range(8):
            with pytest.raises(BackendError, match=why):
                await opened(Target("https", "127.0.0.1", port, tls=trusting))
        server.close()

    _run_until_none_is_left(loop, run, left)
