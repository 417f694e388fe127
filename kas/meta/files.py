"""Atomic writes of files, and related helpers."""

from __future__ import annotations

import os
from pathlib import Path


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


def remove_tree(path: Path) -> None:
    """Removes a directory tree, if it exists; what cannot be removed stays."""
    if path.exists():
        import shutil  # imports a quarter of a MiB of compression modules that are rarely needed

        shutil.rmtree(path, ignore_errors=True)


def private(path: str, flags: int) -> int:
    """An ``opener`` for ``open``: new files are readable by their owner only, whatever the umask. Anyone who can read a file can lock it.
    """
    return os.open(path, flags, 0o600)
