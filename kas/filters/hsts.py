"""Strict-Transport-Security on every response (``--strict-transport-security-directives``)."""

from __future__ import annotations

from kas.filters.handler import Filter
from kas.request.http import Request, Response


def hsts(directives: list[str]) -> Filter:
    """Sends Strict-Transport-Security (RFC 6797); does nothing without directives."""
    if not directives:
        return Filter("hsts")
    header = (b"strict-transport-security", "; ".join(directives).encode())

    def after(req: Request, resp: Response) -> None:
        resp.headers.append(header)

    return Filter("hsts", None, after)
