"""429 with Retry-After for requests that come too late, during a shutdown, or too early, so that the client goes
elsewhere or comes back."""

from __future__ import annotations

from collections.abc import Callable

from kas.endpoints import respond
from kas.filters.handler import Filter
from kas.meta.errors import service_unavailable
from kas.request.http import Headers, Request, Response

EXEMPT = ("/healthz", "/livez", "/readyz", "/metrics")
OWN = "kube-apiserver/"  # the user agent of upstream's server for its own requests; it is exempt without authentication
RETRY_AFTER = (b"retry-after", b"5")


def is_exempt(req: Request) -> bool:
    """Whether a request is served also during a shutdown: health checks, metrics, and requests of API servers."""
    return req.path.startswith(EXEMPT) or req.header(b"user-agent").startswith(OWN)


def shutdown_retry(not_accepting: Callable[[], bool], send_retry_after: bool = True) -> Filter:
    """Answers 429 with Retry-After, as text, once the server shuts down, or 503 without ``send_retry_after``; exempt requests pass."""
    def before(req: Request) -> Response | None:
        if not not_accepting() or is_exempt(req):
            return None
        if not send_retry_after:
            late = service_unavailable("apiserver is shutting down")
            late.headers = {"retry-after": "1"}
            raise late
        headers: Headers = [RETRY_AFTER] if req.http_version == "2" else [RETRY_AFTER, (b"connection", b"close")]
        return respond.text(429, "The apiserver is shutting down, please try again later.\n", headers)

    return Filter("shutdown_retry", before)


def not_ready_retry(been_ready: Callable[[], bool]) -> Filter:
    """Answers 429 with Retry-After, as text, until the server has been ready once; exempt requests pass."""
    def before(req: Request) -> Response | None:
        if been_ready() or is_exempt(req):
            return None
        return respond.text(429, "The apiserver hasn't been fully initialized yet, please try again later.\n", [RETRY_AFTER])

    return Filter("not_ready_retry", before)
