"""Ends WebSockets whose clients send messages that do not end: the HTTP server below gathers the pieces of each, up to 64 MiB (granian
2.8.7; measured: 605 MB for ten connections), and nobody hears of it before the last one has come.

What is gathered is what the kernel, or the TLS front, says has come over the connection since its last message was handed on.

They say as well that a client has gone, which nobody hears either while a backend does not take its last message: its end stands behind
what it has sent. Such a conversation would last as long as the backend likes, with both connections and all that lies between them.
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
# The head of a frame and of a TLS record; what else may have come between two looks.
AROUND, SLACK = 64, 64 << 10
# struct tcp_info of Linux: tcpi_bytes_received, of 64 bits.
_RECEIVED_AT, _INFO_BYTES = 128, 136
LAST_LOOKS = 30  # for which what a client that has gone said last may be on its way

Client = tuple[str, int]


class Messages:
    """Of one WebSocket: what was handed on since the last look, and how much had come by then that belonged to finished messages. ``relay``
    is who knows how much has come, where that is the TLS front; ``left`` is what it was told of. ``end`` ends the conversation, ``gone`` is
    how many looks ago the client had gone and nothing has been handed on since. Of a ``stream`` of bytes nothing is gathered."""

    __slots__ = ("done", "end", "fd", "gone", "left", "relay", "size", "stream")

    def __init__(self, relay: Connection | None = None, end: Callable[[], object] = lambda: None, stream: bool = False) -> None:
        self.size, self.done, self.fd, self.relay, self.left = 0, 0, -1, relay, 0
        self.end, self.gone, self.stream = end, 0, stream

    def add(self, size: int) -> None:
        """One more was handed on."""
        self.size += size + AROUND

    def unfinished(self, received: int, gone: bool = False) -> int:
        """How much of what has come is of no message that was handed on, or is of none at all, such as pings."""
        size, self.size = self.size, 0
        self.gone = self.gone + 1 if gone and not size else 0
        # What is around records and messages is not known better, and may be forgotten once something was handed on.
        left = max(0, received - self.done - (size + size // 16 + SLACK if size else 0))
        self.done = received - left
        return left

    def told(self, received: int, gone: bool) -> None:
        """So much had come when the front was asked, and the client had ``gone`` or not."""
        left = self.unfinished(received, gone)
        self.left = 0 if self.stream else left


class MessageLimit:
    """``open`` are the WebSockets, and streams of bytes, of a worker by their clients; who serves them adds and takes away."""

    def __init__(self, most: int = GATHERED_BYTES) -> None:
        self.open: dict[Client, Messages] = {}
        self._most = most

    def due(self) -> Awaitable[int] | None:
        """Looks, where there is something to look at; and asks the front what has come over the connections that it relays, for the next
        look."""
        if not self.open:
            return None
        for m in self.open.values():
            if m.relay is not None:
                m.relay.count(m.told)
        return self._looked()

    async def _looked(self) -> int:
        ended = await asyncio.to_thread(self.look)
        for m in list(self.open.values()):
            if m.gone > LAST_LOOKS:
                m.end()
        return ended

    def look(self) -> int:
        """Ends those with the longest unfinished messages as long as all of them together are too long; returns how many. For a thread:
        some microseconds a WebSocket, and a descriptor where there are new ones."""
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
    """Whether the connection that a client had has no peer any more. Of what cannot be looked at nothing is known: who says nothing for an
    hour may be there."""
    try:
        with _duplicate(fd) as s:
            s.getpeername()
    except OSError as e:
        return e.errno == errno.ENOTCONN
    return False


def _descriptors() -> Iterator[int]:
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # gone
            if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                yield int(name)


def _client_of(fd: int) -> tuple[Client, ...]:
    with contextlib.suppress(OSError), _duplicate(fd) as s:
        peer = _peer(s)
        return (peer,) if peer is not None else ()
    return ()


def _peer(s: socket.socket) -> Client | None:
    """Whose connection it is; a relay of the TLS front has an address of its own and no port."""
    if s.family == socket.AF_UNIX:
        name = s.getpeername()
        return (name, 0) if isinstance(name, str) and name else None
    if s.family not in (socket.AF_INET, socket.AF_INET6):
        return None
    host, port = s.getpeername()[:2]
    return host.partition("%")[0], port  # without a scope, of which the HTTP server says nothing


def _duplicate(fd: int) -> socket.socket:
    """The number may mean something else in the next moment. Raises OSError for what is no socket, or not open."""
    copy = os.dup(fd)
    try:
        return socket.socket(fileno=copy)
    except OSError:
        os.close(copy)
        raise


@contextlib.contextmanager
def _socket(fd: int, client: Client) -> Iterator[socket.socket | None]:
    """The connection of ``client``; None where the descriptor means something else by now."""
    with contextlib.ExitStack() as stack:
        found = None
        with contextlib.suppress(OSError):
            s = stack.enter_context(_duplicate(fd))
            if _peer(s) == client:
                found = s
        with contextlib.suppress(OSError):  # it ended meanwhile
            yield found
