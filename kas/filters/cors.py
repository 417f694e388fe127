"""Cross-origin requests of browsers (upstream's ``WithCORS``). Off without ``--cors-allowed-origins``."""

from __future__ import annotations

from kas.filters.handler import Filter
from kas.request.http import Request, Response

METHODS = b"POST, GET, OPTIONS, PUT, DELETE, PATCH"
ALLOW_HEADERS = b"Content-Type, Content-Length, Accept-Encoding, X-CSRF-Token, Authorization, X-Requested-With, If-Modified-Since"
EXPOSE_HEADERS = b"Date"


def cors(allowed_origins: list[str]) -> Filter:
    """Answers preflights and marks responses for origins that match one of the regular expressions (Go's, which take
    linear time); does nothing without any."""
    if not allowed_origins:
        return Filter("cors")
    from kas.meta import regex  # with Unicode's classes; few servers get requests from other sites

    patterns = [regex.compiled(p) for p in allowed_origins]

    def allowed(origin: str) -> bool:
        return any(p.search(origin) for p in patterns)

    def before(req: Request) -> Response | None:
        origin = req.header(b"origin")
        # A preflight is answered here, without credentials.
        if req.method == "OPTIONS" and origin and allowed(origin):
            return Response(204, [])
        return None

    def after(req: Request, resp: Response) -> None:
        origin = req.header(b"origin")
        if not origin or not allowed(origin):
            return
        resp.headers += [
            (b"access-control-allow-origin", origin.encode("latin-1")),
            (b"access-control-allow-methods", METHODS),
            (b"access-control-allow-headers", ALLOW_HEADERS),
            (b"access-control-expose-headers", EXPOSE_HEADERS),
            (b"access-control-allow-credentials", b"true"),
            (b"vary", b"Origin"),
        ]

    return Filter("cors", before, after)
