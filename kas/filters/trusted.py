"""Who asks on the insecure port: everybody is the server itself (system:masters)."""

from __future__ import annotations

from kas.auth.user import LOOPBACK_USER
from kas.filters.handler import Filter
from kas.request.http import Request


def trusted() -> Filter:
    """Every request is the loopback user's; its Authorization header is dropped."""
    def before(req: Request) -> None:
        req.user = LOOPBACK_USER
        req.drop_header(b"authorization")

    return Filter("trusted", before)
