"""Atomic writes of files, bounded reads of those that others write, and related helpers."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

CONFIGURATION_BYTES = 16 << 20


def write_whole(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Writes a file atomically, replacing an existing one.

    Readers, also after a kill or a power failure, see either the old or the new content. A partial write is left beside it as
    ``<name>.new``. Raises ``OSError`` that names the file.
    """
    new = path.with_name(path.name + ".new")
    try:
        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        with os.fdopen(fd, "wb") as f:
            f.write(data)
            f.flush()
            os.fsync(f.fileno())  # otherwise the name may reach the disk before the content
        os.replace(new, path)
    except OSError as e:  # an error of write() does not name the file
        raise OSError(e.errno, e.strerror, str(path)) from None


def read_configuration(path: str) -> bytes:
    """Reads a file that may be replaced while the server runs. Raises ``OSError`` for one that is not regular, such as a pipe, which
    would block until somebody writes to it, and for more than ``CONFIGURATION_BYTES``.
    """
    with open(path, "rb", opener=_without_blocking) as f:
        found = os.fstat(f.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", path)
        data = f.read(CONFIGURATION_BYTES + 1)
    if len(data) > CONFIGURATION_BYTES:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)
    return data


def _without_blocking(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)


def remove_tree(path: Path) -> None:
    """Removes a directory tree, if it exists; what cannot be removed stays."""
    if path.exists():
        import shutil  # imports a quarter of a MiB of compression modules that are rarely needed

        shutil.rmtree(path, ignore_errors=True)


def private(path: str, flags: int) -> int:
    """An ``opener`` for ``open``: new files are readable by their owner only, whatever the umask. Anyone who can read a file can lock it.
    """
    return os.open(path, flags, 0o600)
