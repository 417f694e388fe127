"""Choice of node ports (upstream ``pkg/registry/core/service/portallocator``).

A port is taken exactly if its key under ``ROOT`` exists; the key is written in the same commit as the Service.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable

from kas.kinds.core.service.allocation.addresses import AllocationError
from kas.observe import counted

ROOT = "/registry/ranges/servicenodeports/"
FULL = "range is full"
TAKEN = "provided port is already allocated"
BAND_MIN, BAND_MAX, BAND_STEP = 16, 128, 32  # KEP-3668
RANDOM_TRIES = 16
DRY_RUN_FIRST = 32769


def key(port: int) -> str:
    """Return the key in the store whose existence marks the port as taken."""
    return f"{ROOT}{port}"


class PortChoice:
    """The ports of one operation: its own choices, and those that others have taken."""

    def __init__(self, bounds: tuple[int, int], taken: Callable[[int], bool], all_taken: Callable[[], set[int]], dry_run: bool) -> None:
        self.low, self.high = bounds
        self._taken, self._all_taken, self._dry_run = taken, all_taken, dry_run
        self.mine: set[int] = set()
        self._highest = 0
        self._free: tuple[list[int], list[int]] | None = None  # in the two bands of the range; searched once

    @property
    def dynamic(self) -> int:
        """The first port of the upper band, which is allocated first; those below are reserved for explicit requests."""
        size = self.high - self.low + 1
        return self.low + (0 if size <= BAND_MIN else min(max(size // BAND_STEP, BAND_MIN), BAND_MAX))

    def take(self, port: int) -> None:
        """Reserve the requested port. Raises AllocationError."""
        self._counted(counted.STATIC, self._take, port)

    def take_any(self) -> int:
        """Reserve a free port. A dry run returns numbers that cannot be real ports."""
        return self._counted(counted.DYNAMIC, self._take_any)

    def _counted(self, scope: str, take: Callable[..., int], *port: int) -> int:
        try:
            got = take(*port)
        except AllocationError:
            if not self._dry_run:
                counted.PORT_ERRORS.inc((scope,))
            raise
        if not self._dry_run:
            counted.PORTS.inc((scope,))
        return got

    def _take(self, port: int) -> int:
        if not self.low <= port <= self.high and not self._dry_run:
            raise AllocationError(f"provided port is not in the valid range. The range of valid ports is {self.low}-{self.high}")
        if port in self.mine or self._taken(port):
            raise AllocationError(TAKEN)
        return self._reserve(port)

    def _take_any(self) -> int:
        if self._dry_run:
            return self._reserve(self._highest + 1 if self.mine else DRY_RUN_FIRST)
        span = self.high - self.dynamic + 1
        for _ in range(RANDOM_TRIES if span > 0 and self._free is None else 0):
            port = self.dynamic + secrets.randbelow(span)
            if port not in self.mine and not self._taken(port):
                return self._reserve(port)
        if self._free is None:
            used = self._all_taken()
            bands = (self.dynamic, self.high), (self.low, self.dynamic - 1)
            dynamic, kept = ([p for p in range(low, high + 1) if p not in used] for low, high in bands)
            self._free = dynamic, kept
        for free in self._free:
            while free:
                i = secrets.randbelow(len(free))
                free[i], free[-1] = free[-1], free[i]
                port = free.pop()
                if port not in self.mine:
                    return self._reserve(port)
        raise AllocationError(FULL)

    def _reserve(self, port: int) -> int:
        self.mine.add(port)
        self._highest = max(self._highest, port)
        return port
