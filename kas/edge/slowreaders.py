"""Resets connections whose clients do not take what is sent to them, when all of these hold more kernel memory than a process may.

The kernel keeps up to 4 MiB of a response for each connection (``net.ipv4.tcp_wmem``), which is what makes large
responses cheap, and gives up on a client that takes nothing after a minute (``descriptors.limit_buffers``). Thousands
of such clients fill the memory that all connections of the machine share (``net.ipv4.tcp_mem``) in less than that.
So beyond ``BUDGET``, connections that would need more than a minute for their pending data at the pace of the last
seconds are reset, those of the client that holds most first. A client that takes its data is never among them.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import heapq
import logging
import math
import os
import socket
import struct
import sys
import termios
from array import array
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from time import monotonic
from typing import Generic, TypeVar

from kas.meta.origin import client_of
from kas.meta.records import NamedTuple
from kas.observe.process import disconnect

log = logging.getLogger("kas.edge")

BUDGET = 64 << 20  # for each process: a worker, or the TLS front
LOOK_EVERY_S = 1.0
# How long a client is watched before it is judged: less the more is held, but not less than about one look.
WATCHED_S, SOONEST_S = 5.0, 0.9
TAKES_S = 60.0  # A client that needs no longer for its pending data is not slow.
PER_PROCESSOR = 1 << 20  # that the kernel may have put aside for each processor without reporting it
_CLOSED, _HALF_CLOSED = 7, 8  # of tcpi_state, the first byte: the connection was reset, or the peer has sent its FIN
SO_MEMINFO, _NUMBERS = 55, struct.Struct("=8I")  # <asm-generic/socket.h>, <linux/sock_diag.h>
_READ, _QUEUED = 0, 5  # SK_MEMINFO_RMEM_ALLOC and SK_MEMINFO_WMEM_QUEUED: received and not read, and sent and not taken
_ACKNOWLEDGED_AT = 120  # tcpi_bytes_acked, 64 bits
T = TypeVar("T")


class Held(NamedTuple, Generic[T]):
    """What is held for a connection. ``waits``: bytes that the client has not taken; ``taken``: bytes that it has
    ever taken; ``size``: all memory held for it; ``what``: the caller's name for it."""

    number: int  # its inode, which no other connection has
    client: str
    waits: int
    taken: int
    size: int
    what: T


class SlowReaders(Generic[T]):
    """Resets slow connections. ``held()`` yields the connections with data that the client has not taken, ``cut``
    ends one of them; both are called in a thread."""

    def __init__(self, held: Callable[[], Iterable[Held[T]]], cut: Callable[[Held[T]], object]) -> None:
        self._held, self._cut = held, cut
        self._seen: dict[int, deque[tuple[float, int]]] = {}  # by connection: times, and the bytes taken by then

    def pressed(self) -> bool:
        """Whether there is a reason to look: not while all connections of the machine hold less than the budget.
        Takes some microseconds."""
        if _of_machine() >= BUDGET:
            return True
        self._seen = {}
        return False

    async def due(self) -> None:
        """Looks if there is a reason to. To be called every ``LOOK_EVERY_S``."""
        if self.pressed():
            await asyncio.to_thread(self.look)

    def look(self) -> int:
        """Ends the connections that have to end; returns how many. To be run in a thread: a microsecond for each
        descriptor, and some more for each connection with pending data."""
        now, all_held = monotonic(), list(self._held())
        seen, self._seen = self._seen, {}
        for one in all_held:
            self._seen[one.number] = times = seen.get(one.number) or deque(maxlen=int(WATCHED_S / LOOK_EVERY_S) + 2)
            times.append((now, one.taken))
        total = sum(one.size for one in all_held)
        if total <= BUDGET:
            return 0
        window = max(SOONEST_S, WATCHED_S * BUDGET / total)
        stuck = [(needs, one) for one in all_held if (needs := self._needs(one, now, window)) > TAKES_S]
        ending = list(_first(stuck))
        for one in ending:
            self._cut(one)
        if ending:
            log.warning(
                "%d connections were reset whose clients did not take what was sent to them: they held %d MiB",
                len(ending), sum(one.size for one in ending) >> 20,
            )  # fmt: skip
        return len(ending)

    def _needs(self, one: Held[T], now: float, window: float) -> float:
        """Seconds until all data would be taken at the pace of the last ``window`` seconds; 0 for a connection that
        has not been watched for so long."""
        for at, taken in reversed(self._seen[one.number]):
            if now - at >= window:
                return one.waits * (now - at) / (one.taken - taken) if one.taken != taken else math.inf
        return 0.0


def _first(stuck: Iterable[tuple[float, Held[T]]]) -> Iterator[Held[T]]:
    """The connections to end so that the budget is kept. Of the client that holds most, the one that needs longest
    comes first; then again."""
    clients = defaultdict[str, list[tuple[float, int, int, Held[T]]]](list)
    for needs, one in stuck:
        clients[one.client].append((needs, one.size, one.number, one))
    sums = {client: sum(size for _, size, _, _ in found) for client, found in clients.items()}
    most = [(-much, client) for client, much in sums.items()]
    heapq.heapify(most)
    for found in clients.values():
        found.sort()
    left = sum(sums.values())
    while left > BUDGET:
        much, client = most[0]
        _, size, _, one = clients[client].pop()
        left -= size
        yield one
        heapq.heapreplace(most, (much + size, client))


def held_by(ports: frozenset[int]) -> Iterator[Held[int]]:
    """The connections of this process to its own ``ports`` that have pending data; ``what`` is the descriptor."""
    count = array("i", [0])
    for fd in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError):  # it is closed, or listens, or is not a socket
            if fcntl.ioctl(fd, termios.TIOCOUTQ, count) == 0 and count[0]:
                # A duplicate, because the number may be reused at any moment.
                with socket.socket(fileno=os.dup(fd)) as s:
                    if s.family in (socket.AF_INET, socket.AF_INET6) and s.getsockname()[1] in ports:
                        yield of_socket(s, count[0], fd)


def of_socket(s: socket.socket, waits: int, what: T, more: int = 0) -> Held[T]:
    """What is held for a TCP connection, with ``more`` bytes that the process holds for it. Raises ``OSError``."""
    (taken,) = struct.unpack_from("=Q", s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 128), _ACKNOWLEDGED_AT)
    numbers = _NUMBERS.unpack_from(s.getsockopt(socket.SOL_SOCKET, SO_MEMINFO, 64))
    size = numbers[_READ] + numbers[_QUEUED] + more
    return Held(os.fstat(s.fileno()).st_ino, client_of(s.getpeername()[0]), waits, taken, size, what)


def has_gone(s: socket.socket) -> bool:
    """Whether the client at the other end has sent its last byte, read or not."""
    with contextlib.suppress(OSError):  # closed here
        return s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] in (_CLOSED, _HALF_CLOSED)
    return True


def reset(one: Held[int]) -> None:
    """Ends a connection of ``held_by``, unless its descriptor has been reused."""
    with contextlib.suppress(OSError):  # closed meanwhile
        own = os.dup(one.what)
        try:
            if os.fstat(own).st_ino == one.number:
                disconnect(own)
        finally:
            os.close(own)


def _of_machine() -> int:
    """The most that all connections of the machine may hold; unlimited if the system does not tell."""
    try:
        with open("/proc/net/sockstat") as f:
            words = next(line for line in f if line.startswith("TCP:")).split()
        return int(words[words.index("mem") + 1]) * os.sysconf("SC_PAGE_SIZE") + PER_PROCESSOR * (os.cpu_count() or 1)
    except (OSError, StopIteration, ValueError):
        return sys.maxsize
