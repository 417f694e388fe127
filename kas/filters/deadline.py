"""The deadline of a request: ``--request-timeout``, or ``?timeout=`` if that is shorter. Long-running requests are exempt."""

from __future__ import annotations

from kas.filters.handler import Filter
from kas.meta.errors import ApiError, timeout
from kas.request.http import Request
from kas.request.timeout import asked_timeout


def deadline(request_timeout_s: float) -> Filter:
    """Sets the deadline. A long-running request gets one too, which applies until its endpoint is reached."""

    def before(req: Request) -> None:
        if req.long_running:
            req.deadline = req.started + request_timeout_s
            return
        limit = request_timeout_s
        if "timeout" in req.query:
            asked = asked_timeout(req)
            if asked > 0:
                limit = min(limit, asked)
        req.deadline = req.started + limit

    return Filter("deadline", before)


def timed_out() -> ApiError:
    """504, for a request whose deadline has passed."""
    return timeout("request did not complete within the allotted timeout")
