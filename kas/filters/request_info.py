"""What the request is about (RequestInfo), and whether it is long-running."""

from __future__ import annotations

from kas.api.errors import internal
from kas.api.requestinfo import Query, RequestInfoError, parse
from kas.edge.http import Request
from kas.filters.chain import Filter

LONG_RUNNING_VERBS = frozenset(("watch", "proxy"))
LONG_RUNNING_SUBRESOURCES = frozenset(("attach", "exec", "proxy", "log", "portforward"))


def request_info() -> Filter:
    nothing = Query("")

    def before(req: Request) -> None:
        req.params = Query(req.query) if req.query else nothing
        try:
            info = parse(req.method, req.path, req.params)
        except RequestInfoError as e:
            raise internal(f"failed to create RequestInfo: {e}") from None
        req.info = info
        if info.is_resource_request:
            req.long_running = info.verb in LONG_RUNNING_VERBS or info.subresource in LONG_RUNNING_SUBRESOURCES
        else:
            req.long_running = req.path.startswith("/debug/pprof/")

    return Filter("request_info", before)
