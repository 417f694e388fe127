"""The current time as stored in objects."""

from __future__ import annotations

import time

_second = (0, "")  # the last second formatted, since every write needs the time


def now() -> str:
    """The current time in the format of metav1.Time: UTC, in whole seconds."""
    global _second
    whole = int(time.time())
    shown = _second
    if shown[0] != whole:
        shown = _second = whole, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(whole))
    return shown[1]
