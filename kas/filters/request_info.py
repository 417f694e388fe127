"""RequestInfo of a request, and whether it is long-running."""

from __future__ import annotations

from kas._fastpath import RequestInfoFilter
from kas.endpoints.respond import plain_internal_error
from kas.filters.handler import Filter
from kas.request.http import Request, Response
from kas.request.requestinfo import Query, RequestInfoError

LONG_RUNNING_VERBS = frozenset(("watch", "proxy"))
LONG_RUNNING_SUBRESOURCES = frozenset(("attach", "exec", "proxy", "log", "portforward"))
# Query strings that share one parsed object over all requests: none, what clients' caches begin with, and how kubectl
# lists.
USUAL = ("", "resourceVersion=0", "limit=500&resourceVersion=0", "limit=500")


def request_info() -> Filter:
    """Sets RequestInfo and whether the request is long-running; 500 in plain text if it cannot be determined."""

    def refused(req: Request, e: RequestInfoError) -> Response:
        return plain_internal_error(req, f"failed to create RequestInfo: {e}")

    usual = {text: Query(text) for text in USUAL}
    return Filter("request_info", RequestInfoFilter(usual, Query, LONG_RUNNING_VERBS, LONG_RUNNING_SUBRESOURCES, refused))
