"""Counts the requests being served, so that shutting down can wait for them."""

from __future__ import annotations

import asyncio

from kas.edge.http import Request
from kas.filters.chain import Filter


class WaitGroup:
    """``wait`` returns once no request that is not long-running is being served."""

    def __init__(self) -> None:
        self.serving: set[int] = set()
        self._idle: asyncio.Event | None = None

    async def wait(self, timeout_s: float) -> bool:
        if not self.serving:
            return True
        self._idle = asyncio.Event()
        try:
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()
            return True
        except TimeoutError:
            return False

    def filter(self) -> Filter:
        serving = self.serving

        def before(req: Request) -> None:
            if not req.long_running:
                serving.add(id(req))

        def release(req: Request) -> None:
            serving.discard(id(req))
            if self._idle is not None and not serving:
                self._idle.set()

        return Filter("wait_group", before, None, release)
