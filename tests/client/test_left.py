"""What is left of a connection that was given up: nothing, before anybody looks for cycles."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop

from kas.client.http import MAX_HEAD, Target, _Plain, connect, insecure_tls
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
        await asyncio.sleep(0.1)  # of which TLS holds some, too
    finally:
        connection.close()


@pytest.mark.parametrize("tls", [True, False])
@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_nothing_is_left(tmp_path: Path, loop: Callable[[], asyncio.AbstractEventLoop], tls: bool) -> None:
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
        async with asyncio.timeout(60):
            while left():  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    gc.collect()
    gc.disable()
    try:
        with asyncio.Runner(loop_factory=loop) as runner:
            runner.run(run())
    finally:
        gc.enable()
