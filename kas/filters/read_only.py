"""The read-only port: GET only, with a rate limit, and never a secret."""

from __future__ import annotations

from collections.abc import Callable

from kas.filters.handler import Filter
from kas.meta.errors import ApiError, forbidden, too_many_requests
from kas.request.http import Request


def read_only(take: Callable[[], bool]) -> Filter:
    """Lets pass only GET, and never secrets: 405 or 403 for the rest, 429 for a request that gets no token from ``take``."""
    def before(req: Request) -> None:
        if req.method != "GET" or (req.long_running and req.info.verb != "watch"):
            raise ApiError(405, "MethodNotAllowed", "only GET is served on the read-only port", {}, {"allow": "GET"})
        if not take():
            raise too_many_requests("Rate limit of the read-only port exceeded, please try again later.", 1)
        if req.info.resource == "secrets":
            raise forbidden("", "secrets", req.info.name, "secrets are not served on the read-only port")

    return Filter("read_only", before)
