"""The standard streams of a process that runs for long: who reads them may be gone or stand still, a disk may be full, and there may be
none."""

from __future__ import annotations

import contextlib
import io
import os
import select
import stat
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer as Buffer

STANDARD_OUTPUT = "standard output"
PATIENCE_S = 0.5  # whoever reads may be busy for a moment, and nothing be lost for that

# What would end a line, or tell a terminal to do something.
CONTROLS = {c: chr(c).encode("unicode_escape").decode() for c in (*range(32), *range(127, 160), 0x2028, 0x2029) if c != ord("\t")}


def open_standard_streams() -> None:
    """Opens what is closed of descriptors 0 to 2, on the null device. Else the next file or socket has that number, and what is logged
    goes into a database."""
    for fd, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(fd)
        except OSError:
            os.dup2(os.open(os.devnull, os.O_RDWR), fd)  # the lowest number that is free is this one, and then dup2 does nothing
            os.set_inheritable(fd, True)
            setattr(sys, name, open(fd, mode, closefd=False))  # noqa: SIM115 — as long as the process lives


class Named(io.FileIO):
    """A descriptor whose errors name it, as those of a file do."""

    def __init__(self, fd: int, name: str) -> None:
        super().__init__(fd, "w", closefd=False)
        self._called = name

    def write(self, data: Buffer) -> int:
        """Raises OSError with that name as its file's."""
        try:
            return super().write(data)
        except OSError as e:
            raise OSError(e.errno, e.strerror, self._called) from None


def name_standard_output() -> None:
    """From now on what ``print`` cannot write is told from all else that may fail. One that a test or a program has put there stays."""
    old = sys.__stdout__
    if old is not None and sys.stdout is old:
        raw = Named(old.fileno(), STANDARD_OUTPUT)
        out = raw if old.write_through else io.BufferedWriter(raw)  # nothing is kept where the interpreter was told so
        sys.stdout = io.TextIOWrapper(
            out, old.encoding, old.errors, line_buffering=old.line_buffering, write_through=old.write_through
        )  # fmt: skip


def say(text: str, stream: TextIO | None = None) -> None:
    """Writes a line, on standard error where no stream is named. One that cannot be written is dropped, and nothing of it kept: no word
    is worth a server."""
    stream = stream or sys.stderr
    if stream is not None:
        with contextlib.suppress(OSError):
            put(stream, f"{text}\n")


def put(stream: TextIO, text: str) -> None:
    """Writes lines. Raises OSError where they cannot be, and for one that has no descriptor what its ``write`` does. Where nobody reads a
    pipe, a socket or a terminal any more that is waited for once, and briefly."""
    try:
        fd = stream.fileno()
    except OSError:  # of ``io``, for what is in memory
        stream.write(text)
        stream.flush()
    else:
        outlet(fd).write(text.encode(errors="backslashreplace"))


def outlet(fd: int) -> Outlet:
    """That of a descriptor."""
    found, now = _outlets.get(fd), os.fstat(fd)
    is_at = (os.getpid(), now.st_dev, now.st_ino)  # a process that was forked has its own, and a stream may be put elsewhere
    if found is None or found[0] != is_at:
        found = _outlets[fd] = is_at, Outlet(fd, now.st_mode)
    return found[1]


class Blocked(OSError):
    """Who reads takes nothing more."""

    def __init__(self) -> None:
        super().__init__("logging blocked")


class Outlet:
    """A descriptor that several processes write lines to. A pipe, a socket or a terminal that takes nothing more is waited for
    ``PATIENCE_S``, and then no longer until it takes something again: with what it holds up, a server would stand still for as long as
    the reader does."""

    def __init__(self, fd: int, mode: int) -> None:
        self._fd, self._stuck, self._torn = fd, False, False
        self._send: Callable[[memoryview], int] = lambda data: os.write(fd, data)
        if stat.S_ISSOCK(mode):
            import socket  # mostly it is none

            end = socket.socket(fileno=os.dup(fd))
            self._send = lambda data: end.send(data, socket.MSG_DONTWAIT)
        elif stat.S_ISFIFO(mode) or stat.S_ISCHR(mode):
            try:
                # Opened anew: whether it waits belongs to what was opened, which others have, too.
                own = os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
                self._send = lambda data: os.write(own, data)
            except OSError:  # nobody reads it, or the terminal is another user's
                self._send = self._guarded

    def write(self, data: bytes) -> None:
        """Raises OSError, of which ``Blocked`` is one."""
        until = 0.0
        left = memoryview(b"\n" + data if self._torn else data)
        while left:
            try:
                sent = self._send(left)
                self._torn, self._stuck = sent < len(left), False
                left = left[sent:]
            except BlockingIOError:
                now = time.monotonic()
                until = until or (now if self._stuck else now + PATIENCE_S)
                if now >= until or not self._takes(until - now):
                    self._stuck = True
                    raise Blocked from None

    def _guarded(self, data: memoryview) -> int:
        if not self._takes(0):
            raise BlockingIOError
        return os.write(self._fd, data[: select.PIPE_BUF])

    def _takes(self, within_s: float) -> bool:
        look = select.poll()
        look.register(self._fd, select.POLLOUT)
        return bool(look.poll(within_s * 1000))


_outlets: dict[int, tuple[tuple[int, int, int], Outlet]] = {}


def nobody_reads(stream: TextIO) -> bool:
    """Whether this is a pipe or a socket whose other end is closed."""
    look = select.poll()
    look.register(stream.fileno(), 0)
    return bool(look.poll(0))


def flush_standard_streams() -> None:
    """Writes what is buffered, where it can be written; before ``os._exit``."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
