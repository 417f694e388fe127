"""The answer to a bug: 500 without internals, logged with the audit id, counted."""

from __future__ import annotations

import logging

from kas.api.errors import ApiError
from kas.edge.http import Request, Response
from kas.endpoints.respond import status
from kas.observe.metrics import Registry

log = logging.getLogger("kas.panic")

METRIC = "apiserver_request_panics_total"
MESSAGE = "This request caused apiserver to panic. Look in the logs for details."


def panic_response(req: Request, exc: BaseException, registry: Registry) -> Response:
    log.error('apiserver panic\'d on %s %s audit-ID="%s"', req.method, req.path, req.audit_id, exc_info=exc)
    counter = registry.metrics.get(METRIC) or registry.counter(METRIC, "Number of requests answered 500 because of a bug.")
    counter.values[()] = counter.values.get((), 0) + 1  # type: ignore[assignment,operator]
    return status(req, ApiError(500, "InternalError", MESSAGE, {}))
