"""The timeout that a client asks for with ``?timeout=``."""

from __future__ import annotations

from kas.meta import duration
from kas.meta.errors import bad_request
from kas.request.http import Request


def asked_timeout(req: Request) -> float:
    """The timeout in seconds, 0 if none is given. Raises ApiError 400 if it is not a duration."""
    given = req.params.get("timeout")
    try:
        return duration.seconds(given) if given else 0.0
    except ValueError as e:
        raise bad_request(f"invalid timeout specified in the request URL - {e}") from None
