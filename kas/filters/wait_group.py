"""Counts the requests being served, so that shutting down can wait for them."""

from __future__ import annotations

import asyncio

from kas.filters.handler import Filter
from kas.request.http import Request


class WaitGroup:
    """``wait`` returns once no request that is not long-running is being served."""

    def __init__(self) -> None:
        self.serving: set[int] = set()
        self._idle: asyncio.Event | None = None

    async def wait(self, timeout_s: float) -> bool:
        """Wait until nothing is served any more; False when that took longer than ``timeout_s``."""
        if not self.serving:
            return True
        self._idle = asyncio.Event()
        try:
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()
            return True
        except TimeoutError:
            return False

    def add(self, req: Request) -> None:
        """The request is being served."""
        self.serving.add(id(req))

    def done(self, req: Request) -> None:
        """The request has been served; one that was not counted is no error."""
        self.serving.discard(id(req))
        if self._idle is not None and not self.serving:
            self._idle.set()


def wait_group(group: WaitGroup) -> Filter:
    """Count requests that are not long-running while they are served."""
    def before(req: Request) -> None:
        if not req.long_running:
            group.add(req)

    return Filter("wait_group", before, None, group.done)
