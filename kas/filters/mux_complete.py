"""503 with Retry-After while the server is not complete yet: upstream's WithMuxAndDiscoveryComplete."""

from __future__ import annotations

from collections.abc import Callable

from kas.filters.handler import Filter
from kas.meta.errors import ApiError
from kas.request.http import Request


def mux_complete(is_complete: Callable[[], bool]) -> Filter:
    """Answers 503 with Retry-After until everything is installed; health checks pass."""
    done = False

    def before(req: Request) -> None:
        nonlocal done
        if done or req.path in ("/healthz", "/livez", "/readyz"):
            return
        if not is_complete():
            raise ApiError(503, "ServiceUnavailable", "the server is still starting", {"retryAfterSeconds": 1}, {"retry-after": "1"})
        done = True

    return Filter("mux_complete", before)
