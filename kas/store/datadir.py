"""The data directory: making it private, and keeping a second kas out of it."""

from __future__ import annotations

import fcntl
import os

from kas.store import Locked, StoreError


def lock_data_dir(path: str) -> int:
    """Makes the directory if need be (mode 0700) and takes its lock; returns the descriptor that holds it.

    The lock belongs to the supervisor (or to a single process without one) and ends with it, also by ``kill -9``. Workers
    must not inherit the descriptor. Raises ``Locked`` with the holder's pid, ``StoreError`` when the directory cannot be used.
    """
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
        fd = os.open(os.path.join(path, "kas.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as e:
        raise StoreError(f"data directory {path}: {e.strerror}") from e
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        holder = os.read(fd, 32).decode("ascii", "replace").strip() or "unknown"
        os.close(fd)
        raise Locked(f"data directory {path} is in use by another kas (pid {holder})") from None
    os.ftruncate(fd, 0)
    os.write(fd, f"{os.getpid()}\n".encode())
    return fd
