"""Now and then a client is asked to open its connection anew, so that load spreads over several servers.

Upstream sends an HTTP/2 GOAWAY. Here the TLS front, which the flag starts, puts it between the frames of the HTTP server, which offers no
way to send one. Connections of HTTP/1.1 are left alone, as upstream, until the server ends.
"""

from __future__ import annotations

from random import random

from kas.filters.handler import Filter
from kas.request.http import Request, Response


def goaway(chance: float) -> Filter:
    """With this chance ask a client of HTTP/2 to connect anew, so that clients spread; what it has under way, as watches, goes on."""
    if chance <= 0:
        return Filter("goaway")

    def after(req: Request, resp: Response) -> None:
        if req.peer is not None and random() < chance and not req.http_version.startswith("1"):
            req.peer.leave()

    return Filter("goaway", None, after)


def send_away(req: Request, resp: Response) -> None:
    """Ask a client to connect anew, with its answer."""
    if req.long_running:
        return
    if req.http_version.startswith("1"):
        if (b"connection", b"close") not in resp.headers:  # a refusal may have said it
            resp.headers.append((b"connection", b"close"))
    elif req.peer is not None:
        req.peer.leave()
