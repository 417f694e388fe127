"""How long a request may take: ``--request-timeout``, or less when ``?timeout=`` says so. Long-running ones are exempt."""

from __future__ import annotations

from kas.filters.handler import Filter
from kas.meta import duration
from kas.meta.errors import ApiError, bad_request, timeout
from kas.request.http import Request


def deadline(request_timeout_s: float) -> Filter:
    """A long-running request is given a deadline too: it holds until its endpoint is reached."""

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


def asked_timeout(req: Request) -> float:
    """Seconds by ``?timeout=``, 0 without one. ApiError 400 for what is no duration."""
    given = req.params.get("timeout")
    try:
        return duration.seconds(given) if given else 0.0
    except ValueError as e:
        raise bad_request(f"invalid timeout specified in the request URL - {e}") from None


def timed_out() -> ApiError:
    """504: the answer when the deadline passes first."""
    return timeout("request did not complete within the allotted timeout")
