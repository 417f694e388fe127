"""Late arrivals while shutting down: 429 with Retry-After, so that a client goes elsewhere or comes back."""

from __future__ import annotations

from collections.abc import Callable

from kas.filters.handler import Filter
from kas.meta.errors import too_many_requests
from kas.request.http import Request


def shutdown_retry(not_accepting: Callable[[], bool]) -> Filter:
    """Answer 429 with Retry-After once the server shuts down; health checks and metrics pass."""
    def before(req: Request) -> None:
        if not_accepting() and not req.path.startswith(("/healthz", "/livez", "/readyz", "/metrics")):
            e = too_many_requests("The apiserver is shutting down, please try again later.", 5)
            e.headers = {"retry-after": "5", "connection": "close"} if req.http_version != "2" else {"retry-after": "5"}
            raise e

    return Filter("shutdown_retry", before)
