"""Counts the requests being served, so that a shutdown can wait for them."""

from __future__ import annotations

import asyncio

from kas.filters.handler import Filter
from kas.request.http import Request


class WaitGroup:
    """``wait`` returns once every request being served is a long-running one."""

    def __init__(self) -> None:
        self.serving: set[int] = set()
        self.idle: asyncio.Event | None = None  # set when nothing is served; made by ``wait``

    async def wait(self, timeout_s: float) -> bool:
        """Waits until nothing is served; False if that took longer than ``timeout_s``."""
        if not self.serving:
            return True
        self.idle = asyncio.Event()
        try:
            async with asyncio.timeout(timeout_s):
                await self.idle.wait()
            return True
        except TimeoutError:
            return False


def wait_group(group: WaitGroup) -> Filter:
    """Counts requests that are not long-running while they are served."""
    serving = group.serving

    def before(req: Request) -> None:
        if not req.long_running:
            serving.add(id(req))

    def release(req: Request) -> None:
        serving.discard(id(req))
        if group.idle is not None and not serving:
            group.idle.set()

    return Filter("wait_group", before, None, release)
