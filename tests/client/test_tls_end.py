"""The end of an answer over TLS whose sender closes before it was read."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading

import pytest
import uvloop

from kas.client.http import Target, connect, insecure_tls
from tests.endpoints.fakekubelet import make_certificate

SIZE = 2 << 20


@pytest.mark.parametrize("framing", [b"Content-Length: %d\r\n" % SIZE, b""])
@pytest.mark.parametrize("loop", [uvloop.new_event_loop, asyncio.new_event_loop])
def test_an_answer_is_complete_after_its_sender_has_closed(tmp_path, loop, framing):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*make_certificate(tmp_path, "127.0.0.1"))
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        accepted, _ = listening.accept()
        with context.wrap_socket(accepted, server_side=True) as s:
            s.recv(65536)
            s.sendall(b"HTTP/1.1 200 OK\r\n" + framing + b"\r\n" + b"x" * SIZE)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()

    async def read() -> int:
        target = Target("https", "127.0.0.1", str(listening.getsockname()[1]), "/", tls=insecure_tls())
        connection = await connect(target)
        try:
            await connection.send("GET", target, [])
            await connection.head()
            size = 0
            async for piece in connection.body():
                await asyncio.sleep(0.001)  # a client that is slower than the backend
                size += len(piece)
            return size
        finally:
            connection.close()

    with asyncio.Runner(loop_factory=loop) as runner:
        assert runner.run(asyncio.wait_for(read(), 60)) == SIZE
    thread.join(60)
    listening.close()
