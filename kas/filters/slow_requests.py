"""A log line for each slow request that tells where its time went, at any verbosity (upstream logs a trace of such requests)."""

from __future__ import annotations

import logging
from time import monotonic

from kas.filters.handler import Filter
from kas.meta.field import go_quote
from kas.observe.logs import RateLimitedLog
from kas.request.http import Request, Response
from kas.request.masking import SHOWN_ID, request_uri, shortened

log = logging.getLogger("kas.http")

SLOW_S = 1.0


def slow_requests() -> Filter:
    """Logs a request, unless it is long-running, that took ``SLOW_S`` until its response began. The parts are the
    time before flow control (authentication, impersonation), the time in a queue, and the rest (authorization, body,
    admission, store), in milliseconds. Beyond a hundred in a second, requests are only counted."""
    told = RateLimitedLog(log, "%d more requests were slow")

    def after(req: Request, resp: Response) -> None:
        now = monotonic()
        took = now - req.started
        if took < SLOW_S or req.long_running or not told.one(now):
            return
        parts = ""
        if req.ticket is not None:
            arrived, began = req.ticket.arrived, req.ticket.began
            waited = began - arrived if began else took - (arrived - req.started)
            before = arrived - req.started
            parts = f' authentication="{before * 1e3:.3f}ms" queue="{waited * 1e3:.3f}ms" serving="{(took - before - waited) * 1e3:.3f}ms"'
        user = req.user.name if req.user is not None else ""
        log.warning(
            '"Slow request" verb=%s URI=%s latency="%.3fms"%s audit-ID=%s user=%s resp=%d',
            go_quote(req.info.verb if req.info else req.method), go_quote(shortened(request_uri(req))), took * 1e3, parts,
            go_quote(req.audit_id[:SHOWN_ID]), go_quote(shortened(user)), resp.status,
        )  # fmt: skip

    return Filter("slow_requests", None, after)
