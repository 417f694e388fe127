"""Requests that wait for something that many wait for at once, without a task of each.

A filter that has to wait returns a ``Wait``. Whoever can put the request down (the edge) parks it as a ``Parked``, and it goes on like one
that never waited; everybody else awaits the ``Wait``. What takes long becomes a task after all, since only a task has a deadline, and is
ended when its client leaves.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol

from kas.request.http import Response, Result


class Parked(Protocol):
    """A request that was put down. Neither function raises, and one of them is called once."""

    def go_on(self) -> None:
        """What it waited for has come."""

    def wait(self, passed: Awaitable[None]) -> None:
        """It has not come yet, or ended with an error: the request awaits ``passed`` in a task of its own."""


class Wait(Awaitable[Response | None], Protocol):
    """What a filter's ``before`` returns, which may be parked instead of being awaited; ``kas._fastpath.FreshRead`` is one. Once its chain
    has returned it, it is the request that waits: to await it is to await the answer."""

    def park(self, parked: Parked) -> None:
        """It is told from now on; that it may go on never before this returns."""

    def after(self, passed: Awaitable[None]) -> Awaitable[Response | None]:
        """The same as to await it, where ``passed`` is waited for."""

    def go_on(self) -> Result:
        """The rest of the request's way, when what it waited for has come."""
