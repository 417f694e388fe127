"""API Priority and Fairness at the door (upstream's ``WithPriorityAndFairness``): a request runs, waits for its turn, or is sent away.

Requests that are long-running by rule are not classified, except watches, which hold seats until they have sent what was there when they
began. Every other answer says which FlowSchema and level the request belonged to.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol

from kas.filters.handler import Filter
from kas.request.http import Request, Response


class Gate(Protocol):
    """``kas.flowcontrol``'s: the parts of a filter."""

    def begin(self, req: Request, /) -> Response | Awaitable[Response | None] | None:
        """As ``Filter.before``."""

    def after(self, req: Request, resp: Response, /) -> None:
        """As ``Filter.after``."""

    def release(self, req: Request, /) -> None:
        """As ``Filter.release``."""


def priority_and_fairness(gate: Gate) -> Filter:
    """Seats a request, or has it wait; 429 when its queue is full or its time to wait is over."""
    return Filter("priority_and_fairness", gate.begin, gate.after, gate.release)
