"""Files that are written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path


def write_whole(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Writes a file in the place of the one there is, if any. Readers, and who comes after a kill or a power cut, find one of the two and
    never a part of it. What was half written lies beside it as ``<name>.new``. Raises ``OSError`` that names the file."""
    new = path.with_name(path.name + ".new")
    try:
        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        with os.fdopen(fd, "wb") as f:
            f.write(data)
            f.flush()
            os.fsync(f.fileno())  # else the name may be on disk before what it names
        os.replace(new, path)
    except OSError as e:  # who fails to write has only a descriptor
        raise OSError(e.errno, e.strerror, str(path)) from None


def remove_tree(path: Path) -> None:
    """Removes the directory and what is in it, where it is there; what cannot be removed stays."""
    if path.exists():
        import shutil  # with a quarter of a MiB of compression, which hardly anybody here uses

        shutil.rmtree(path, ignore_errors=True)


def private(path: str, flags: int) -> int:
    """An ``opener``: a file that it makes is its owner's alone, whatever the umask. Locks may be held by whoever can read them."""
    return os.open(path, flags, 0o600)
