"""Bounds on the memory that request bodies and complete responses hold in a worker, and on how slowly bodies may arrive.

Bodies of up to ``FREE_BYTES`` are bounded by the number of requests in flight and are not counted here. Each byte of
a larger one counts against the user and the worker, from its arrival to the end of its request. A body that nobody
reads is never held.
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

# A body may pause for PATIENCE_S, has as long to begin with, and must then keep this average rate.
PATIENCE_S, BYTES_PER_S = 10.0, 16 << 10


class Budget:
    """Bytes held, in total and by user name.

    Administrators (system:masters) have a budget of their own, as large as that of all others, without a bound for
    each user: they repair a server that others have filled, and one of their clients that does not read leaves
    room for the others.
    """

    def __init__(self, worker_bytes: int = WORKER_BYTES, user_bytes: int = USER_BYTES) -> None:
        self._others, self._masters = _Share(worker_bytes, user_bytes), _Share(worker_bytes, worker_bytes)

    @property
    def held(self) -> int:
        """Bytes held by all users."""
        return self._others.held + self._masters.held

    @property
    def by_user(self) -> dict[str, int]:
        """Bytes held by each user who holds any."""
        return self._masters.by_user | self._others.by_user

    def take(self, user: UserInfo | None, size: int, first: bool = False) -> None:
        """Claims ``size`` more bytes. Raises 429, and claims nothing, if that exceeds a bound.

        With ``first``, a user who holds nothing may exceed the bound for each user, and the total as well if nobody
        with the same budget holds anything.
        """
        self._share(user).take(user.name if user is not None else "", size, first)

    def add(self, user: UserInfo | None, size: int) -> None:
        """Claims ``size`` more bytes whatever the bounds, for what can no longer be refused."""
        self._share(user).add(user.name if user is not None else "", size)

    def check(self, user: UserInfo | None) -> None:
        """Raises 429 if not a byte more could be claimed."""
        if self.held:
            self._share(user).check(user.name if user is not None else "")

    def give_back(self, user: UserInfo | None, size: int) -> None:
        """Releases bytes that were claimed."""
        self._share(user).give_back(user.name if user is not None else "", size)

    def _share(self, user: UserInfo | None) -> _Share:
        return self._masters if user is not None and MASTERS in user.groups else self._others


class _Share:
    """The budget of administrators, or of all other users."""

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
    """Cancels the tasks that read a body which arrives too slowly. They share one timer, which runs while there are any.

    Its clock counts only time in which the event loop runs: what a client sent while the worker was busy or stopped
    is not late.
    """

    LOOK_S = 1.0

    def __init__(self) -> None:
        self._coming: dict[asyncio.Task[Any], Inlet] = {}  # added since the last look; nearly all have ended before the next
        self._reading: dict[asyncio.Task[Any], _Reading] = {}
        self._late: set[asyncio.Task[Any]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._now = 0.0
        self._looked_at = 0.0

    def add(self, task: asyncio.Task[Any], body: Inlet) -> None:
        """Watches ``task``, which reads ``body``, until ``drop``."""
        self._coming[task] = body
        if self._timer is None:
            self._looked_at = monotonic()
            self._timer = asyncio.get_running_loop().call_later(self.LOOK_S, self._look)

    def drop(self, task: asyncio.Task[Any]) -> bool:
        """Ends the watch. Returns whether the task was cancelled because of the pace of its body, and if so takes
        the cancellation back."""
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
    """408. It closes an HTTP/1 connection, because the rest of the body is still in it."""
    headers = None if multiplexed else {"connection": "close"}
    return ApiError(408, "Timeout", "the body of the request did not arrive in time", {}, headers)
