"""The answer to a bug: 500 without internals, logged with the audit id, counted."""

from __future__ import annotations

import logging

from kas.api.errors import ApiError
from kas.edge.http import Request, Response
from kas.endpoints.respond import status
from kas.observe.metrics import Registry

log = logging.getLogger("kas.panic")

MESSAGE = "This request caused apiserver to panic. Look in the logs for details."


def panic_response(req: Request, exc: BaseException, registry: Registry) -> Response:
    log.error('apiserver panic\'d on %s %s audit-ID="%s"', req.method, req.path, req.audit_id, exc_info=exc)
    counter = registry.metrics.get("apiserver_request_panics_total")
    if counter is None:
        counter = registry.counter("apiserver_request_panics_total", "Number of requests answered 500 because of a bug.")
    counter.inc()
    return status(req, ApiError(500, "InternalError", MESSAGE, {}))
