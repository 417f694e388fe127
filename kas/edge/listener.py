"""One granian listener inside the worker's own event loop.

granian's public entry points spawn processes of their own; kas has one loop per worker with the store's callbacks on it,
so the listener is started the way ``granian.server.embed`` starts its single worker, with our options.
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

# granian counts connections, not requests: an open watch holds one. Max-in-flight is a filter of ours. At the limit it stops to accept,
# and new connections wait in the kernel; where descriptors ended first its accepting would never begin again.
CONNECTIONS = 60_000
FEWEST_CONNECTIONS = 16
BACKLOG = 4096
STREAMS = 100  # at once on one HTTP/2 connection, as upstream; clients open another for more
# What a client may send before it is read: upstream's for a stream, less than upstream's for a connection (25 MB). Until the head of a
# request has been accepted nothing is read.
STREAM_WINDOW, CONNECTION_WINDOW = 256 << 10, 1 << 20
# Of one connection of HTTP/1, head included. Upstream's heads may have 1 MiB; a client holds as much for the 30 s a head may take.
HEAD_BYTES = 256 << 10


class TLSFiles(NamedTuple):
    """PEM files of certificate and key, and the oldest version of TLS that is spoken."""

    cert: str
    key: str
    min_version: str = "tls1.2"


class HTTP(NamedTuple):
    """``mode`` is "auto" (HTTP/1.1 and 2) or "1"; ``streams``: requests at once on an HTTP/2 connection, 0 = the default."""

    mode: str = "auto"
    streams: int = 0


DEFAULT = HTTP()


class _Scheduler(CallbackScheduler):
    """Whom granian hands requests over to: ``arrive(request)``, from a thread of its own. (Its own schedulers make a coroutine of each
    request and step it; what is answered at once needs none.)"""

    __slots__ = ()

    def __new__(cls, loop: asyncio.AbstractEventLoop, arrive: Callable[[Any], None]) -> _Scheduler:
        return super().__new__(cls, loop, None, None, None, None)  # type: ignore[call-arg]  # what its stub does not list: how to step

    def __init__(self, loop: asyncio.AbstractEventLoop, arrive: Callable[[Any], None]) -> None:
        super().__init__()
        self._schedule_fn = arrive


class Listener:
    """Accepts on one address (SO_REUSEPORT: the kernel spreads connections over the workers) until ``stop``.

    ``fd``: a bound socket, which becomes the listener's, instead of an address. ``connections``: how many may be open at once.
    ``turns`` says when requests are begun; listeners of a loop share them.
    """

    def __init__(
        self, app, host: str = "", port: int = 0, tls: TLSFiles | None = None, uds: str = "", http: HTTP = DEFAULT,
        fd: int = -1, connections: int = CONNECTIONS, turns: Dispatcher | None = None,
    ) -> None:  # fmt: skip
        self.app, self.host, self.port, self.tls, self.uds, self.http = app, host, port, tls, uds, http
        self.fd, self.connections = fd, max(FEWEST_CONNECTIONS, min(connections, CONNECTIONS))
        self.turns = turns
        self._signal = WorkerSignal()
        self._worker: Any = None
        self.stopped: Any = None

    def start(self, worker_id: int) -> None:
        """Starts to accept, in the running loop; ``worker_id`` is granian's number for the worker."""
        loop = asyncio.get_running_loop()
        app, turns = self.app, self.turns or Dispatcher(loop)
        running: dict[Any, asyncio.Task] = {}  # the loop itself holds its tasks weakly

        def begin(watcher: Any, scope: dict[str, Any] | None) -> asyncio.Task | None:
            proto = watcher.proto
            try:
                rest = app.begin(scope, proto.receive, proto.send, watcher, spawn) if scope is not None else app.refuse(proto.send)
            except BaseException as exc:  # the request's root: granian logs the error and ends the connection
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
        # granian's own type stub does not list the arguments of the version it comes with.
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
        serve(_Scheduler(loop, partial(turns.arrive, begin, app.introductions)), loop, self._signal)

    def _socket(self) -> tuple[Any, Any]:
        if self.uds:
            before = os.umask(0o177)  # nobody else may open it before its mode is set
            try:
                return None, UnixSocketSpec(self.uds, BACKLOG, 0o600).build()
            finally:
                os.umask(before)
        if self.fd < 0:
            return SocketSpec(self.host, self.port, BACKLOG), None
        holder: Any = SocketHolder
        return None, holder(self.fd, False, min(BACKLOG, self.connections // 2))  # what it may take in one go

    def deaf(self) -> bool:
        """Whether the supervisor took its socket from the port. Granian has stopped to look at anything then, and ``stopped`` is never
        told; before ``stop`` only, which gives the descriptor back."""
        if self.fd < 0:
            return False
        with socket.socket(fileno=os.dup(self.fd)) as s:
            return not s.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)

    def stop(self) -> None:
        """Stop accepting; connections end once their requests are answered."""
        self._signal.set()
