"""Late arrivals while shutting down: 429 with Retry-After, so that a client goes elsewhere or comes back."""

from __future__ import annotations

from collections.abc import Callable

from kas.api.errors import too_many_requests
from kas.edge.http import Request
from kas.filters.chain import Filter


def shutdown_retry(not_accepting: Callable[[], bool]) -> Filter:
    def before(req: Request) -> None:
        if not_accepting() and not req.path.startswith(("/healthz", "/livez", "/readyz", "/metrics")):
            e = too_many_requests("The apiserver is shutting down, please try again later.", 5)
            e.headers = {"retry-after": "5", "connection": "close"} if req.http_version != "2" else {"retry-after": "5"}
            raise e

    return Filter("shutdown_retry", before)
