"""Whose turn it is where there are few places: clients take turns, and one of them never has them all.

So who asks for one thing waits for what is under way, and not for all that somebody else has asked for. Of one client the oldest request
goes first. What had a place and gave it away comes after what had none, but is not passed over for ever. ``meta/offload.py`` gives its
threads by it, ``FairSemaphore`` is the same for what only waits, in place of a semaphore.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from contextvars import ContextVar
from heapq import heappop, heappush
from itertools import count
from typing import Generic, TypeVar

T = TypeVar("T")

PASSED_OVER = 8  # times that what had a place is, in a row

_REQUESTS = count(1)
# Whose work a task does, and the how manieth request it is for. The server's own comes first.
_WHOSE: ContextVar[tuple[Hashable, int]] = ContextVar("whose", default=(None, 0))


def works_for(client: Hashable) -> None:
    """From now on this task works for one request of ``client``."""
    _WHOSE.set((client, next(_REQUESTS)))


def whose() -> tuple[Hashable, int]:
    """Whose work this task does: the client, and the number of its request."""
    return _WHOSE.get()


class FairQueue(Generic[T]):
    """Hands out ``places`` to what waits for them. Every step is log n of what one client has waiting, plus the places."""

    def __init__(self, places: int) -> None:
        self._most = max(1, places - 1)
        self.free = places
        # By client, who is next first; a heap each, of request, order, what and whether that had a place before.
        self._waiting: dict[Hashable, list[tuple[int, int, T, bool]]] = {}
        self._passed_over = 0
        self._held: dict[Hashable, int] = {}  # places that a client has
        self._order = count()

    def wait(self, client: Hashable, request: int, what: T, again: bool = False) -> None:
        """Puts down that ``what`` wants a place, or ``again`` that it wants one again."""
        heappush(self._waiting.setdefault(client, []), (request, next(self._order), what, again))

    def others_wait(self, client: Hashable) -> bool:
        """Whether somebody else waits who has no place."""
        return any(other != client and other not in self._held for other in self._waiting)

    def next(self) -> tuple[Hashable, T] | None:
        """Gives a place, to be given back by ``rest``, to who is next; None when there is none, or nobody for it."""
        if not self.free:
            return None
        found = had_one = None
        for client, waiting in self._waiting.items():  # no more are passed over than have places, or had one
            if self._held.get(client, 0) >= self._most:
                continue
            if not waiting[0][3]:
                found = client, waiting
                break
            had_one = had_one or (client, waiting)
        if found is None or (had_one is not None and self._passed_over >= PASSED_OVER):
            found, self._passed_over = had_one, 0
        elif had_one is not None:
            self._passed_over += 1
        if found is None:
            return None
        client, waiting = found
        del self._waiting[client]
        what = heappop(waiting)[2]
        if waiting:
            self._waiting[client] = waiting  # after all others
        self.free -= 1
        self._held[client] = self._held.get(client, 0) + 1
        return client, what

    def rest(self, client: Hashable) -> None:
        """A place of this client's is free again."""
        self.free += 1
        self._held[client] -= 1
        if not self._held[client]:
            del self._held[client]


class FairSemaphore:
    """A context manager around what only so many may do at once: a semaphore whose places go by turns of clients. One loop's."""

    def __init__(self, places: int) -> None:
        self._rota = FairQueue[asyncio.Future[None]](places)

    @property
    def free(self) -> int:
        """How many nobody has."""
        return self._rota.free

    async def take(self) -> Hashable:
        """Waits for a place; what comes is to be given back."""
        client, request = whose()
        mine = asyncio.get_running_loop().create_future()
        self._rota.wait(client, request, mine)
        self._hand_out()
        try:
            await mine
        except asyncio.CancelledError:
            if mine.done() and not mine.cancelled():
                self.give_back(client)
            raise
        return client

    def give_back(self, client: Hashable) -> None:
        """``client`` needs its place no more."""
        self._rota.rest(client)
        self._hand_out()

    def _hand_out(self) -> None:
        while (found := self._rota.next()) is not None:
            client, mine = found
            if mine.done():  # who waited has left
                self._rota.rest(client)
            else:
                mine.set_result(None)

    async def __aenter__(self) -> None:
        await self.take()

    async def __aexit__(self, *_: object) -> None:
        self.give_back(whose()[0])
