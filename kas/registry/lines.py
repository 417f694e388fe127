"""Queues of writers that have lost a race for an object.

Without a queue, all concurrent writers of an object would read it, and all but one would do so in vain, again and again: the
work grows with the square of their number, and a writer that loses too often would be refused although it named no revision.
Of the writers in a queue, one tries at a time. The queue blocks nobody: a new writer tries at once, other workers have queues
of their own, and a writer whose attempt waits for something else, such as a webhook that itself writes the object, is
overtaken after ``PATIENCE_S``.
"""

from __future__ import annotations

import asyncio
from collections import deque

PATIENCE_S = 0.1  # seconds after which the next attempt begins though the current one has not ended


class Lines:
    """The queues of a resource's objects, by key. Each waiting writer has an ``asyncio.Future``, which is done once it is its
    turn."""

    def __init__(self) -> None:
        self._lines: dict[str, deque[asyncio.Future[None]]] = {}

    async def turn(self, key: str, previous: asyncio.Future[None] | None = None) -> asyncio.Future[None]:
        """Waits until it is the caller's turn; returns the turn, for ``over``. ``previous`` is the turn of a lost attempt; it is
        kept unless it was overtaken."""
        line = self._lines.setdefault(key, deque())
        if previous is not None and line and line[0] is previous:
            return previous
        turn = asyncio.get_running_loop().create_future()
        line.append(turn)
        if line[0] is turn:
            self._begin(key, turn)
        try:
            await turn
        except asyncio.CancelledError:
            self.over(key, turn)
            raise
        return turn

    def over(self, key: str, turn: asyncio.Future[None]) -> None:
        """Ends a turn, unless it was overtaken."""
        line = self._lines.get(key)
        if line is None or line[0] is not turn:
            return
        line.popleft()
        while line and line[0].done():  # writers that have left
            line.popleft()
        if line:
            self._begin(key, line[0])
        else:
            del self._lines[key]

    def _begin(self, key: str, first: asyncio.Future[None]) -> None:
        first.set_result(None)
        asyncio.get_running_loop().call_later(PATIENCE_S, self.over, key, first)
