"""Keeps the listeners from running out of file descriptors, and recovers from it.

Three steps are needed. The TLS listener accepts connections without a bound until their handshakes are done (10 s at
most; only then do they count), and once accepting has failed it never accepts again, nor closes what it has (granian
2.8.7):

- A connection that sends nothing stays in the kernel (``TCP_DEFER_ACCEPT``).
- When few descriptors are left, the kernel drops packets that open connections (a filter on the listening socket),
  and clients try again.
- The worker ends and is replaced when connections wait for ``STUCK_S`` although there is room for them, or no
  descriptor is left at all, and none was accepted in the second half of that time. (That some wait at every look
  shows nothing: that is so whenever they come faster than a busy machine accepts them.)
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import socket
import stat
import struct
import sys
import termios
from array import array
from collections.abc import Callable, Iterable, Sequence
from time import monotonic

log = logging.getLogger("kas.edge")

SILENT_S = 3600  # how long the kernel keeps a connection that sends nothing
# How much the kernel keeps of what a client sent and nobody has read (it takes up to twice as much, its own records
# included), and how long it tries to deliver what was sent to the client.
RECEIVED_BYTES, UNTAKEN_MS = 128 << 10, 60_000
UNSENT_BYTES = 512 << 10  # how much the kernel takes of a response beyond what is in flight to the client
STUCK_S = 3.0
# A listener accepts some ten thousand connections a second at most. While there is room for those of a quarter of a
# second, every fifth look is enough.
SELDOM, COMING = 5, 4096
LOOK_S, EMPTY_LOOKS = 0.02, 3  # seconds between looks at a socket's buffer, and how often it must be seen empty to count as sent
TAKES_S = 3.0  # a peer that has taken nothing for so long is not waited for
SO_ATTACH_FILTER, SO_DETACH_FILTER = 26, 27  # <asm-generic/socket.h>
BPF_RET = 0x06


def unsent(fds: Iterable[int] | None = None) -> set[int]:
    """The sockets of the process, or those of ``fds``, with bytes that the peer has not taken."""
    found = set()
    count = array("i", [0])
    for fd in map(int, os.listdir("/dev/fd")) if fds is None else fds:
        try:
            if stat.S_ISSOCK(os.fstat(fd).st_mode) and fcntl.ioctl(fd, termios.TIOCOUTQ, count) == 0 and count[0]:
                # For a listening socket that was shut down, and for a connection that was reset, the count has no
                # meaning.
                with socket.socket(fileno=os.dup(fd)) as s:
                    s.getpeername()
                found.add(fd)
        except OSError:  # closed meanwhile, listening, or without a peer
            continue
    return found


async def sent() -> None:
    """Waits until the peers have taken what the sockets hold now, apart from peers that take nothing for ``TAKES_S``.

    A response that was given to the listener as a whole is mostly in the listener's own buffers, which it drops when
    it is stopped (hyper's graceful shutdown, granian 2.8.7). While they are not empty the kernel's buffers are never
    empty for long.
    """
    waiting, began = dict.fromkeys(unsent(), EMPTY_LOOKS), monotonic()
    taken = {fd: (_taken(fd), began) for fd in waiting}
    while waiting:
        await asyncio.sleep(LOOK_S)
        busy, now = unsent(waiting), monotonic()
        for fd in busy:
            if (much := _taken(fd)) != taken[fd][0]:
                taken[fd] = much, now
        left = {fd: EMPTY_LOOKS if fd in busy else n - 1 for fd, n in waiting.items() if fd in busy or n > 1}
        waiting = {fd: n for fd, n in left.items() if now - taken[fd][1] < TAKES_S or fd not in busy}


def held() -> dict[int, int]:
    """The sockets with data that the peer has not taken, each with a number that changes when the peer takes
    something."""
    return {fd: _taken(fd) for fd in unsent()}


def _taken(fd: int) -> int:
    """A number that changes when the peer takes something: the bytes that it has acknowledged (tcpi_bytes_acked), or
    for a Unix socket the bytes that are pending."""
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(fd)) as s:
        if s.family != socket.AF_UNIX:
            return int(struct.unpack_from("=Q", s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 128), 120)[0])
        count = array("i", [0])
        fcntl.ioctl(fd, termios.TIOCOUTQ, count)
        return count[0]
    return 0


def defer_accept(s: socket.socket) -> None:
    """Makes connections to the listening socket ``s`` be accepted only once they have sent something, where the
    system supports it."""
    if hasattr(socket, "TCP_DEFER_ACCEPT"):
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, SILENT_S)


def limit_buffers(s: socket.socket) -> None:
    """Limits what the kernel holds for each client of the listening socket ``s``: of what the client sent and nobody
    has read, and of responses that it does not take, half a MiB and no longer than a minute. After that the
    connection ends, also that of a client that is gone.

    (Before, a client that kept sending requests and read nothing, authenticated or not, held 4 MB of kernel memory
    for as long as it liked. A smaller send buffer, 256 KiB or 1 MiB, would also bound what is in flight and made a
    list of 3.4 MB cost a third or a quarter more for every client; this does not.)
    """
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVED_BYTES)
    if hasattr(socket, "TCP_NOTSENT_LOWAT"):
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNTAKEN_MS)


class DescriptorGate:
    """Shuts out new connections while more than ``most`` descriptors are open.

    ``sockets`` are the listeners'. ``check_sometimes`` is to be called some twenty times a second in the event loop.
    ``give_up`` is called once, when a listener no longer accepts.
    """

    def __init__(self, sockets: Sequence[socket.socket], most: int, give_up: Callable[[], None]) -> None:
        self._sockets, self._most, self._give_up = sockets, most, give_up
        self.shut = False
        self._stuck_since: float | None = None
        self._there: set[int] | None = None  # the sockets that were open at half of that time
        self._near, self._glances = True, 0
        self._closed = False

    def close(self) -> None:
        """Shuts out all new connections, because the listeners are about to stop. Where the system has no such
        filter, clients that connect wait until the end."""
        self._closed = True
        with contextlib.suppress(OSError):
            self._filter(True)

    def check_sometimes(self) -> None:
        """Looks, but only now and then while there is more room than can be taken in between."""
        self._glances += 1
        if self._closed:
            return
        if self._near or self._glances % SELDOM == 0:
            self.look()

    def look(self) -> None:
        """Takes some microseconds: the lowest free number is about the count of those in use, and never more."""
        try:
            lowest = os.dup(self._sockets[0].fileno()) if self._sockets else 0
            if lowest:
                os.close(lowest)
        except OSError:
            lowest = sys.maxsize
        self._near = lowest > self._most - COMING
        if self.shut != (lowest > (self._most * 7 // 8 if self.shut else self._most)):
            self._turn()
        # Between the two bounds a listener rightly waits for its own connections to end.
        if (lowest == sys.maxsize or lowest < self._most * 3 // 4) and any(_waiting(s) for s in self._sockets):
            self._stuck()
        else:
            self._stuck_since = self._there = None

    def _stuck(self) -> None:
        now = monotonic()
        if self._stuck_since is None:
            self._stuck_since = now
        elif self._there is None:
            if now - self._stuck_since > STUCK_S / 2:
                self._there = set(_open_sockets())
        elif now - self._stuck_since > STUCK_S:
            if self._accepted(self._there):
                self._stuck_since = self._there = None
                return
            log.error("connections have waited for %d s without being accepted: this worker ends", STUCK_S)
            self._stuck_since = sys.maxsize
            self._give_up()

    def _accepted(self, before: set[int]) -> bool:
        """Whether a connection to one of the listeners is open that is not in ``before``."""
        ports = {s.getsockname()[1] for s in self._sockets}
        return any(_local_port(fd) in ports for number, fd in _open_sockets().items() if number not in before)

    def _turn(self) -> None:
        self.shut = not self.shut
        log.warning("%s connections are accepted: %d descriptors may be open", "no new" if self.shut else "new", self._most)
        self._filter(self.shut)

    def _filter(self, shut: bool) -> None:
        for s in self._sockets:
            if shut:
                drop = array("B", struct.pack("HBBI", BPF_RET, 0, 0, 0))
                s.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HL", 1, drop.buffer_info()[0]))
            else:
                s.setsockopt(socket.SOL_SOCKET, SO_DETACH_FILTER, 0)


def _open_sockets() -> dict[int, int]:
    """The sockets of this process by inode, each with a descriptor; empty if no descriptor is left to look with.
    Takes a microsecond or two for each."""
    found = dict[int, int]()
    try:
        fds = os.listdir("/dev/fd")
    except OSError:
        return found
    for fd in map(int, fds):
        with contextlib.suppress(OSError):  # closed meanwhile
            at = os.fstat(fd)
            if stat.S_ISSOCK(at.st_mode):
                found[at.st_ino] = fd
    return found


def _local_port(fd: int) -> int:
    """The local port of a socket; 0 if it has none, or is closed."""
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(fd)) as s:
        if s.family in (socket.AF_INET, socket.AF_INET6):
            return int(s.getsockname()[1])
    return 0


def _waiting(s: socket.socket) -> int:
    """How many connections wait to be accepted (tcpi_unacked of a listening socket)."""
    return int(struct.unpack_from("=I", s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104), 8 + 4 * 4)[0])
