"""Waits for what a controller does in its own time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def until(check: Callable[[], Any], seconds: float = 120.0) -> Any:
    """Returns the first true value of ``check()``; fails if there is none in time."""
    end = time.monotonic() + seconds
    while True:
        value = check()
        if value:
            return value
        assert time.monotonic() < end, "did not happen in time"
        time.sleep(0.02)
