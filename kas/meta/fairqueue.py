"""Fair queueing of work among clients that compete for a few slots.

Clients take turns, and no client ever holds all slots. A request therefore waits for the work that is running, not for everything that
another client has queued. Within a client, the oldest request goes first. Work that gave up a slot and wants one again comes after work
that had none, but is passed over only a bounded number of times.

``meta/offload.py`` schedules its threads with ``FairQueue``. ``FairSemaphore`` is the same policy as an asyncio semaphore.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from contextvars import ContextVar
from heapq import heappop, heappush
from itertools import count
from typing import Generic, TypeVar

T = TypeVar("T")

PASSED_OVER = 8  # consecutive times that a waiter which had a slot before may be passed over

_REQUESTS = count(1)
# (client, request number) that the current task works for. The server's own work has number 0 and goes first.
_WHOSE: ContextVar[tuple[Hashable, int]] = ContextVar("whose", default=(None, 0))


def works_for(client: Hashable) -> None:
    """Marks the current task as working for a new request of ``client``."""
    _WHOSE.set((client, next(_REQUESTS)))


def whose() -> tuple[Hashable, int]:
    """The (client, request number) that the current task works for."""
    return _WHOSE.get()


class FairQueue(Generic[T]):
    """Hands out a number of ``slots`` to waiters, round-robin by client.

    Each operation costs O(log n) in the waiters of one client, plus the number of slots.
    """

    def __init__(self, slots: int) -> None:
        self._max_held = max(1, slots - 1)
        self.free = slots
        # Client -> heap of (request, order, what, whether it had a slot before). The client whose turn is next comes first.
        self._waiting: dict[Hashable, list[tuple[int, int, T, bool]]] = {}
        self._passed_over = 0
        self._held: dict[Hashable, int] = {}  # slots held per client
        self._order = count()

    def wait(self, client: Hashable, request: int, what: T, again: bool = False) -> None:
        """Queues ``what`` for a slot; ``again`` says that it had one before and gave it up."""
        heappush(self._waiting.setdefault(client, []), (request, next(self._order), what, again))

    def others_wait(self, client: Hashable) -> bool:
        """Whether another client that holds no slot is waiting."""
        return any(other != client and other not in self._held for other in self._waiting)

    def next(self) -> tuple[Hashable, T] | None:
        """Assigns a slot to the next waiter, to be returned with ``rest``. None when no slot is free or no client may take one."""
        if not self.free:
            return None
        found = yielded = None
        for client, waiting in self._waiting.items():  # passes over at most the clients that hold a slot or had one
            if self._held.get(client, 0) >= self._max_held:
                continue
            if not waiting[0][3]:
                found = client, waiting
                break
            yielded = yielded or (client, waiting)
        if found is None or (yielded is not None and self._passed_over >= PASSED_OVER):
            found, self._passed_over = yielded, 0
        elif yielded is not None:
            self._passed_over += 1
        if found is None:
            return None
        client, waiting = found
        del self._waiting[client]
        what = heappop(waiting)[2]
        if waiting:
            self._waiting[client] = waiting  # behind all other clients
        self.free -= 1
        self._held[client] = self._held.get(client, 0) + 1
        return client, what

    def rest(self, client: Hashable) -> None:
        """Returns a slot that this client held."""
        self.free += 1
        self._held[client] -= 1
        if not self._held[client]:
            del self._held[client]


class FairSemaphore:
    """An async context manager: a semaphore whose slots are handed out by ``FairQueue``. An instance belongs to one event loop."""

    def __init__(self, slots: int) -> None:
        self._queue = FairQueue[asyncio.Future[None]](slots)

    @property
    def free(self) -> int:
        """The number of free slots."""
        return self._queue.free

    async def take(self) -> Hashable:
        """Waits for a slot. Returns the client to pass to ``give_back``. When cancelled, it holds no slot."""
        client, request = whose()
        future = asyncio.get_running_loop().create_future()
        self._queue.wait(client, request, future)
        self._dispatch()
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self.give_back(client)
            raise
        return client

    def give_back(self, client: Hashable) -> None:
        """Returns a slot of ``client``."""
        self._queue.rest(client)
        self._dispatch()

    def _dispatch(self) -> None:
        while (found := self._queue.next()) is not None:
            client, future = found
            if future.done():  # the waiter was cancelled
                self._queue.rest(client)
            else:
                future.set_result(None)

    async def __aenter__(self) -> None:
        await self.take()

    async def __aexit__(self, *_: object) -> None:
        self.give_back(whose()[0])
