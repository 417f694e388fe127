"""A WebSocket handshake is a GET without a body (RFC 6455 4.1)."""

from __future__ import annotations

from kas.filters.handler import Filter
from kas.meta.errors import bad_request
from kas.request.http import Request
from kas.request.websocket import WebSocketRequest


def handshake() -> Filter:
    """Refuses a handshake with a body with 400. granian passes on all handshakes without their method, so a POST
    that asks for a WebSocket would be answered like a GET of its path."""

    def before(req: Request) -> None:
        if isinstance(req, WebSocketRequest) and (req.has_header(b"content-length") or req.has_header(b"transfer-encoding")):
            raise bad_request("a WebSocket handshake must be a GET request without a body")

    return Filter("handshake", before)
