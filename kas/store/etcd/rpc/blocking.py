"""A connection for a blocking thread: one call after the other, or one stream of messages. Not thread-safe, except where stated."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

from kas.store.etcd.rpc.http2 import Connection
from kas.store.etcd.rpc.looped import KEEPALIVE_S, KEEPALIVE_TIMEOUT_S, address_share
from kas.store.etcd.rpc.status import Code, RpcError, reason

READ = 1 << 18
WRITE_S = 10.0  # a server that accepts no data for this long is considered lost


class Blocking:
    """A connection whose server has sent its greeting, at the first address of its name that answers. Raises ``OSError`` if
    that takes longer than ``within_s``."""

    def __init__(self, host: str, port: int, tls: ssl.SSLContext | None, within_s: float) -> None:
        until = time.monotonic() + within_s
        self._http2: Connection
        self._socket: socket.socket | ssl.SSLSocket
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        for left, (family, kind, proto, _, address) in zip(range(len(addresses), 0, -1), addresses, strict=True):
            now = time.monotonic()
            try:
                self._open(socket.socket(family, kind, proto), address, tls, host, now + max(0.001, address_share(until - now, left)))
                return
            except OSError:
                if left == 1:
                    raise

    def _open(self, to: socket.socket, address: tuple[Any, ...], tls: ssl.SSLContext | None, host: str, until: float) -> None:
        self._http2, self._socket = Connection(), to
        try:
            to.settimeout(max(0.001, until - time.monotonic()))  # the thread may not have been scheduled until now
            to.connect(address)
            to.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if tls is not None:
                to.settimeout(max(0.001, until - time.monotonic()))
                secured = tls.wrap_socket(to, server_hostname=host)
                self._socket = secured
                if secured.selected_alpn_protocol() != "h2":
                    raise ConnectionError("the server does not speak HTTP/2")
            while not self._http2.ready:
                self._turn(until)
                if self._http2.closed:
                    raise ConnectionError(self._http2.leaving)
        except BaseException:
            self._socket.close()
            raise

    def _turn(self, until: float) -> None:
        """Sends pending data, and reads what arrives first. Raises ``OSError``, including ``TimeoutError``."""
        self._socket.settimeout(max(0.001, until - time.monotonic()))
        self._flush()
        data = self._socket.recv(READ)
        if not data:
            raise ConnectionError("the server closed the connection")
        self._http2.feed(data)
        self._flush()

    def _flush(self) -> None:
        out = self._http2.take()
        if out:
            self._socket.sendall(out)

    def idle(self) -> bool:
        """Returns whether another call may begin; for a connection that was not used for a while."""
        self._socket.settimeout(0)
        try:
            while data := self._socket.recv(READ):
                self._http2.feed(data)
        except (BlockingIOError, ssl.SSLWantReadError):
            return not self._http2.leaving
        except OSError:
            return False
        return False

    def call(self, block: bytes, message: bytes, within_s: float, most: int = 0) -> bytes:
        """Returns the message of the answer, of at most ``most`` bytes (0: as many as gRPC allows). Raises ``RpcError``; the
        connection is unusable then unless ``idle()`` returns True."""
        until = time.monotonic() + within_s
        stream = self._http2.open(block, message)
        if most:
            stream.most = most
        try:
            while not stream.over:
                self._turn(until)
        except TimeoutError:
            error = RpcError(Code.DEADLINE_EXCEEDED, "context deadline exceeded", stream.unsent)
            self.close()
            raise error from None
        except OSError as e:
            self._http2.lost(reason(e))
        if stream.error is not None:
            raise stream.error
        if len(stream.messages) != 1:
            raise RpcError(Code.INTERNAL, "an answer without a message")
        return stream.messages[0]

    def close(self) -> None:
        """Closes the connection. Idempotent."""
        self._http2.lost("the connection was closed")
        self._socket.close()


class Following:
    """A bidirectional stream of messages, alone on its connection. Iterating waits for the next messages, yields all that
    have arrived, and raises ``RpcError`` at an abnormal end; ``send`` and ``cancel`` may be called from any thread."""

    def __init__(self, connection: Blocking, block: bytes, first: bytes, last: bool = False) -> None:
        self._connection = connection
        self._http2, self._socket = connection._http2, connection._socket
        self._to_send: deque[bytes] = deque()
        self._lock = threading.Lock()  # guards the descriptors: they must not be written to after they were closed
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        self._socket.settimeout(0)
        self._try = True  # there may be data to read
        self._cancelled = self._closed = False
        self._seen = time.monotonic()
        self._stream = self._http2.open(block, first, last=last, single=False)

    def send(self, message: bytes) -> None:
        """Sends another message, if the stream is still open."""
        self._to_send.append(message)
        self._interrupt()

    def cancel(self) -> None:
        """Ends the stream: the iterating thread gets ``RpcError``. Idempotent."""
        self._cancelled = True
        self._interrupt()

    def _interrupt(self) -> None:
        with self._lock:
            if not self._closed:
                with contextlib.suppress(BlockingIOError):  # enough wake-ups are pending
                    os.write(self._wake, b"\1")

    def close(self) -> None:
        """Ends the stream and its connection. For the iterating thread. Idempotent."""
        with self._lock:
            if not self._closed:
                self._closed = True
                os.close(self._woken)
                os.close(self._wake)
        self._connection.close()

    def __iter__(self) -> Iterator[list[bytes]]:
        messages, stream = self._stream.messages, self._stream
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        poll.register(self._woken, select.POLLIN)
        try:
            while True:
                if messages:
                    come = messages[:]
                    messages.clear()
                    yield come
                elif stream.over:
                    if stream.error is not None:
                        raise stream.error
                    return
                else:
                    self._more(poll)
        finally:
            self.close()

    def _more(self, poll: select.poll) -> None:
        """Waits until data has arrived, or is to be sent."""
        try:
            self._flush()
            if self._try and self._received():
                return
            silent = time.monotonic() - self._seen >= KEEPALIVE_S
            ready = poll.poll(1000 * (KEEPALIVE_TIMEOUT_S if silent else KEEPALIVE_S))
            if len(ready) == 1 and ready[0][0] != self._woken:
                self._received()
                return
            self._try = len(ready) != 1
            if ready:
                os.read(self._woken, 65536)
                self._interrupted()
            else:
                self._silent()
        except OSError as e:
            self._http2.lost(reason(e))

    def _received(self) -> bool:
        self._try = False
        try:
            data = self._socket.recv(READ)
        except (BlockingIOError, ssl.SSLWantReadError):
            return False
        if not data:
            raise ConnectionError("the server closed the connection")
        # poll() does not see data that TLS has already read from the socket.
        self._try = isinstance(self._socket, ssl.SSLSocket) or len(data) == READ
        self._seen = time.monotonic()
        self._http2.feed(data)
        return True

    def _flush(self) -> None:
        out = self._http2.take()
        if not out:
            return
        try:
            sent = self._socket.send(out)
        except (BlockingIOError, ssl.SSLWantWriteError):
            sent = 0
        if sent < len(out):
            self._socket.settimeout(WRITE_S)
            self._socket.sendall(out[sent:])
            self._socket.settimeout(0)

    def _interrupted(self) -> None:
        if self._cancelled:
            self._http2.cancel(self._stream, RpcError(Code.CANCELLED, "it was cancelled"))
        with contextlib.suppress(IndexError):
            while True:
                self._http2.send(self._stream, self._to_send.popleft())

    def _silent(self) -> None:
        if time.monotonic() - self._seen >= KEEPALIVE_S + KEEPALIVE_TIMEOUT_S:
            self._http2.lost("the server does not answer: keepalive")
        else:
            self._http2.ping()
