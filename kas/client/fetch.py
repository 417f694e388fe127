"""GET of a document at a URL from a configuration: bounded in size and time, with redirects followed as Go's ``http.Client`` does."""

from __future__ import annotations

import asyncio
import ssl
from urllib.parse import unquote, urljoin, urlsplit

from kas.client.http import BackendError, Headers, Target, Via, connect
from kas.meta.records import NamedTuple

MAX_REDIRECTS = 10
REDIRECTS = frozenset((301, 302, 303, 307, 308))


class Fetched(NamedTuple):
    """A response; ``reason`` is the text of its status line."""

    status: int
    reason: str
    body: bytes


async def get(url: str, tls: ssl.SSLContext, headers: Headers, limit: int, timeout_s: float, via: Via | None = None) -> Fetched:
    """Returns the response, after at most ten redirects. ``tls`` is for https URLs, ``via`` how to connect. An
    Authorization header is not sent to another host. Raises BackendError: unreachable, not HTTP, more than ``limit``
    bytes, or not done after ``timeout_s``."""
    try:
        async with asyncio.timeout(timeout_s):
            return await _follow(url, tls, headers, limit, via)
    except TimeoutError:
        raise BackendError(f'Get "{url}": context deadline exceeded') from None
    except BackendError as e:
        raise BackendError(f'Get "{url}": {e}') from None


async def _follow(url: str, tls: ssl.SSLContext, headers: Headers, limit: int, via: Via | None) -> Fetched:
    for _ in range(MAX_REDIRECTS):
        target = _target(url, tls)._replace(via=via)
        connection = await connect(target)
        try:
            await connection.send("GET", target, [*headers, (b"connection", b"close")])
            await connection.head(None)
            location = connection.header(b"location").decode("latin-1")
            if connection.status in REDIRECTS and location:
                url = urljoin(url, location)
                if _target(url, tls).authority != target.authority:
                    headers = [h for h in headers if h[0] != b"authorization"]
                continue
            body = await connection.read(limit + 1)
        finally:
            connection.close()
        if len(body) > limit:
            raise BackendError(f"the answer is larger than {limit} bytes")
        return Fetched(connection.status, connection.reason, body)
    raise BackendError(f"stopped after {MAX_REDIRECTS} redirects")


def _target(url: str, tls: ssl.SSLContext) -> Target:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError as e:
        raise BackendError(f"parse {url}: {e}") from None
    if parts.scheme not in ("http", "https"):
        raise BackendError(f'unsupported protocol scheme "{parts.scheme}"')
    if not host:
        raise BackendError("http: no Host in request URL")
    secured = tls if parts.scheme == "https" else None
    return Target(parts.scheme, host, str(port or ""), unquote(parts.path) or "/", parts.query, secured)
