"""The time as objects carry it."""

from __future__ import annotations

import time

_second = (0, "")  # the last one formatted: every write asks for the time


def now() -> str:
    """Now as metav1.Time prints it: UTC, to the second."""
    global _second
    whole = int(time.time())
    shown = _second
    if shown[0] != whole:
        shown = _second = whole, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(whole))
    return shown[1]
