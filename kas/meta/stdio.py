"""Standard streams of a long-running process: their reader may be gone or stalled, a disk may be full, and a stream may be closed."""

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
PATIENCE_S = 0.5  # a reader may be busy for a moment; nothing should be lost because of that

# Characters that end a line or control a terminal -> their escapes.
CONTROLS = {c: chr(c).encode("unicode_escape").decode() for c in (*range(32), *range(127, 160), 0x2028, 0x2029) if c != ord("\t")}


def open_standard_streams() -> None:
    """Opens those of the descriptors 0 to 2 that are closed on the null device. Otherwise the next file or socket would get such a number,
    and logs would be written into, say, a database.
    """
    for fd, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(fd)
        except OSError:
            # open() returns the lowest free number, which is this one, and then dup2 does nothing
            os.dup2(os.open(os.devnull, os.O_RDWR), fd)
            os.set_inheritable(fd, True)
            setattr(sys, name, open(fd, mode, closefd=False))  # noqa: SIM115 — open for the life of the process


class Named(io.FileIO):
    """A writable descriptor whose errors carry a file name."""

    def __init__(self, fd: int, name: str) -> None:
        super().__init__(fd, "w", closefd=False)
        self._called = name

    def write(self, data: Buffer) -> int:
        """Writes ``data``. Raises OSError with the stream's name as its filename."""
        try:
            return super().write(data)
        except OSError as e:
            raise OSError(e.errno, e.strerror, self._called) from None


def name_standard_output() -> None:
    """Replaces ``sys.stdout`` so that failed writes of ``print`` can be told from other errors. A stdout that a test or a program has set
    stays.
    """
    old = sys.__stdout__
    if old is not None and sys.stdout is old:
        raw = Named(old.fileno(), STANDARD_OUTPUT)
        out = raw if old.write_through else io.BufferedWriter(raw)  # unbuffered if the interpreter was started so
        sys.stdout = io.TextIOWrapper(
            out, old.encoding, old.errors, line_buffering=old.line_buffering, write_through=old.write_through
        )  # fmt: skip


def say(text: str, stream: TextIO | None = None) -> None:
    """Writes a line to ``stream`` or standard error. A line that cannot be written is dropped: no message is worth a server."""
    stream = stream or sys.stderr
    if stream is not None:
        with contextlib.suppress(OSError):
            put(stream, f"{text}\n")


def put(stream: TextIO, text: str) -> None:
    """Writes lines. Raises OSError when that fails; a stream without a descriptor raises what its ``write`` does. When the reader of a
    pipe, socket or terminal has stalled, it waits once, and briefly.
    """
    try:
        fd = stream.fileno()
    except OSError:  # an in-memory stream
        stream.write(text)
        stream.flush()
    else:
        outlet(fd).write(text.encode(errors="backslashreplace"))


def outlet(fd: int) -> Outlet:
    """The ``Outlet`` of a descriptor, created on first use."""
    found, now = _outlets.get(fd), os.fstat(fd)
    is_at = (os.getpid(), now.st_dev, now.st_ino)  # a forked process has its own, and the descriptor may have been redirected
    if found is None or found[0] != is_at:
        found = _outlets[fd] = is_at, Outlet(fd, now.st_mode)
    return found[1]


class Blocked(OSError):
    """The reader has stalled."""

    def __init__(self) -> None:
        super().__init__("logging blocked")


class Outlet:
    """A descriptor to which several processes write lines.

    When a pipe, socket or terminal accepts nothing more, a write waits ``PATIENCE_S``; later writes do not wait until it accepts data
    again. Otherwise the server would stand still as long as its reader does.
    """

    def __init__(self, fd: int, mode: int) -> None:
        self._fd, self._stuck, self._torn = fd, False, False
        self._send: Callable[[memoryview], int] = lambda data: os.write(fd, data)
        if stat.S_ISSOCK(mode):
            import socket  # rarely needed

            end = socket.socket(fileno=os.dup(fd))
            self._send = lambda data: end.send(data, socket.MSG_DONTWAIT)
        elif stat.S_ISFIFO(mode) or stat.S_ISCHR(mode):
            try:
                # Reopened: O_NONBLOCK belongs to the open file description, which other processes share.
                own = os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
                self._send = lambda data: os.write(own, data)
            except OSError:  # it has no reader, or the terminal belongs to another user
                self._send = self._guarded

    def write(self, data: bytes) -> None:
        """Writes all of ``data``. Raises OSError; ``Blocked`` when the reader has stalled. After a partial write the next one starts on a
        new line.
        """
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


def has_no_reader(stream: TextIO) -> bool:
    """Whether the stream is a pipe or a socket whose other end is closed."""
    look = select.poll()
    look.register(stream.fileno(), 0)
    return bool(look.poll(0))


def flush_standard_streams() -> None:
    """Flushes standard output and error, ignoring errors; call it before ``os._exit``."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
