"""API Priority and Fairness as a filter (upstream's ``WithPriorityAndFairness``): a request is executed, queued or rejected.

Long-running requests are not classified, except watches, which hold seats until they have sent the initial events.
Every other response names the request's FlowSchema and priority level.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol

from kas.filters.handler import Filter
from kas.request.http import Request, Response


class Gate(Protocol):
    """The functions of the filter, implemented by ``kas.flowcontrol``."""

    def begin(self, req: Request, /) -> Response | Awaitable[Response | None] | None:
        """See ``Filter.before``."""

    def after(self, req: Request, resp: Response, /) -> None:
        """See ``Filter.after``."""

    def release(self, req: Request, /) -> None:
        """See ``Filter.release``."""


def priority_and_fairness(gate: Gate) -> Filter:
    """Gives a request its seats, or queues it; 429 if its queue is full or its time in the queue is over."""
    return Filter("priority_and_fairness", gate.begin, gate.after, gate.release)
