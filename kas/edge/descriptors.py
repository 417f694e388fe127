"""What keeps the listeners from running out of descriptors, and gets them out of it.

Three steps, because the TLS listener below takes connections without a bound until their handshakes are done (10 s at most; only then
do they count), and once accepting has failed it never accepts again, nor closes what it has (granian 2.8.7):

- a connection that says nothing stays in the kernel (``TCP_DEFER_ACCEPT``);
- when few descriptors are left, the kernel drops what opens new connections (a filter on the listening socket): clients try again;
- when connections wait for ``STUCK_S`` though there is room for them, or none is left at all, and not one was accepted in the second half
  of that, the worker ends and is replaced. (That some wait at every look says nothing: so they do where they come faster than a busy
  machine takes them.)
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

SILENT_S = 3600  # how long the kernel keeps a connection that says nothing
# What the kernel keeps of what a client sent and nobody has read yet (it takes up to twice as much, its own records included), and how long
# it tries to be rid of what it has to send.
RECEIVED_BYTES, UNTAKEN_MS = 128 << 10, 60_000
UNSENT_BYTES = 512 << 10  # what it takes of an answer beyond what is on its way to the client
STUCK_S = 3.0
# A listener takes some ten thousand connections a second at most; with room for those of a quarter of a second each fifth look will do.
SELDOM, COMING = 5, 4096
LOOK_S, EMPTY_LOOKS = 0.02, 3  # how often a socket's buffer is seen empty until it is taken for sent
TAKES_S = 3.0  # whose other side has taken nothing for so long is not waited for
SO_ATTACH_FILTER, SO_DETACH_FILTER = 26, 27  # <asm-generic/socket.h>
BPF_RET = 0x06


def unsent(fds: Iterable[int] | None = None) -> set[int]:
    """Which of the process's sockets, or of those in ``fds``, hold bytes that the other side has not taken."""
    found = set()
    count = array("i", [0])
    for fd in map(int, os.listdir("/dev/fd")) if fds is None else fds:
        try:
            if stat.S_ISSOCK(os.fstat(fd).st_mode) and fcntl.ioctl(fd, termios.TIOCOUTQ, count) == 0 and count[0]:
                # Of a listening socket that was made deaf, and of a connection that was reset, the count means nothing.
                with socket.socket(fileno=os.dup(fd)) as s:
                    s.getpeername()
                found.add(fd)
        except OSError:  # closed meanwhile, a listening one, or nobody is at its other end
            continue
    return found


async def sent() -> None:
    """Waits until what the sockets hold now has been taken, but not for those who take nothing (``TAKES_S``). Of an answer that is given to
    the listener as a whole most is in its own buffers, which it drops when it is stopped (hyper's graceful shutdown, granian 2.8.7); while
    there is something in them the kernel's are never empty for long."""
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
    """Which sockets hold what the other side has not taken, and what changes when it takes something."""
    return {fd: _taken(fd) for fd in unsent()}


def _taken(fd: int) -> int:
    """What tells whether the other side takes something: how many bytes it has acknowledged (tcpi_bytes_acked), of a socket of this machine
    how many lie before it."""
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(fd)) as s:
        if s.family != socket.AF_UNIX:
            return int(struct.unpack_from("=Q", s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 128), 120)[0])
        count = array("i", [0])
        fcntl.ioctl(fd, termios.TIOCOUTQ, count)
        return count[0]
    return 0


def wait_for_words(s: socket.socket) -> None:
    """Connections to the listening socket ``s`` are accepted once they have sent something, where the system can wait for it."""
    if hasattr(socket, "TCP_DEFER_ACCEPT"):
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, SILENT_S)


def hold_little(s: socket.socket) -> None:
    """The kernel keeps less than it likes to of what clients of the listening socket ``s`` sent and nobody has read yet, and of answers
    that a client does not take half a MiB, no longer than a minute: the connection ends; so does that of one that is gone. (A client that
    asks again and again and reads nothing, known or not, had 4 MB of the kernel for as long as it liked. To keep less of answers by a
    smaller buffer, 256 KiB or 1 MiB, bounds what is on its way as well, and made a list of 3.4 MB a third or a quarter dearer to everybody;
    this does not.)"""
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVED_BYTES)
    if hasattr(socket, "TCP_NOTSENT_LOWAT"):
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNTAKEN_MS)


class Gate:
    """Shuts out new connections while more than ``most`` descriptors are open. ``glance`` is called some twenty times a second, in
    the loop; ``give_up`` once, when a listener does not accept any more. The ``sockets`` are the listeners'."""

    def __init__(self, sockets: Sequence[socket.socket], most: int, give_up: Callable[[], None]) -> None:
        self._sockets, self._most, self._give_up = sockets, most, give_up
        self.shut = False
        self._stuck_since: float | None = None
        self._there: set[int] | None = None  # sockets that were open when it had been half as long
        self._near, self._glances = True, 0
        self._closed = False

    def close(self) -> None:
        """Nobody is let in any more: the listeners are about to stop. Where the system has no such filter, who comes waits till the end."""
        self._closed = True
        with contextlib.suppress(OSError):
            self._filter(True)

    def glance(self) -> None:
        """Looks, but only now and then while there is room for more than can come in between."""
        self._glances += 1
        if self._closed:
            return
        if self._near or self._glances % SELDOM == 0:
            self.look()

    def look(self) -> None:
        """Some microseconds: the lowest free number is about the count of those in use, and never more."""
        try:
            lowest = os.dup(self._sockets[0].fileno()) if self._sockets else 0
            if lowest:
                os.close(lowest)
        except OSError:
            lowest = sys.maxsize
        self._near = lowest > self._most - COMING
        if self.shut != (lowest > (self._most * 7 // 8 if self.shut else self._most)):
            self._turn()
        # Between the two a listener waits for its own connections to end, as it should.
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
        """Whether a connection to one of the listeners is open that was not ``before``."""
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
    """The sockets of this process by the numbers that the system gives each of them once, with a descriptor; none where no descriptor is
    left to look with. A microsecond or two each."""
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
    """0 for a socket that has none, or is gone."""
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(fd)) as s:
        if s.family in (socket.AF_INET, socket.AF_INET6):
            return int(s.getsockname()[1])
    return 0


def _waiting(s: socket.socket) -> int:
    """How many connections wait to be accepted (tcpi_unacked of a listening socket)."""
    return int(struct.unpack_from("=I", s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104), 8 + 4 * 4)[0])
