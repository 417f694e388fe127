"""A connection on an event loop: calls with one answer, as futures."""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import cast

from kas.store.etcd.rpc._wire import Calls, Stream
from kas.store.etcd.rpc.http2 import Connection
from kas.store.etcd.rpc.status import Code, RpcError, reason

# Upstream's clientv3 settings (storage/storagebackend/factory/etcd3.go).
KEEPALIVE_S, KEEPALIVE_TIMEOUT_S = 30.0, 10.0
LEAST_DIAL_S = 2.0  # for one address, if that much is left (Go: net.partialDeadline)
# Delay before a ping is answered: servers wait for seconds.
ANSWER_PING_S = 0.2


def succeeded(stream: Stream) -> bool:
    """Returns whether an ended call has its one message."""
    return stream.error is None and len(stream.messages) == 1


def failure(stream: Stream) -> RpcError:
    """Returns why an ended call failed. The exception is created anew each time: once raised, its traceback refers to the
    stream, and if the stream referred to it, a request of megabytes would stay until the next garbage collection of
    cycles."""
    error = stream.error
    if error is None:
        return RpcError(Code.INTERNAL, "an answer without a message")
    return RpcError(error.code, error.details, error.unsent, error.from_server)


def answer(stream: Stream) -> bytes:
    """Returns the message that answered an ended call. Raises ``RpcError``."""
    if not succeeded(stream):
        raise failure(stream)
    return stream.messages[0]


class Looped(Calls, asyncio.Protocol):
    """Created by ``dial``. Calls begin at once, and are sent together at the end of the loop iteration; a call with ``on_end``
    that is the only one in progress is sent at once.

    ``begin(block, message, within_s, on_end)`` begins a call, whose ``waiter`` gets the message of the answer, or ``RpcError``;
    it may also raise ``RpcError``. A caller that stops waiting calls ``leave``. With ``on_end``, which must not raise, there is
    no waiter: it is called at the end of the call, and ``answer`` gives the result.
    """

    _http2: Connection

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop, Connection(hold_pings=True))
        self._seen = 0
        self._pinged = False
        self.greeted: asyncio.Future[None] = loop.create_future()

    @property
    def usable(self) -> bool:
        """Whether calls may begin."""
        return not self._http2.leaving

    def _look_soon(self) -> None:
        self._seen, self._pinged = self._http2.heard, False
        self._alive = self._loop.call_later(KEEPALIVE_S, self._look)

    def _failed(self, waiter: asyncio.Future[bytes], stream: Stream) -> None:
        waiter.set_exception(failure(stream))

    def leave(self, stream: Stream) -> None:
        """Cancels a call that nothing waits for any more. The server is told to drop it."""
        if not stream.over:
            self._http2.cancel(stream, RpcError(Code.CANCELLED, "nobody waits", stream.unsent))
            self._flush()

    def _late(self, stream: Stream) -> None:
        self._http2.cancel(stream, RpcError(Code.DEADLINE_EXCEEDED, "context deadline exceeded", stream.unsent))
        self._flush()

    def _overflown(self) -> None:
        """Ends the transport of a connection that is over, or whose server does not read."""
        unread = self._transport.get_write_buffer_size()
        if not self._http2.closed:
            self._http2.lost("the server does not read")
        if unread:  # the remaining data do not matter
            self._transport.abort()
        else:
            self._transport.close()

    def _look(self) -> None:
        """Checks that the server is alive, if nothing has arrived for a while though a call waits."""
        self._alive = None
        if self._http2.heard != self._seen:
            self._pinged = False
        elif self._pinged:
            self._http2.lost("the server does not answer: keepalive")
            self._transport.abort()
            return
        elif self._http2.busy:
            self._pinged = True
            self._http2.ping()
            self._flush()
        self._seen = self._http2.heard
        if self._http2.busy:
            self._alive = self._loop.call_later(KEEPALIVE_TIMEOUT_S if self._pinged else KEEPALIVE_S, self._look)

    def close(self) -> None:
        """Closes the connection and ends its calls. Idempotent."""
        self._http2.lost("the connection was closed")
        self._transport.close()
        self._stop_timers()

    def _stop_timers(self) -> None:
        for timer in (self._alive, self._answering, self._latest):
            if timer is not None:
                timer.cancel()

    def _answer(self) -> None:
        self._answering = None
        self._http2.answer_pings()
        self._flush()

    # -- asyncio's callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio."""
        self._transport = cast(asyncio.Transport, transport)
        self._flush()

    def _handle_received(self) -> None:
        """Handles received data that may have been the greeting, or pings that are not answered yet."""
        if self._greeting and self._http2.ready:
            self._greeting = False
            if not self.greeted.done():
                self.greeted.set_result(None)
        if self._http2.held and self._answering is None and not self._http2.closed:
            self._answering = self._loop.call_later(ANSWER_PING_S, self._answer)

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio."""
        self._http2.lost(f"the connection broke off: {reason(exc)}" if exc else "the server closed the connection")
        self._stop_timers()
        if not self.greeted.done():
            self.greeted.set_exception(ConnectionError(self._http2.leaving))
            self.greeted.exception()


async def dial(host: str, port: int, tls: ssl.SSLContext | None, within_s: float) -> Looped:
    """Returns a connection whose server has sent its greeting, at the first address of its name that answers. Raises
    ``OSError``."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(within_s):
        until = loop.time() + within_s
        addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        for left, (family, *_, address) in zip(range(len(addresses), 0, -1), addresses, strict=True):
            try:
                async with asyncio.timeout(address_share(until - loop.time(), left)):
                    numeric = socket.getnameinfo(address, socket.NI_NUMERICHOST | socket.NI_NUMERICSERV)[0]  # including its zone
                    return await _dial(numeric, port, family, tls, host)
            except OSError:
                if left == 1:
                    raise
    raise ConnectionError(f"{host} has no address")


async def _dial(address: str, port: int, family: int, tls: ssl.SSLContext | None, host: str) -> Looped:
    loop = asyncio.get_running_loop()
    name = host if tls is not None else None
    _, connection = await loop.create_connection(lambda: Looped(loop), address, port, family=family, ssl=tls, server_hostname=name)
    try:
        used = connection._transport.get_extra_info("ssl_object")
        if tls is not None and (used is None or used.selected_alpn_protocol() != "h2"):
            raise ConnectionError("the server does not speak HTTP/2")
        await connection.greeted
    except BaseException:
        connection.close()
        raise
    return connection


def address_share(left_s: float, left: int) -> float:
    """Returns the timeout for one of the remaining addresses of a name, as Go's net.Dialer does, so that there is time for
    the others."""
    return max(left_s / left, min(left_s, LEAST_DIAL_S))
