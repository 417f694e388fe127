"""The response to an unexpected exception: 500 without internals, logged with the audit id, and counted."""

from __future__ import annotations

import logging

from kas.endpoints.respond import status
from kas.filters.handler import Filter
from kas.meta.errors import ApiError
from kas.meta.field import go_quote
from kas.observe.metrics import Registry
from kas.request.http import Request, Response
from kas.request.masking import SHOWN_ID

log = logging.getLogger("kas.panic")

METRIC = "apiserver_request_panics_total"
MESSAGE = "This request caused apiserver to panic. Look in the logs for details."


def panic_recovery(registry: Registry) -> Filter:
    """Answers unexpected exceptions with 500, logs them with their traceback and counts them."""
    panics = registry.counter(METRIC, "Number of requests answered 500 because of a bug.")

    def recover(req: Request, exc: BaseException) -> Response:
        log.error('apiserver panic\'d on %s %s audit-ID="%s"', req.method, go_quote(req.path), req.audit_id[:SHOWN_ID], exc_info=exc)
        panics.inc()
        if req.audit is not None:
            req.audit.panicked = type(exc).__name__
        return status(req, ApiError(500, "InternalError", MESSAGE, {}))

    return Filter("panic_recovery", recover=recover)
