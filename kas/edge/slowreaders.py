"""Ends connections whose clients do not take what is sent to them, when all of these hold more of the kernel's memory than a process may.

The kernel keeps up to 4 MiB of an answer for each connection (``net.ipv4.tcp_wmem``), which is what makes large answers cheap, and gives up
a client that takes nothing after a minute (``descriptors.hold_little``). Thousands of them fill what all connections of the machine have in
common (``net.ipv4.tcp_mem``) in a part of that. So beyond ``BUDGET`` those that would need more than a minute for what lies before them, at
the pace of the last seconds, are reset, the client's that holds most first. Who takes what is sent to him is not among them.
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

BUDGET = 64 << 20  # of a process: a worker, or the TLS front
LOOK_EVERY_S = 1.0
# How long a client is watched before it is judged: shorter when more is held, and never by less than about one look.
WATCHED_S, SOONEST_S = 5.0, 0.9
TAKES_S = 60.0  # who needs no longer for what lies before him takes it
PER_PROCESSOR = 1 << 20  # what the kernel may have put aside for each, and does not tell
_CLOSED, _HALF_CLOSED = 7, 8  # of tcpi_state, its first byte: reset, or the peer has said its last
SO_MEMINFO, _NUMBERS = 55, struct.Struct("=8I")  # <asm-generic/socket.h>, <linux/sock_diag.h>
_READ, _QUEUED = 0, 5  # SK_MEMINFO_RMEM_ALLOC and SK_MEMINFO_WMEM_QUEUED: what has come and was not read, and what was not taken
_ACKNOWLEDGED_AT = 120  # tcpi_bytes_acked, 64 bits
T = TypeVar("T")


class Held(NamedTuple, Generic[T]):
    """What is kept for a connection. ``waits``: bytes that the client has not taken; ``taken``: those that it ever has; ``size``: all the
    memory that goes with it. ``what`` it is, by the name of who tells."""

    number: int  # no other connection's, the system gives each once
    client: str
    waits: int
    taken: int
    size: int
    what: T


class SlowReaders(Generic[T]):
    """``held()`` tells of the connections that have something to be taken, ``cut`` ends one of them; both are called in a thread."""

    def __init__(self, held: Callable[[], Iterable[Held[T]]], cut: Callable[[Held[T]], object]) -> None:
        self._held, self._cut = held, cut
        self._seen: dict[int, deque[tuple[float, int]]] = {}  # when, and how much had been taken by then

    def pressed(self) -> bool:
        """Whether there is a reason to look: not while all connections of the machine hold less than the budget. Some microseconds."""
        if _of_machine() >= BUDGET:
            return True
        self._seen = {}
        return False

    async def due(self) -> None:
        """To be called every ``LOOK_EVERY_S``."""
        if self.pressed():
            await asyncio.to_thread(self.look)

    def look(self) -> int:
        """Ends what has to end; returns how many. For a thread: a microsecond a descriptor, and some more of who takes nothing."""
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
        """Seconds until all would be taken, as it was for the last ``window``; 0 for who has not been watched so long."""
        for at, taken in reversed(self._seen[one.number]):
            if now - at >= window:
                return one.waits * (now - at) / (one.taken - taken) if one.taken != taken else math.inf
        return 0.0


def _first(stuck: Iterable[tuple[float, Held[T]]]) -> Iterator[Held[T]]:
    """Which of them end so that the budget is kept: of the client that holds most the one that needs longest, and so on."""
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
    """The connections of this process to its own ``ports`` that hold something; ``what`` is the descriptor."""
    count = array("i", [0])
    for fd in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError):  # it is closed, or listens, or is no socket
            if fcntl.ioctl(fd, termios.TIOCOUTQ, count) == 0 and count[0]:
                # A duplicate: the number may mean something else in the next moment.
                with socket.socket(fileno=os.dup(fd)) as s:
                    if s.family in (socket.AF_INET, socket.AF_INET6) and s.getsockname()[1] in ports:
                        yield of_socket(s, count[0], fd)


def of_socket(s: socket.socket, waits: int, what: T, more: int = 0) -> Held[T]:
    """What is kept for a connection over TCP, with ``more`` bytes that are its, too. Raises ``OSError``."""
    (taken,) = struct.unpack_from("=Q", s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 128), _ACKNOWLEDGED_AT)
    numbers = _NUMBERS.unpack_from(s.getsockopt(socket.SOL_SOCKET, SO_MEMINFO, 64))
    size = numbers[_READ] + numbers[_QUEUED] + more
    return Held(os.fstat(s.fileno()).st_ino, client_of(s.getpeername()[0]), waits, taken, size, what)


def has_gone(s: socket.socket) -> bool:
    """Whether the client at the other end of a connection has said its last, read or not."""
    with contextlib.suppress(OSError):  # closed here
        return s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] in (_CLOSED, _HALF_CLOSED)
    return True


def reset(one: Held[int]) -> None:
    """Ends a connection of ``held_by``, unless its descriptor is another's by now."""
    with contextlib.suppress(OSError):  # gone meanwhile
        own = os.dup(one.what)
        try:
            if os.fstat(own).st_ino == one.number:
                disconnect(own)
        finally:
            os.close(own)


def _of_machine() -> int:
    """The most that all connections of the machine may hold; no end to it where nothing tells."""
    try:
        with open("/proc/net/sockstat") as f:
            words = next(line for line in f if line.startswith("TCP:")).split()
        return int(words[words.index("mem") + 1]) * os.sysconf("SC_PAGE_SIZE") + PER_PROCESSOR * (os.cpu_count() or 1)
    except (OSError, StopIteration, ValueError):
        return sys.maxsize
