"""What the request is about (RequestInfo), and whether it is long-running."""

from __future__ import annotations

from kas.endpoints.respond import plain_internal_error
from kas.filters.handler import Filter
from kas.request.http import Request, Response
from kas.request.requestinfo import Query, RequestInfoError, parse

LONG_RUNNING_VERBS = frozenset(("watch", "proxy"))
LONG_RUNNING_SUBRESOURCES = frozenset(("attach", "exec", "proxy", "log", "portforward"))
# Queries of which one view is enough for all requests: none, what clients' caches begin with, and how kubectl lists.
USUAL = ("", "resourceVersion=0", "limit=500&resourceVersion=0", "limit=500")


def request_info() -> Filter:
    """Say of the request what it is about, and whether it is long-running; 500 in plain text for what cannot be told."""
    usual = {text: Query(text) for text in USUAL}

    def before(req: Request) -> Response | None:
        known = usual.get(req.query)
        req.params = known if known is not None else Query(req.query)
        try:
            info = parse(req.method, req.path, req.params)
        except RequestInfoError as e:
            return plain_internal_error(req, f"failed to create RequestInfo: {e}")
        req.info = info
        if info.is_resource_request:
            req.long_running = info.verb in LONG_RUNNING_VERBS or info.subresource in LONG_RUNNING_SUBRESOURCES
        else:
            req.long_running = req.path.startswith("/debug/pprof/")
        return None

    return Filter("request_info", before)
