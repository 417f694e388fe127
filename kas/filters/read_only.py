"""The read-only port: GET only, at most so many a second (a token bucket), and never a secret."""

from __future__ import annotations

from collections.abc import Callable

from kas.filters.handler import Filter
from kas.meta.errors import ApiError, forbidden, too_many_requests
from kas.request.http import Request


class TokenBucket:
    """``take`` says whether one more may pass; refills ``rate`` a second up to ``burst``."""

    def __init__(self, rate: float, burst: int, clock: Callable[[], float]) -> None:
        self.rate, self.burst, self._clock = rate, burst, clock
        self._tokens, self._at = float(burst), clock()

    def take(self) -> bool:
        """Whether there is a token left, which is taken then; tokens come back at ``rate`` a second."""
        now = self._clock()
        self._tokens = min(self.burst, self._tokens + (now - self._at) * self.rate)
        self._at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


def read_only(bucket: TokenBucket) -> Filter:
    """Let pass only GET, at the rate of the bucket, and never secrets: 405, 429 or 403 for the rest."""
    def before(req: Request) -> None:
        if req.method != "GET" or (req.long_running and req.info.verb != "watch"):
            raise ApiError(405, "MethodNotAllowed", "only GET is served on the read-only port", {}, {"allow": "GET"})
        if not bucket.take():
            raise too_many_requests("Rate limit of the read-only port exceeded, please try again later.", 1)
        if req.info.resource == "secrets":
            raise forbidden("", "secrets", req.info.name, "secrets are not served on the read-only port")

    return Filter("read_only", before)
