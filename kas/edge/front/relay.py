"""One client connection: TLS on the client's side, a Unix socket to a worker on the other, and bytes in between.

In each direction at most one read is held: a side that does not take its data stops reads from the other. A worker
is chosen once the client has sent something, so a silent connection costs no worker anything.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import socket
import struct
import termios
from array import array
from typing import Protocol

from OpenSSL import SSL

from kas.edge.front.frames import GOAWAY, Frames, Idle
from kas.edge.front.introduction import goodbye, hello
from kas.edge.front.rendezvous import Rendezvous, free
from kas.edge.front.tls import Renewals, shown
from kas.edge.front.upgrades import wants_spdy
from kas.edge.front.worker import Worker
from kas.edge.slowreaders import Held, has_gone, of_socket
from kas.meta.origin import client_of

RECORD_BYTES = 16 << 10  # a TLS record holds no more, so no bytes stay behind in OpenSSL
READ_BYTES = 64 << 10
# What the kernel holds of a stream for a worker that reads nothing of it, which is also what the worker reads at once (the kernel
# doubles it for what it needs itself).
STREAM_BYTES = 32 << 10
DISCARD_BYTES = 4 << 20  # of a client's data after its worker has closed the connection
# The limit of HTTP/2 frames that request nothing, in IDLE_S. Clients send a ping every half minute; frames that go with
# requests and responses are not counted (see _frames.pyx).
IDLE_FRAMES, IDLE_S = 1_000, 10.0
SOON_S = 0.1  # the response with which a client is told to go away arrives within this time
LEAVES_S = 2.0  # for so long a client that has to leave may still send requests
# What Go's net/http answers to a client that does not speak TLS.
NOT_TLS = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"
RETRY_S = 0.01  # when a worker's backlog is full


class Front(Protocol):
    """The owner of the relays."""

    loop: asyncio.AbstractEventLoop
    rendezvous: Rendezvous
    goaway: bool  # workers may ask clients to reconnect

    def begin_handshake(self, relay: Relay) -> None:
        """Data for the handshake has arrived; calls ``relay.handshake`` soon."""

    def greeted(self, relay: Relay) -> None:
        """The handshake is done; the client may take some time to send its first byte."""

    def wants_worker(self, relay: Relay) -> None:
        """Calls ``relay.join`` with a worker, now or later."""

    def lingers(self, relay: Relay) -> None:
        """Everything is sent; the client may take a moment to read it."""

    def refused(self) -> None:
        """A worker accepts no connections."""

    def gone(self, relay: Relay) -> None:
        """The relay is closed."""


def _speaks_http(e: SSL.Error) -> bool:
    """Whether a handshake failed because the client speaks plain HTTP. OpenSSL recognizes the usual methods."""
    found = e.args[0] if e.args else ()
    return isinstance(found, list) and any(reason == "http request" for *_, reason in found)


class Relay:
    """Starts with the handshake. Ends by itself or by ``close``, and tells its front."""

    __slots__ = ("_address", "_chain", "_client", "_context", "_discarded", "_down", "_fd", "_frames", "_front", "_goaway_at",
                 "_goaway_due", "_idle", "_idle_since", "_loop", "_sock", "_spdy", "_tls", "_up", "_worker", "_worker_fd", "_writing",
                 "came", "client", "closed", "worker")  # fmt: skip

    def __init__(self, front: Front, sock: socket.socket, client: str, context: SSL.Context) -> None:
        self._front, self._loop, self._sock, self._client = front, front.loop, sock, client
        self.client = client_of(client)
        self._fd, self._worker_fd = sock.fileno(), -1
        self._context: SSL.Context | None = context  # until the handshake begins
        self._worker: socket.socket | None = None  # its socket
        self.worker: Worker | None = None
        self._address = ""
        self._chain: list[bytes] = []  # the client's certificates, until a worker has been told
        self._up: bytes | memoryview = b""
        self._down: bytes | memoryview = b""
        self._writing = self._goaway_due = self._spdy = self.closed = False
        self.came = 0  # bytes received from the client
        self._discarded = 0
        self._goaway_at = 0.0  # when the client was told to go away
        self._frames: Frames | None = None  # for HTTP/2, if a client may be told to go away
        self._idle: Idle | None = None  # for HTTP/2, and until the protocol is known
        self._idle_since = 0.0
        self._loop.add_reader(self._fd, self._may_handshake)

    def _may_handshake(self) -> None:
        self._loop.remove_reader(self._fd)
        self._write_when_possible(False)
        self._front.begin_handshake(self)

    def handshake(self) -> None:
        """Continues the handshake; does nothing if the connection is closed."""
        if self.closed:
            return
        if self._context is not None:
            if self._disconnected():
                self.close()
                return
            self._tls = SSL.Connection(self._context, self._sock)
            self._tls.set_accept_state()
            self._context = None
        try:
            self._tls.do_handshake()
        except SSL.WantReadError:
            self._loop.add_reader(self._fd, self._may_handshake)
        except SSL.WantWriteError:
            self._write_when_possible(True)
        except SSL.Error as e:
            if _speaks_http(e):
                self._say_tls_is_wanted()
            self.close()
        else:
            try:
                self._chain = shown(self._tls)
            except ValueError:
                self.close()  # as Go does with a certificate that cannot be parsed
                return
            self._tls.set_app_data(Renewals(self._sock))
            self._loop.add_reader(self._fd, self._read_first_bytes)
            self._front.greeted(self)

    def _disconnected(self) -> bool:
        """Whether the client has disconnected before it sent anything: creating OpenSSL's connection object costs
        more than everything before."""
        try:
            return not self._sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def _say_tls_is_wanted(self) -> None:
        with contextlib.suppress(OSError):  # only a courtesy
            self._sock.recv(READ_BYTES)  # Unread data would turn the end of the connection into a reset, which may overtake the response.
            self._sock.send(NOT_TLS)

    def _write_when_possible(self, wanted: bool) -> None:
        if wanted and not self._writing:
            self._loop.add_writer(self._fd, self._may_handshake)
        elif self._writing and not wanted:
            self._loop.remove_writer(self._fd)
        self._writing = wanted

    # --- the worker

    def _read_first_bytes(self) -> None:
        """Reads the first bytes, which tell where the connection belongs. Until then the client counts as silent."""
        known = len(self._up)
        try:
            self._up = bytes(self._up) + self._tls.recv(RECORD_BYTES)
        except SSL.WantReadError:
            return
        except SSL.Error:
            self.close()
            return
        self.came = len(self._up)
        wanted = wants_spdy(self._up, known)
        if wanted is not None:
            self._spdy = wanted
            self._loop.remove_reader(self._fd)
            self._front.wants_worker(self)

    def join(self, worker: Worker) -> None:
        """Connects the client to this worker."""
        self._address = self._front.rendezvous.connection()
        sock = socket.socket(socket.AF_UNIX)
        sock.setblocking(False)
        if self._spdy:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, STREAM_BYTES)
        sock.bind(self._address)
        self._worker, self.worker = sock, worker
        worker.relays[self._address] = self
        if self._front.goaway and self._tls.get_alpn_proto_negotiated() == b"h2":
            self._frames = Frames()
        self._idle, self._idle_since = Idle(), self._loop.time()
        self._is_flood(self._up)
        worker.tell(hello(self._address, self._client, self._chain), self._connect)
        self._chain = []

    def _connect(self) -> None:
        if self.closed:
            return
        assert self._worker is not None and self.worker is not None
        try:
            self._worker.connect(self.worker.streams if self._spdy else self.worker.address)
        except BlockingIOError:
            self._loop.call_later(RETRY_S, self._connect)
            return
        except OSError:
            self._front.refused()
            self.close()
            return
        self._worker_fd = self._worker.fileno()
        self._loop.add_writer(self._worker_fd, self._flush_up)  # first what was read already, then the rest
        self._loop.add_reader(self._worker_fd, self._from_worker)

    # --- up: from the client to the worker

    def _from_client(self) -> None:
        assert self._worker is not None
        try:
            data = self._tls.recv(RECORD_BYTES)
        except SSL.WantReadError:
            return
        except SSL.ZeroReturnError:
            self._client_ended()
            return
        except SSL.Error:
            self.close()
            return
        self.came += len(data)
        if self._idle is not None and self._is_flood(data):
            self.close()
            return
        try:
            sent = self._worker.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            # The worker takes no more data, but what it has written is still to be delivered.
            self._loop.remove_reader(self._fd)
            return
        if sent < len(data):
            self._up = memoryview(data)[sent:]
            self._loop.remove_reader(self._fd)
            self._loop.add_writer(self._worker_fd, self._flush_up)

    def _is_flood(self, data: bytes | memoryview) -> bool:
        """Whether the client that sent ``data`` floods the server with frames that request nothing, such as pings,
        settings, window updates and resets. Each has 9 to 17 bytes and must be answered or parsed, so an endless
        stream of them would use up a worker's time and the front's."""
        assert self._idle is not None
        if self._idle.add(data) > IDLE_FRAMES:
            now = self._loop.time()
            if now - self._idle_since < IDLE_S:
                return True
            self._idle.reset()
            self._idle_since = now
        elif not self._idle.http2:
            self._idle = None
        return False

    def _flush_up(self) -> None:
        assert self._worker is not None
        try:
            sent = self._worker.send(self._up)
        except BlockingIOError:
            return
        except OSError:
            self._loop.remove_writer(self._worker_fd)
            return
        self._up = self._up[sent:]
        if not self._up:
            self._up = b""
            self._loop.remove_writer(self._worker_fd)
            self._loop.add_reader(self._fd, self._from_client)

    def _client_ended(self) -> None:
        """The client sends no more; the worker decides whether there is still something to answer."""
        assert self._worker is not None
        self._loop.remove_reader(self._fd)
        with contextlib.suppress(OSError):
            self._worker.shutdown(socket.SHUT_WR)

    # --- down: from the worker to the client

    def _from_worker(self) -> None:
        assert self._worker is not None
        try:
            data = self._worker.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data and self._worker.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            # The socket was closed before the worker had read everything sent to it. libuv reports an error once and
            # then stops polling the descriptor, though more data and the end of the stream may follow.
            self._loop.remove_reader(self._worker_fd)
            self._loop.add_reader(self._worker_fd, self._from_worker)
        if self._idle is not None:
            self._idle.take(len(data))
        if self._frames is not None:
            data = self._insert_goaway(data)
        if not data:
            self._worker_ended()
        elif not self._deliver(data):
            self._loop.remove_reader(self._worker_fd)
            self._loop.add_writer(self._fd, self._flush_down)

    def go_away(self, must: bool) -> None:
        """Tells an HTTP/2 client to open no more streams on this connection.

        The GOAWAY frame is put behind the next complete frame of the worker, which is usually the response, so that
        clients that accept nothing after it have that; or it is sent soon, if the response came before this request.
        A client that ``must`` leave and keeps sending requests is disconnected.
        """
        if must and self._goaway_at and self._loop.time() - self._goaway_at > LEAVES_S:
            self.close()
        elif not self._goaway_due and self._frames is not None:
            self._goaway_due = True
            self._loop.call_later(SOON_S, self._go_away_soon)

    def _go_away_soon(self) -> None:
        if self._goaway_due and self._frames is not None and self._frames.whole and not self._down and self._worker_fd >= 0:
            self._goaway_sent()
            if not self._deliver(GOAWAY):
                self._loop.remove_reader(self._worker_fd)
                self._loop.add_writer(self._fd, self._flush_down)

    def _goaway_sent(self) -> None:
        self._goaway_due, self._goaway_at = False, self._goaway_at or self._loop.time()

    def _insert_goaway(self, data: bytes) -> bytes:
        assert self._frames is not None
        at = self._frames.edge(data)
        if not self._goaway_due or at < 0:
            return data
        self._goaway_sent()
        return data[:at] + GOAWAY + data[at:]

    def _deliver(self, data: bytes | memoryview) -> bool:
        """Sends ``data``; returns whether all of it was taken. If not, the rest is in ``_down``."""
        try:
            sent = self._tls.send(data)
            while sent < len(data):
                data = memoryview(data)[sent:]
                sent = self._tls.send(data)
        except SSL.WantWriteError:
            self._down = data
            return False
        except SSL.Error:
            self.close()
        return True

    def _flush_down(self) -> None:
        if self._deliver(self._down) and not self.closed:
            self._down = b""
            self._loop.remove_writer(self._fd)
            self._loop.add_reader(self._worker_fd, self._from_worker)

    def _worker_ended(self) -> None:
        """Reads and discards what the client still sends: closing a socket with unread data would take the response
        away."""
        self._leave_worker()
        try:
            self._tls.shutdown()
            self._sock.shutdown(socket.SHUT_WR)
        except (SSL.Error, OSError):
            self.close()
            return
        self._loop.add_reader(self._fd, self._discard)
        self._front.lingers(self)

    def _discard(self) -> None:
        try:
            more = len(self._sock.recv(READ_BYTES))
            self._discarded += more
            if more and self._discarded < DISCARD_BYTES:
                return
        except BlockingIOError:
            return
        except OSError:
            pass  # the connection is over either way
        self.close()

    # --- memory, and the end

    def held(self) -> Held[Relay] | None:
        """What is held for the client, if it has not taken everything; None otherwise. May be called from any
        thread."""
        worker, count = self._worker, array("i", [0])
        try:
            fcntl.ioctl(self._fd, termios.TIOCOUTQ, count)
            waits = count[0]
            if not waits:
                return None
            more = len(self._down) + len(self._up)
            if worker is not None:
                for direction in (termios.TIOCOUTQ, termios.FIONREAD):
                    fcntl.ioctl(worker, direction, count)
                    more += count[0]
            return of_socket(self._sock, waits, self, more)
        except (OSError, ValueError):  # closed meanwhile: ValueError without a descriptor
            return None

    def reset(self) -> None:
        """Like ``close``, but also discards what the client has not taken."""
        if not self.closed:
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close()

    def _leave_worker(self) -> None:
        if self._worker_fd >= 0:
            self._loop.remove_reader(self._worker_fd)
            self._loop.remove_writer(self._worker_fd)
            self._worker_fd = -1
        if self._worker is not None:
            assert self.worker is not None
            self._worker.close()
            self._worker = None
            self.worker.relays.pop(self._address, None)
            address = self._address
            self.worker.tell(goodbye(address), lambda: free(address))

    def gone(self) -> bool:
        """Whether the client has sent its last byte, read or not."""
        return has_gone(self._sock)

    def close(self) -> None:
        """Closes both sides at once."""
        if self.closed:
            return
        self.closed = True
        self._loop.remove_reader(self._fd)
        self._loop.remove_writer(self._fd)
        self._leave_worker()
        self._sock.close()
        self._front.gone(self)
