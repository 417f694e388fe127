"""Now and then a client is asked to open its connection anew, so that load spreads over several servers.

Upstream sends an HTTP/2 GOAWAY. The HTTP server here offers no way to send one, so an HTTP/1.1 answer carries
``Connection: close`` instead and HTTP/2 connections stay.
"""

from __future__ import annotations

from random import random

from kas.filters.handler import Filter
from kas.request.http import Request, Response


def goaway(chance: float) -> Filter:
    """With this chance ask an HTTP/1 client to connect anew, so that clients spread; long-running requests are left alone."""
    if chance <= 0:
        return Filter("goaway")

    def after(req: Request, resp: Response) -> None:
        if req.http_version.startswith("1") and not req.long_running and random() < chance:
            resp.headers.append((b"connection", b"close"))

    return Filter("goaway", None, after)
