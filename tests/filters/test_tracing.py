"""W3C trace context."""

from __future__ import annotations

from kas.filters.tracing import tracing
from tests.filters.requests import request


def test_an_invalid_traceparent_is_dropped():
    good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    req = request(traceparent=good)
    tracing().before(req)
    assert req.header(b"traceparent") == good
    req = request(traceparent="00-zz-1-1")
    tracing().before(req)
    assert req.header(b"traceparent") == ""
