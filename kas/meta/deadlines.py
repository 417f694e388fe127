"""One timer for many deadlines: those of requests, those of the webhooks that are asked."""

from __future__ import annotations

import asyncio
from collections import deque
from math import inf
from time import monotonic
from typing import Any

AT_ONCE = 64  # tasks that are cancelled in a turn of the loop, which all answer in the next ones


class Deadlines:
    """Cancels tasks whose time is up. One timer for all of them: nearly every request ends long before its deadline, so
    ``asyncio.timeout``, which arms and takes back a timer of its own each time, would cost more than some filters together. A task has
    one deadline here; what it waits for may have another, with another one of these, and the cancellation is whose time was up.
    """

    def __init__(self) -> None:
        self._due: dict[asyncio.Task[Any], float] = {}
        self._late: set[asyncio.Task[Any]] = set()
        self._overdue: deque[asyncio.Task[Any]] = deque()  # of those, who is cancelled next; some may have ended meanwhile
        self._timer: asyncio.Handle | None = None
        self._fires = 0.0

    def add(self, task: asyncio.Task[Any], deadline: float) -> None:
        """Cancels ``task`` at ``deadline`` (``time.monotonic``) unless ``drop`` comes first."""
        self._due[task] = deadline
        if self._timer is None or deadline < self._fires:
            self._arm(deadline)

    def forget(self, task: asyncio.Task[Any]) -> None:
        """The task may take as long as it likes from here on."""
        self._due.pop(task, None)

    def drop(self, task: asyncio.Task[Any]) -> bool:
        """Whether the task's time was up, in which case the cancellation was this one's and is taken back."""
        self._due.pop(task, None)
        if not self._late or task not in self._late:
            return False
        self._late.discard(task)
        return task.uncancel() == 0

    def _arm(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._fires = deadline
        self._timer = asyncio.get_running_loop().call_later(max(0.0, deadline - monotonic()), self._sweep)

    def _sweep(self) -> None:
        self._timer = None
        now = monotonic()
        if not self._overdue:
            self._overdue.extend(task for task, deadline in self._due.items() if deadline <= now)
        for _ in range(min(AT_ONCE, len(self._overdue))):
            task = self._overdue.popleft()
            if self._due.get(task, inf) <= now:
                del self._due[task]
                self._late.add(task)
                task.cancel()
        if self._overdue:
            self._fires = -inf
            self._timer = asyncio.get_running_loop().call_soon(self._sweep)
        elif self._due:
            self._arm(min(self._due.values()))
