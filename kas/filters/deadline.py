"""How long a request may take: ``--request-timeout``, or less when ``?timeout=`` says so. Long-running ones are exempt."""

from __future__ import annotations

from kas.api.errors import ApiError, bad_request, timeout
from kas.edge.http import Request
from kas.filters.chain import Filter
from kas.options import OptionError, parse_duration


def deadline(request_timeout_s: float) -> Filter:
    def before(req: Request) -> None:
        if req.long_running:
            return
        limit = request_timeout_s
        if "timeout" in req.query:
            given = req.params.get("timeout")
            if given:
                try:
                    if given.isdigit():
                        raise OptionError(given)
                    asked = parse_duration(given)
                except OptionError:
                    raise bad_request(
                        f'invalid timeout specified in the request URL - time: missing unit in duration "{given}"'
                        if given.isdigit()
                        else f'invalid timeout specified in the request URL - time: invalid duration "{given}"'
                    ) from None
                if asked > 0:
                    limit = min(limit, asked)
        req.deadline = req.started + limit

    return Filter("deadline", before)


def timed_out() -> ApiError:
    """504: the answer when the deadline passes first."""
    return timeout("request did not complete within the allotted timeout")
