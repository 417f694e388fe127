"""Where the front and the workers meet: Unix sockets in a directory that only their user can enter.

A process that could connect to a worker could claim to be the front, so the directory has mode 0700. Addresses go
through the open directory (``/proc/self/fd``), because a Unix socket's address is short (107 bytes) and paths of
data directories are not.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path


class Rendezvous:
    """The sockets' addresses. The supervisor makes it before it forks, so that all processes have the same ``fd`` of
    the directory, and with it the same addresses."""

    def __init__(self, path: Path) -> None:
        path.mkdir(mode=0o700)
        self.path = path
        self.fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)

    def worker(self, index: int) -> str:
        """Where a worker accepts connections."""
        return self._at(f"worker-{index}")

    def streams(self, index: int) -> str:
        """Where a worker accepts connections that ask for SPDY."""
        return self._at(f"streams-{index}")

    def introductions(self, index: int) -> str:
        """Where a worker is told about connections."""
        return self._at(f"introductions-{index}")

    def connection(self) -> str:
        """A new address for one connection, which cannot be guessed and never repeats."""
        return self._at(secrets.token_hex(16))

    def _at(self, name: str) -> str:
        return f"/proc/self/fd/{self.fd}/{name}"


def free(address: str) -> None:
    """Frees an address, also one left by a process that was killed."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(address)
