"""W3C trace context: a valid ``traceparent`` is kept for the log and echoed to nobody; an invalid one is dropped.

Without an exporter configured there is no span to record, so this is all that is due.
"""

from __future__ import annotations

import re

from kas.filters.handler import Filter
from kas.request.http import Request

_TRACEPARENT = re.compile(r"\A[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}\Z")


def tracing() -> Filter:
    """Drop a traceparent header that is malformed (W3C Trace Context)."""
    def before(req: Request) -> None:
        given = req.header(b"traceparent")
        if given and not _TRACEPARENT.match(given):
            req.drop_header(b"traceparent")

    return Filter("tracing", before)
