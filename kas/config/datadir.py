"""Recognizing and creating data directories."""

from __future__ import annotations

from pathlib import Path

from kas.meta.files import write_whole

FORMAT = "1"
# Those of its files that a start reads; ``pki`` has more.
_READ = ("format", "lock", "admin.token", "admin.kubeconfig")


class StartError(Exception):
    """The server cannot start; the message is one line."""


def check_data_dir(path: Path) -> bool:
    """Return True for a data directory, False for a directory that may become one. Raises StartError for any other,
    and for a pipe in the place of one of its files, as opening that would wait for a writer."""
    for file in (*(path / name for name in _READ), *path.glob("pki/*")):
        if file.is_fifo():
            raise StartError(f"--data-dir: {file} is a pipe")
    try:
        have = (path / "format").read_text().strip()
    except FileNotFoundError:
        if any(p.name not in ("lock", "format.new") for p in path.iterdir()):
            raise StartError(f"--data-dir: {path} is not empty and not a kas data directory") from None
        return False
    if have != FORMAT:
        raise StartError(f"--data-dir: {path} has format {have}; this kas knows format {FORMAT}")
    return True


def claim_data_dir(path: Path) -> bool:
    """Make a directory, whose lock must be held, a data directory; return whether it was not one before. Raises StartError."""
    if check_data_dir(path):
        return False
    write_whole(path / "format", f"{FORMAT}\n".encode(), 0o644)
    return True
