"""Asks a client to reconnect now and then, so that load spreads over several servers.

Upstream sends an HTTP/2 GOAWAY. Here the TLS front, which the flag starts, inserts it between the frames of granian,
which has no way to send one. As in upstream, HTTP/1.1 connections are left alone until the server ends.
"""

from __future__ import annotations

from random import random

from kas.filters.handler import Filter
from kas.request.http import Request, Response


def goaway(chance: float) -> Filter:
    """With this probability asks an HTTP/2 client to reconnect. Its requests in progress, such as watches, go on."""
    if chance <= 0:
        return Filter("goaway")

    def after(req: Request, resp: Response) -> None:
        if req.peer is not None and random() < chance and not req.http_version.startswith("1"):
            req.peer.leave()

    return Filter("goaway", None, after)


def send_away(req: Request, resp: Response) -> None:
    """Asks a client to reconnect, together with its response."""
    if req.long_running:
        return
    if req.http_version.startswith("1"):
        if (b"connection", b"close") not in resp.headers:  # a refusal may have it already
            resp.headers.append((b"connection", b"close"))
    elif req.peer is not None:
        req.peer.leave()
