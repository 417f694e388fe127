"""The standard streams of a process that runs for long: who reads them may be gone, a disk may be full, and there may be none."""

from __future__ import annotations

import contextlib
import os
import select
import sys
from typing import TextIO

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


def say(text: str, stream: TextIO | None = None) -> None:
    """Writes a line, on standard error where no stream is named. One that cannot be written is dropped, and nothing of it kept: no word
    is worth a server."""
    stream = stream or sys.stderr
    data = f"{text}\n".encode(errors="backslashreplace")
    with contextlib.suppress(OSError):
        while stream is not None and data:
            data = data[os.write(stream.fileno(), data) :]


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
