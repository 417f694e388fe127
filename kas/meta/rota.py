"""Whose turn it is where there are few places: clients take turns, and one of them never has them all.

So who asks for one thing waits for what is under way, and not for all that somebody else has asked for. Of one client the oldest request
goes first. ``meta/aside.py`` gives its threads by it, ``Places`` is the same for what only waits, in place of a semaphore.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from contextvars import ContextVar
from heapq import heappop, heappush
from itertools import count
from typing import Generic, TypeVar

T = TypeVar("T")

_REQUESTS = count(1)
# Whose work a task does, and the how manieth request it is for. The server's own comes first.
_WHOSE: ContextVar[tuple[Hashable, int]] = ContextVar("whose", default=(None, 0))


def works_for(client: Hashable) -> None:
    """From now on this task works for one request of ``client``."""
    _WHOSE.set((client, next(_REQUESTS)))


def whose() -> tuple[Hashable, int]:
    """Whose work this task does: the client, and the number of its request."""
    return _WHOSE.get()


class Rota(Generic[T]):
    """Hands out ``places`` to what waits for them. Every step is log n of what one client has waiting, plus the places."""

    def __init__(self, places: int) -> None:
        self._most = max(1, places - 1)
        self.free = places
        self._waiting: dict[Hashable, list[tuple[int, int, T]]] = {}  # by client, who is next first; a heap each
        self._held: dict[Hashable, int] = {}  # places that a client has
        self._order = count()

    def wait(self, client: Hashable, request: int, what: T) -> None:
        """Puts down that ``what`` wants a place."""
        heappush(self._waiting.setdefault(client, []), (request, next(self._order), what))

    def others_wait(self, client: Hashable) -> bool:
        """Whether somebody else waits who has no place."""
        return any(other != client and other not in self._held for other in self._waiting)

    def next(self) -> tuple[Hashable, T] | None:
        """Gives a place, to be given back by ``rest``, to who is next; None when there is none, or nobody for it."""
        if not self.free:
            return None
        for client in self._waiting:  # no more are passed over than have places
            if self._held.get(client, 0) < self._most:
                break
        else:
            return None
        waiting = self._waiting.pop(client)
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


class Places:
    """A context manager around what only so many may do at once: a semaphore whose places go by turns of clients. One loop's."""

    def __init__(self, places: int) -> None:
        self._rota = Rota[asyncio.Future[None]](places)

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
