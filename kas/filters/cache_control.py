"""``Cache-Control: no-cache, private`` on every answer that does not say otherwise."""

from __future__ import annotations

from kas.filters.handler import Filter
from kas.request.http import Request, Response


def cache_control() -> Filter:
    """Keep responses out of caches, unless their handler said otherwise."""
    header = (b"cache-control", b"no-cache, private")

    def after(req: Request, resp: Response) -> None:
        for name, _ in resp.headers:
            if name == b"cache-control":
                return
        resp.headers.append(header)

    return Filter("cache_control", None, after)
