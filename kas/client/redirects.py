"""Answers of webhooks that say where to ask instead, followed as Go's ``http.Client`` does: 307 and 308 with the same question, others with
a GET. Credentials are shown to the host alone that they are for."""

from __future__ import annotations

from urllib.parse import unquote, urljoin, urlsplit

from kas.client.exchange import exchange
from kas.client.http import BackendError, Headers, Target, request_head
from kas.client.pool import Answer, said

MOST = 10  # requests for one answer
_AGAIN, _OTHERWISE = (307, 308), (301, 302, 303)


class Asked:
    """What was asked last, for whoever tells of it."""

    def __init__(self, target: Target) -> None:
        self.op, self.url = "Post", target.url


def leads_on(answer: Answer) -> bool:
    """Whether the answer names another place."""
    return bool(answer.location) and answer.status in _AGAIN + _OTHERWISE


async def follow(answer: Answer, asked: Asked, first: Target, headers: Headers, own: Headers, body: bytes, limit: int) -> Answer:
    """The answer at the end of all redirects. ``headers`` are those of the question to ``first``, ``own`` those that only its host is to
    see. Raises BackendError; ``asked`` is of what failed."""
    target, method = first, "POST"
    for _ in range(MOST - 1):
        if not leads_on(answer):
            return answer
        if answer.status in _OTHERWISE:
            method, body = "GET", b""
            headers = [h for h in headers if h[0] != b"content-type"]
        before, target = target, _next(first, target, answer.location, asked)
        asked.op, asked.url = method.capitalize(), target.url
        shown = [*headers, *(own if target.authority == first.authority else ())]
        if before.scheme == target.scheme or target.scheme == "https":
            shown.append((b"referer", before.url.encode("latin-1")))
        connection = await exchange(target)
        try:
            found: bytes = await connection.post(request_head(method, target, shown), body, limit + 1)
        finally:
            connection.close()
        answer = said(connection, found)
    if leads_on(answer):
        asked.url = answer.location
        raise BackendError(f"stopped after {MOST} redirects")
    return answer


def _next(first: Target, now: Target, location: str, asked: Asked) -> Target:
    try:
        parts = urlsplit(urljoin(now.url, location))
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise BackendError(f'failed to parse Location header "{location}"') from None
    asked.url = location
    if parts.scheme not in ("http", "https"):
        raise BackendError(f'unsupported protocol scheme "{parts.scheme}"')
    if not host:
        raise BackendError("http: no Host in request URL")
    tls = first.tls if parts.scheme == "https" else None
    return Target(parts.scheme, host, str(port or ""), unquote(parts.path) or "/", parts.query, tls, first.tls_name, first.via)
