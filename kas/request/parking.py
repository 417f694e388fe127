"""Requests that wait for an event that many requests wait for at once, without a task for each.

A filter that has to wait returns a ``Wait``. The edge parks the request as a ``Parked``, and it continues like one
that never waited; any other caller awaits the ``Wait``. If the event takes long a task is made after all, since only
a task has a deadline and is cancelled when its client disconnects.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol

from kas.request.http import Response, Result


class Parked(Protocol):
    """A parked request. Neither function raises, and exactly one of them is called, once."""

    def go_on(self) -> None:
        """Continues: the event has happened."""

    def wait(self, passed: Awaitable[None]) -> None:
        """The event has not happened yet, or waiting for it failed: the request awaits ``passed`` in a task of its own."""


class Wait(Awaitable[Response | None], Protocol):
    """What a filter's ``before`` returns to wait, which may be parked instead of being awaited;
    ``kas._fastpath.FreshRead`` is one. Once its chain has returned it, it stands for the whole request: awaiting it
    gives the response."""

    def park(self, parked: Parked) -> None:
        """Resumes ``parked`` when the event has happened; never before this returns."""

    def after(self, passed: Awaitable[None]) -> Awaitable[Response | None]:
        """Like awaiting it, but waits for ``passed``."""

    def go_on(self) -> Result:
        """The rest of the request's way, after the event."""
