"""Who has lost a race for an object stands in line for the next attempt.

All who change an object at the same time would read it, and all but one would have done it in vain, again and again: the square of their
number, and who lost too often would be refused though he asked for no revision. Of those in line one tries at a time. It keeps nobody from
writing: who comes anew tries at once, other workers have lines of their own, and whose attempt waits for somebody else, as for a webhook
that itself writes the object, is passed.
"""

from __future__ import annotations

import asyncio
from collections import deque

PATIENCE_S = 0.1  # after which the next one's attempt begins beside one that is not over


class Lines:
    """The lines of a resource's objects, by key. ``asyncio.Future`` stands for who waits, done once it is his turn."""

    def __init__(self) -> None:
        self._lines: dict[str, deque[asyncio.Future[None]]] = {}

    async def turn(self, key: str, mine: asyncio.Future[None] | None = None) -> asyncio.Future[None]:
        """Returns when it is the caller's turn, for ``over``. ``mine`` is the turn of an attempt that lost, which is kept unless it took
        too long."""
        line = self._lines.setdefault(key, deque())
        if mine is not None and line and line[0] is mine:
            return mine
        mine = asyncio.get_running_loop().create_future()
        line.append(mine)
        if line[0] is mine:
            self._begin(key, mine)
        try:
            await mine
        except asyncio.CancelledError:
            self.over(key, mine)
            raise
        return mine

    def over(self, key: str, mine: asyncio.Future[None]) -> None:
        """The turn ends, if it has not been passed."""
        line = self._lines.get(key)
        if line is None or line[0] is not mine:
            return
        line.popleft()
        while line and line[0].done():  # who has left
            line.popleft()
        if line:
            self._begin(key, line[0])
        else:
            del self._lines[key]

    def _begin(self, key: str, first: asyncio.Future[None]) -> None:
        first.set_result(None)
        asyncio.get_running_loop().call_later(PATIENCE_S, self.over, key, first)
