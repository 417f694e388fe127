"""Headers of every answer: HSTS, Cache-Control and the Warnings collected on the way."""

from __future__ import annotations

from kas.edge.http import Request, Response
from kas.filters.chain import Filter

MAX_WARNING_BYTES = 4 * 1024  # of all warnings together, as upstream truncates
MAX_TRUNCATED = 256


def hsts(directives: list[str]) -> Filter:
    if not directives:
        return Filter("hsts")
    header = (b"strict-transport-security", "; ".join(directives).encode())

    def after(req: Request, resp: Response) -> None:
        resp.headers.append(header)

    return Filter("hsts", None, after)


def cache_control() -> Filter:
    header = (b"cache-control", b"no-cache, private")

    def after(req: Request, resp: Response) -> None:
        for name, _ in resp.headers:
            if name == b"cache-control":
                return
        resp.headers.append(header)

    return Filter("cache_control", None, after)


def warnings() -> Filter:
    """``Warning: 299 - "text"`` headers (RFC 7234; net.NewWarningHeader)."""

    def after(req: Request, resp: Response) -> None:
        if not req.warnings or any(h[0] == b"warning" for h in resp.headers):
            return
        room = MAX_WARNING_BYTES
        truncate = sum(len(w) for w in req.warnings) > room
        for text in req.warnings:
            if truncate and len(text) > MAX_TRUNCATED:
                text = text[:MAX_TRUNCATED]
            room -= len(text)
            if room < 0:
                return
            resp.headers.append((b"warning", b'299 - "' + _quote(text) + b'"'))

    return Filter("warnings", None, after)


def _quote(text: str) -> bytes:
    clean = "".join(c if c >= " " and c != "\x7f" else " " for c in text)
    return clean.replace("\\", "\\\\").replace('"', '\\"').encode("utf-8")
