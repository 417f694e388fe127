"""Stores that are being made beside the place that they take when they are whole (``kas.storage``)."""

from __future__ import annotations

from pathlib import Path

COPYING, RESTORING = "store.copying", "store.restoring"
MADE_BY = {COPYING: "kas storage copy, or kas snapshot restore,", RESTORING: "kas snapshot restore"}


def unfinished(data_dir: Path) -> str:
    """Why a server must not begin an empty store in this directory; "" where it may. One that was copied goes back to where it was made
    for what happened since, so that its whole content may be there."""
    if (data_dir / "store").exists():
        return ""
    left = next((name for name in MADE_BY if (data_dir / name).exists()), "")
    return left and f"{data_dir / left} is half a store: {MADE_BY[left]} was interrupted: run it again, or remove what it left"
