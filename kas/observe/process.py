"""What a process knows of itself."""

from __future__ import annotations

import os
import time
from pathlib import Path


def age_s() -> float:
    """Seconds since this process was made, by fork or by the shell: before the interpreter began to load (/proc/self/stat, field 22)."""
    ticks = Path("/proc/self/stat").read_text().rpartition(") ")[2].split()[19]
    return time.clock_gettime(time.CLOCK_BOOTTIME) - int(ticks) / os.sysconf("SC_CLK_TCK")
