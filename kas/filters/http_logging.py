"""One log line per request at -v 3, as in upstream's ``httplog``."""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic

from kas.filters.handler import Filter
from kas.meta.field import go_quote
from kas.observe.logs import EVERY
from kas.request.http import Request, Response
from kas.request.masking import SHOWN_ID, request_uri, shortened

log = logging.getLogger("kas.http")


# Upstream's ``NormalizedVerb``.
READS = {"list": "LIST", "watch": "WATCH"}
CONNECTS = frozenset(("log", "exec", "portforward", "attach", "proxy"))
APPLIES = ("application/apply-patch+yaml", "application/apply-patch+cbor")


def _verb(req: Request) -> str:
    """The request's verb in upstream's log and metrics."""
    info = req.info
    if info is None or not info.is_resource_request:
        return "GET" if req.method == "HEAD" else req.method
    if info.subresource in CONNECTS:
        return "CONNECT"
    if req.method in ("GET", "HEAD"):
        return READS.get(info.verb, "GET")
    if req.method == "PATCH" and req.header(b"content-type") in APPLIES:
        return "APPLY"
    return req.method


def http_logging(verbosity: int, now: Callable[[], int] | None = None) -> Filter:
    """Logs each request with its latency in milliseconds; does nothing below verbosity 3. ``now()`` is the verbosity if it may change.

    Texts are quoted as klog quotes them, so that a path with a line break stays in its line; credentials in a query
    are masked.
    """
    if verbosity < 3 and now is None:
        return Filter("http_logging")

    def after(req: Request, resp: Response) -> None:
        if now is not None and now() < 3:
            return
        user = req.user.name if req.user is not None else ""
        log.info(
            '"HTTP" verb=%s URI=%s latency="%.3fms" userAgent=%s audit-ID=%s srcIP=%s user=%s resp=%d',
            go_quote(_verb(req)), go_quote(shortened(request_uri(req))),
            (monotonic() - req.started) * 1000,
            go_quote(shortened(req.header(b"user-agent"))), go_quote(req.audit_id[:SHOWN_ID]), go_quote(req.client),
            go_quote(shortened(user)), resp.status, extra=EVERY,
        )  # fmt: skip

    return Filter("http_logging", None, after)
