"""One granian listener inside the worker's own event loop.

granian's public entry points spawn processes of their own. kas has one event loop per worker, with the store's
callbacks on it, so the listener is started the way ``granian.server.embed`` starts its single worker, with kas's
options.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from kas.edge.asgi import PARKED
from kas.edge.dispatch import Dispatcher
from kas.edge.granianparts import (
    ASGIWorker,
    CallbackScheduler,
    HTTP1Settings,
    HTTP2Settings,
    SocketHolder,
    SocketSpec,
    UnixSocketSpec,
    WorkerSignal,
)
from kas.meta.records import NamedTuple

# granian counts connections, not requests; an open watch holds one. (Max-in-flight is a filter.) At the limit it stops
# accepting and new connections wait in the kernel; if it ran out of descriptors instead, it would never accept again.
CONNECTIONS = 60_000
FEWEST_CONNECTIONS = 16
BACKLOG = 4096
STREAMS = 100  # at once on one HTTP/2 connection, as in kube-apiserver; clients open another connection for more
# What a client may send before it is read. The window of a stream is kube-apiserver's; that of a connection is smaller
# than kube-apiserver's (25 MB). Nothing is read before the head of a request has been accepted.
STREAM_WINDOW, CONNECTION_WINDOW = 256 << 10, 1 << 20
# The read buffer of an HTTP/1 connection, the head of a request included. kube-apiserver takes heads of up to 1 MiB; a
# client can hold this much for the 30 s that a head may take.
HEAD_BYTES = 256 << 10


class TLSFiles(NamedTuple):
    """PEM files of certificate and key, and the oldest TLS version that is accepted."""

    cert: str
    key: str
    min_version: str = "tls1.2"


class HTTP(NamedTuple):
    """``mode`` is "auto" (HTTP/1.1 and 2) or "1". ``streams`` is the number of concurrent requests on an HTTP/2
    connection, 0 for the default."""

    mode: str = "auto"
    streams: int = 0


DEFAULT = HTTP()


class _Scheduler(CallbackScheduler):
    """The scheduler to which granian hands requests, calling ``arrive(request)`` in a thread of its own. (granian's
    own schedulers create a coroutine for each request and step it; a request that is answered at once needs none.)"""

    __slots__ = ()

    def __new__(cls, loop: asyncio.AbstractEventLoop, arrive: Callable[[Any], None]) -> _Scheduler:
        return super().__new__(cls, loop, None, None, None, None)  # type: ignore[call-arg]  # what its stub does not list: how to step

    def __init__(self, loop: asyncio.AbstractEventLoop, arrive: Callable[[Any], None]) -> None:
        super().__init__()
        self._schedule_fn = arrive


class Listener:
    """Accepts connections at one address until ``stop``. With SO_REUSEPORT the kernel spreads connections over the workers.

    ``fd`` is a bound socket to listen on in place of an address; the listener takes ownership of it. ``connections``
    is how many may be open at once. ``dispatcher`` decides when requests are begun; the listeners of an event loop share
    it.
    """

    def __init__(
        self, app, host: str = "", port: int = 0, tls: TLSFiles | None = None, uds: str = "", http: HTTP = DEFAULT,
        fd: int = -1, connections: int = CONNECTIONS, dispatcher: Dispatcher | None = None,
    ) -> None:  # fmt: skip
        self.app, self.host, self.port, self.tls, self.uds, self.http = app, host, port, tls, uds, http
        self.fd, self.connections = fd, max(FEWEST_CONNECTIONS, min(connections, CONNECTIONS))
        self.dispatcher = dispatcher
        self._signal = WorkerSignal()
        self._worker: Any = None
        self.stopped: Any = None

    def start(self, worker_id: int) -> None:
        """Starts accepting in the running event loop. ``worker_id`` is granian's number for the worker."""
        loop = asyncio.get_running_loop()
        app, dispatcher = self.app, self.dispatcher or Dispatcher(loop)
        running: dict[Any, asyncio.Task] = {}  # the event loop holds only weak references to its tasks

        def begin(watcher: Any, scope: dict[str, Any] | None) -> asyncio.Task | None:
            proto = watcher.proto
            try:
                rest = app.begin(scope, proto.receive, proto.send, watcher, spawn) if scope is not None else app.refuse(proto.send)
            except BaseException as exc:  # the root of the request: granian logs the error and closes the connection
                watcher.err(exc)
                return None
            if rest is None:
                watcher.done()
            elif rest is not PARKED:
                spawn(rest, watcher)
                return running[watcher]
            return None

        def spawn(rest: Coroutine[Any, Any, None], watcher: Any) -> None:
            running[watcher] = loop.create_task(finish(rest, watcher))

        async def finish(rest: Coroutine[Any, Any, None], watcher: Any) -> None:
            try:
                await rest
            except BaseException as exc:  # as above
                watcher.err(exc)
            else:
                watcher.done()
            finally:
                del running[watcher]

        sock = self._socket()
        t = self.tls
        # granian's type stub does not list the arguments of the version it comes with.
        make: Any = ASGIWorker
        ssl: tuple[Any, ...] = (
            (True, t.cert, t.key, None, t.min_version, None, [], False) if t else (False, None, None, None, "tls1.2", None, [], False)
        )
        self._worker = make(
            worker_id, sock, None, 1, 8, 1, 30, self.connections, self.http.mode,
            HTTP1Settings(max_buffer_size=HEAD_BYTES),
            HTTP2Settings(
                max_concurrent_streams=self.http.streams or STREAMS, max_headers_size=HEAD_BYTES, keep_alive_interval=30_000,
                initial_stream_window_size=STREAM_WINDOW, initial_connection_window_size=CONNECTION_WINDOW,
            ),
            True, None, *ssl, (None, None),
        )  # fmt: skip
        self.stopped = loop.create_future()

        def on_stop() -> None:
            loop.call_soon_threadsafe(lambda: self.stopped.done() or self.stopped.set_result(None))

        self._signal.add_cb(on_stop)
        serve = self._worker.serve_async_uds if self.uds else self._worker.serve_async
        serve(_Scheduler(loop, partial(dispatcher.arrive, begin, app.introductions)), loop, self._signal)

    def _socket(self) -> tuple[Any, Any]:
        if self.uds:
            before = os.umask(0o177)  # so that no other user can open it before its mode is set
            try:
                return None, UnixSocketSpec(self.uds, BACKLOG, 0o600).build()
            finally:
                os.umask(before)
        if self.fd < 0:
            return SocketSpec(self.host, self.port, BACKLOG), None
        holder: Any = SocketHolder
        return None, holder(self.fd, False, min(BACKLOG, self.connections // 2))  # how many it may accept in one go

    def deaf(self) -> bool:
        """Whether the supervisor has shut down the listener's socket. granian then no longer looks at anything, and
        ``stopped`` is never set. Only to be called before ``stop``, which closes the descriptor."""
        if self.fd < 0:
            return False
        with socket.socket(fileno=os.dup(self.fd)) as s:
            return not s.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)

    def stop(self) -> None:
        """Stop accepting; connections end once their requests are answered."""
        self._signal.set()
