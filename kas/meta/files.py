"""Files that are written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path


def write_whole(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Writes a file in the place of the one there is, if any. Readers, and who comes after a kill or a power cut, find one of the two and
    never a part of it. What was half written lies beside it as ``<name>.new``. Raises ``OSError``."""
    new = path.with_name(path.name + ".new")
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(fd, "wb") as f:
        f.write(data)
        f.flush()
        os.fsync(f.fileno())  # else the name may be on disk before what it names
    os.replace(new, path)
