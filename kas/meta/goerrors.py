"""How Go tells why a file could not be read."""

from __future__ import annotations


def unreadable(path: str, error: OSError) -> str:
    """The text of ``os.ReadFile``'s error. To Go, a directory can be opened and only not be read."""
    return failed("read" if isinstance(error, IsADirectoryError) else "open", path, error)


def failed(verb: str, path: str, error: OSError) -> str:
    """The text of a ``PathError``."""
    return f"{verb} {path}: {(error.strerror or str(error)).lower()}"
