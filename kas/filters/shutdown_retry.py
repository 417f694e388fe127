"""429 with Retry-After for requests that come too late, during a shutdown, or too early, so that the client goes
elsewhere or comes back."""

from __future__ import annotations

from collections.abc import Callable

from kas.filters.handler import Filter
from kas.meta.errors import service_unavailable, too_many_requests
from kas.request.http import Request

EXEMPT = ("/healthz", "/livez", "/readyz", "/metrics")
OWN = "kube-apiserver/"  # the user agent of upstream's server for its own requests; it is exempt without authentication


def shutdown_retry(not_accepting: Callable[[], bool], send_retry_after: bool = True) -> Filter:
    """Answers 429 with Retry-After once the server shuts down, or 503 without ``send_retry_after``; health checks and metrics pass."""
    def before(req: Request) -> None:
        if not_accepting() and not req.path.startswith(EXEMPT):
            if not send_retry_after:
                late = service_unavailable("apiserver is shutting down")
                late.headers = {"retry-after": "1"}
                raise late
            e = too_many_requests("The apiserver is shutting down, please try again later.", 5)
            e.headers = {"retry-after": "5", "connection": "close"} if req.http_version != "2" else {"retry-after": "5"}
            raise e

    return Filter("shutdown_retry", before)


def not_ready_retry(been_ready: Callable[[], bool]) -> Filter:
    """Answers 429 with Retry-After until the server has been ready once; health checks, metrics and the server's own requests pass."""
    def before(req: Request) -> None:
        if not been_ready() and not req.path.startswith(EXEMPT) and not req.header(b"user-agent").startswith(OWN):
            e = too_many_requests("The apiserver hasn't been fully initialized yet, please try again later.", 5)
            e.headers = {"retry-after": "5"}
            raise e

    return Filter("not_ready_retry", before)
