"""503 with Retry-After while the server is not yet complete: upstream's WithMuxAndDiscoveryComplete."""

from __future__ import annotations

from collections.abc import Callable

from kas.api.errors import ApiError
from kas.edge.http import Request
from kas.filters.chain import Filter


def mux_complete(is_complete: Callable[[], bool]) -> Filter:
    done = False

    def before(req: Request) -> None:
        nonlocal done
        if done or req.path in ("/healthz", "/livez", "/readyz"):
            return
        if not is_complete():
            raise ApiError(503, "ServiceUnavailable", "the server is still starting", {"retryAfterSeconds": 1}, {"retry-after": "1"})
        done = True

    return Filter("mux_complete", before)
