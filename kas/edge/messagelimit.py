"""Ends WebSockets whose clients send messages without end.

The HTTP server gathers the fragments of a message, up to 64 MiB (granian 2.8.7; measured: 605 MB for ten
connections), and passes nothing on before the last one has arrived. What it has gathered is estimated from what has
arrived over the connection, according to the kernel or the TLS front, since the last message was passed on.

The kernel and the front also tell when a client has disconnected. A conversation whose backend does not take the
client's last message cannot see that, because the end is queued behind the message; it would last as long as the
backend likes, with both connections and all data between them.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import socket
import struct
from collections.abc import Awaitable, Callable, Iterator

from kas.edge.slowreaders import has_gone
from kas.request.http import Connection

log = logging.getLogger("kas.edge")

GATHERED_BYTES = 64 << 20  # by all WebSockets of a worker
LOOK_EVERY_S = 1.0
# The header of a frame and of a TLS record; and what else may have arrived between two looks.
AROUND, SLACK = 64, 64 << 10
# struct tcp_info of Linux: tcpi_bytes_received, 64 bits.
_RECEIVED_AT, _INFO_BYTES = 128, 136
LAST_LOOKS = 30  # for which the last data of a client that has disconnected may be on its way

Client = tuple[str, int]


class Messages:
    """What is known of one WebSocket: the bytes passed on since the last look (``size``), and the bytes that had
    arrived by then and belong to finished messages (``done``).

    ``relay`` knows how much has arrived if the TLS front relays the connection; ``left`` is derived from its last
    answer. ``end`` ends the conversation. ``gone`` is for how many looks the client has been disconnected with
    nothing passed on. For a ``stream`` of bytes nothing is gathered.
    """

    __slots__ = ("done", "end", "fd", "gone", "left", "relay", "size", "stream")

    def __init__(self, relay: Connection | None = None, end: Callable[[], object] = lambda: None, stream: bool = False) -> None:
        self.size, self.done, self.fd, self.relay, self.left = 0, 0, -1, relay, 0
        self.end, self.gone, self.stream = end, 0, stream

    def add(self, size: int) -> None:
        """Records that a message of ``size`` bytes was passed on."""
        self.size += size + AROUND

    def unfinished(self, received: int, gone: bool = False) -> int:
        """The bytes that have arrived and belong to no message that was passed on, or to no message at all, such as
        pings."""
        size, self.size = self.size, 0
        self.gone = self.gone + 1 if gone and not size else 0
        # The overhead of records and frames is not known exactly, and may be forgotten once a message was passed on.
        left = max(0, received - self.done - (size + size // 16 + SLACK if size else 0))
        self.done = received - left
        return left

    def arrived(self, received: int, gone: bool) -> None:
        """Takes the front's answer: how many bytes had arrived, and whether the client had disconnected."""
        left = self.unfinished(received, gone)
        self.left = 0 if self.stream else left


class MessageLimit:
    """Bounds what is gathered for all WebSockets of a worker. ``open`` has its WebSockets and byte streams by
    client; their handlers add and remove them."""

    def __init__(self, most: int = GATHERED_BYTES) -> None:
        self.open: dict[Client, Messages] = {}
        self._most = most

    def due(self) -> Awaitable[int] | None:
        """Runs a look, if there is anything to look at, and asks the front for the counts of the connections it
        relays, for the next look."""
        if not self.open:
            return None
        for m in self.open.values():
            if m.relay is not None:
                m.relay.count(m.arrived)
        return self._looked()

    async def _looked(self) -> int:
        ended = await asyncio.to_thread(self.look)
        for m in list(self.open.values()):
            if m.gone > LAST_LOOKS:
                m.end()
        return ended

    def look(self) -> int:
        """Ends the WebSockets with the longest unfinished messages while all of them together exceed the limit;
        returns how many were ended. To be run in a thread: some microseconds for each WebSocket, and for each
        descriptor if there are new WebSockets."""
        known = list(self.open.items())
        if any(m.fd < 0 for _, m in known):
            found = {client: fd for fd in _descriptors() for client in _client_of(fd)}
            for client, messages in known:
                messages.fd = found.get(client, messages.fd)
        held = sorted(((_unfinished(m, client), client, m.fd) for client, m in known), reverse=True)
        total, ended = sum(size for size, _, _ in held), 0
        for size, client, fd in held:
            if total <= self._most:
                break
            total -= size
            with _socket(fd, client) as s:
                if s is not None:
                    s.shutdown(socket.SHUT_RDWR)
                    ended += 1
        if ended:
            log.warning("%d WebSockets with unfinished messages were closed", ended)
        return ended


def _unfinished(m: Messages, client: Client) -> int:
    if m.relay is not None:
        return m.left
    with _socket(m.fd, client) as s:
        if s is not None:
            info = s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
            received = struct.unpack_from("=Q", info, _RECEIVED_AT)[0] if len(info) >= _INFO_BYTES else m.done
            return m.unfinished(received, has_gone(s))
    return m.unfinished(m.done, _was_reset(m.fd))


def _was_reset(fd: int) -> bool:
    """Whether the connection that a client had no longer has a peer. If it cannot be inspected nothing is known: a
    client that is silent for an hour may still be there."""
    try:
        with _duplicate(fd) as s:
            s.getpeername()
    except OSError as e:
        return e.errno == errno.ENOTCONN
    return False


def _descriptors() -> Iterator[int]:
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # closed meanwhile
            if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                yield int(name)


def _client_of(fd: int) -> tuple[Client, ...]:
    with contextlib.suppress(OSError), _duplicate(fd) as s:
        peer = _peer(s)
        return (peer,) if peer is not None else ()
    return ()


def _peer(s: socket.socket) -> Client | None:
    """The client of a connection. A relay of the TLS front has an address of its own and no port."""
    if s.family == socket.AF_UNIX:
        name = s.getpeername()
        return (name, 0) if isinstance(name, str) and name else None
    if s.family not in (socket.AF_INET, socket.AF_INET6):
        return None
    host, port = s.getpeername()[:2]
    return host.partition("%")[0], port  # without the scope, which the HTTP server does not tell


def _duplicate(fd: int) -> socket.socket:
    """A socket with a duplicate of the descriptor, whose number may be reused at any moment. Raises OSError if it is
    not an open socket."""
    copy = os.dup(fd)
    try:
        return socket.socket(fileno=copy)
    except OSError:
        os.close(copy)
        raise


@contextlib.contextmanager
def _socket(fd: int, client: Client) -> Iterator[socket.socket | None]:
    """The connection of ``client``, None if the descriptor has been reused."""
    with contextlib.ExitStack() as stack:
        found = None
        with contextlib.suppress(OSError):
            s = stack.enter_context(_duplicate(fd))
            if _peer(s) == client:
                found = s
        with contextlib.suppress(OSError):  # it has ended meanwhile
            yield found
