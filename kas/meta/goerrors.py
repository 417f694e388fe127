"""Go's error texts for file operations."""

from __future__ import annotations


def unreadable(path: str, error: OSError) -> str:
    """The error text of ``os.ReadFile``. In Go, opening a directory succeeds and only reading it fails."""
    return failed("read" if isinstance(error, IsADirectoryError) else "open", path, error)


def failed(verb: str, path: str, error: OSError) -> str:
    """The error text of a ``PathError``."""
    return f"{verb} {path}: {(error.strerror or str(error)).lower()}"
