"""What bodies, and answers that are whole, may hold of a worker's memory, and how slowly bodies may come.

Bodies up to ``FREE_BYTES`` are bounded by the number of requests in flight and cost nothing here. Of larger ones every byte that is held,
from its arrival to the end of its request, counts against the user and against the worker. What nobody reads is never held.
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import TYPE_CHECKING, Any

from kas.auth.user import MASTERS, UserInfo
from kas.meta.errors import ApiError, too_many_requests

if TYPE_CHECKING:
    from kas.edge.body import Inlet

FREE_BYTES = 64 << 10
WORKER_BYTES, USER_BYTES = 256 << 20, 64 << 20
RETRY_AFTER_S = 1

# A body may pause for so long, has so long to begin with, and then keeps this pace on average.
PATIENCE_S, BYTES_PER_S = 10.0, 16 << 10


class Budget:
    """Bytes held, over all and by user name. Administrators have as much again for themselves as all others, with no bound for each of
    them: they repair a server that others have filled, and a client of theirs that does not read ends none."""

    def __init__(self, worker_bytes: int = WORKER_BYTES, user_bytes: int = USER_BYTES) -> None:
        self._others, self._masters = _Share(worker_bytes, user_bytes), _Share(worker_bytes, worker_bytes)

    @property
    def held(self) -> int:
        """By all together."""
        return self._others.held + self._masters.held

    @property
    def by_user(self) -> dict[str, int]:
        """By each who holds something."""
        return self._masters.by_user | self._others.by_user

    def take(self, user: UserInfo | None, size: int, first: bool = False) -> None:
        """``size`` bytes more. Raises 429 beyond a bound, and then takes nothing. ``first``: whoever holds nothing may hold anything that
        there is room for, and anything at all when nobody of the same share holds something."""
        self._share(user).take(user.name if user is not None else "", size, first)

    def add(self, user: UserInfo | None, size: int) -> None:
        """``size`` bytes more, whatever the bounds: for what can be refused no more."""
        self._share(user).add(user.name if user is not None else "", size)

    def check(self, user: UserInfo | None) -> None:
        """Raises 429 where not a byte more would be given."""
        if self.held:
            self._share(user).check(user.name if user is not None else "")

    def give_back(self, user: UserInfo | None, size: int) -> None:
        """What was taken or added is held no longer."""
        self._share(user).give_back(user.name if user is not None else "", size)

    def _share(self, user: UserInfo | None) -> _Share:
        return self._masters if user is not None and MASTERS in user.groups else self._others


class _Share:
    """Of administrators, or of all others."""

    __slots__ = ("_most", "_most_each", "by_user", "held")

    def __init__(self, most: int, most_each: int) -> None:
        self._most, self._most_each = most, most_each
        self.held = 0
        self.by_user: dict[str, int] = {}

    def take(self, name: str, size: int, first: bool) -> None:
        held = self.by_user.get(name, 0)
        if (held + size > self._most_each and (held or not first)) or (self.held + size > self._most and (self.held or not first)):
            raise _too_many()
        self.by_user[name] = held + size
        self.held += size

    def add(self, name: str, size: int) -> None:
        self.by_user[name] = self.by_user.get(name, 0) + size
        self.held += size

    def check(self, name: str) -> None:
        if self.by_user.get(name, 0) >= self._most_each or self.held >= self._most:
            raise _too_many()

    def give_back(self, name: str, size: int) -> None:
        own = self.by_user[name] - size
        if own:
            self.by_user[name] = own
        else:
            del self.by_user[name]
        self.held -= size


def _too_many() -> ApiError:
    return too_many_requests("Too many requests, please try again later.", RETRY_AFTER_S)


class Pace:
    """Cancels the tasks that read a body which comes too slowly. One timer for all of them, as long as there are any.

    Its clock goes only while the loop does: what a client has sent while the worker was busy, or stopped, is not late."""

    LOOK_S = 1.0

    def __init__(self) -> None:
        self._coming: dict[asyncio.Task[Any], Inlet] = {}  # since the last look; nearly all are there before the next
        self._reading: dict[asyncio.Task[Any], _Reading] = {}
        self._late: set[asyncio.Task[Any]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._now = 0.0
        self._looked_at = 0.0

    def add(self, task: asyncio.Task[Any], body: Inlet) -> None:
        """``task`` reads ``body`` from now on, until ``drop``."""
        self._coming[task] = body
        if self._timer is None:
            self._looked_at = monotonic()
            self._timer = asyncio.get_running_loop().call_later(self.LOOK_S, self._look)

    def drop(self, task: asyncio.Task[Any]) -> bool:
        """Whether the task was cancelled because of its body's pace; the cancellation is taken back then."""
        if self._coming.pop(task, None) is None:
            self._reading.pop(task, None)
        if not self._late or task not in self._late:
            return False
        self._late.discard(task)
        return task.uncancel() == 0

    def _look(self) -> None:
        self._timer = None
        at = monotonic()
        self._now += min(at - self._looked_at, 2 * self.LOOK_S)
        self._looked_at = at
        for task, reading in list(self._reading.items()):
            if reading.late(self._now):
                del self._reading[task]
                self._late.add(task)
                task.cancel()
        self._reading.update((task, _Reading(body, self._now)) for task, body in self._coming.items())
        self._coming.clear()
        if self._reading:
            self._timer = asyncio.get_running_loop().call_later(self.LOOK_S, self._look)


class _Reading:
    __slots__ = ("_began", "_body", "_bytes", "_moved")

    def __init__(self, body: Inlet, now: float) -> None:
        self._body, self._bytes = body, -1
        self._began = self._moved = now

    def late(self, now: float) -> bool:
        arrived = self._body.arrived_bytes
        if arrived != self._bytes:
            self._bytes, self._moved = arrived, now
        return now - self._moved > PATIENCE_S or now - self._began > PATIENCE_S + arrived / BYTES_PER_S


def too_slow(multiplexed: bool) -> ApiError:
    """408; a connection of HTTP/1 ends with it, because the rest of the body is still in it."""
    headers = None if multiplexed else {"connection": "close"}
    return ApiError(408, "Timeout", "the body of the request did not arrive in time", {}, headers)
