"""Deadlines of many tasks on one timer: those of requests and of webhook calls."""

from __future__ import annotations

import asyncio
from collections import deque
from math import inf
from time import monotonic
from typing import Any

AT_ONCE = 64  # tasks that are cancelled in a loop iteration, which all answer in the next ones


class Deadlines:
    """Cancels tasks at their deadlines, with one timer for all of them.

    Nearly every request ends long before its deadline, so ``asyncio.timeout``, which arms and cancels a timer each time, would cost more
    than several filters together. A task has one deadline per instance. An operation that it awaits may have another deadline in another
    instance; ``drop`` tells which instance cancelled the task.
    """

    def __init__(self) -> None:
        self._due: dict[asyncio.Task[Any], float] = {}
        self._late: set[asyncio.Task[Any]] = set()
        self._overdue: deque[asyncio.Task[Any]] = deque()  # those to be cancelled next; some may have ended meanwhile
        self._timer: asyncio.Handle | None = None
        self._fires = 0.0

    def add(self, task: asyncio.Task[Any], deadline: float) -> None:
        """Cancels ``task`` at ``deadline`` (``time.monotonic``) unless ``drop`` comes first."""
        self._due[task] = deadline
        if self._timer is None or deadline < self._fires:
            self._arm(deadline)

    def forget(self, task: asyncio.Task[Any]) -> None:
        """Removes the task's deadline."""
        self._due.pop(task, None)

    def drop(self, task: asyncio.Task[Any]) -> bool:
        """Removes the task's deadline. Returns whether this instance cancelled the task because of it; the cancellation is then undone with
        ``uncancel``, and False is returned if another cancellation is pending.
        """
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
