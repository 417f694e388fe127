"""Detects stores that are still being made beside their final place (``kas.storage``)."""

from __future__ import annotations

from pathlib import Path

COPYING, RESTORING = "store.copying", "store.restoring"
MADE_BY = {COPYING: "kas storage copy, or kas snapshot restore,", RESTORING: "kas snapshot restore"}


def unfinished(data_dir: Path) -> str:
    """Returns why a server must not begin an empty store in this directory; "" where it may. A repeated copy moves
    the finished store back to the place where it was made while it catches up, so that directory may hold the whole content."""
    if (data_dir / "store").exists():
        return ""
    left = next((name for name in MADE_BY if (data_dir / name).exists()), "")
    return left and f"{data_dir / left} is an incomplete store: {MADE_BY[left]} was interrupted: run it again, or remove what it left"
