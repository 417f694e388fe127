"""Forwards requests to a backend: nodes/proxy, pods/proxy and services/proxy (apimachinery's ``util/proxy``).

The response is streamed: a piece is read from the backend after the client has taken the previous one. Hop-by-hop and identity headers
are not forwarded in either direction, and the backend's CORS headers are dropped. Redirects are never followed; they are returned to the
client, rewritten below the proxy's own path like the links in HTML pages.
"""

from __future__ import annotations

import posixpath
from collections.abc import AsyncIterator, Callable
from urllib.parse import quote, urlsplit, urlunsplit

from kas.auth.user import tenant
from kas.client.http import PATH_SAFE, BackendError, Connection, Target
from kas.client.outgoing import connect_for
from kas.endpoints.proxy_websocket import WebSocket, open_websocket, relay
from kas.meta import errors
from kas.meta.errors import ApiError
from kas.request.http import Headers, Request, Response, Stream, Write
from kas.request.websocket import CLOSE_INTERNAL, Socket, Upgrade, WebSocketRequest

HOP_BY_HOP = frozenset((
    b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te", b"trailer",
    b"transfer-encoding", b"upgrade",
))  # fmt: skip
# Set again for the forwarded request.
OWN = frozenset((b"host", b"content-length", b"expect", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto", b"x-forwarded-uri"))
IDENTITY = frozenset((b"authorization",))
IDENTITY_PREFIXES = (b"impersonate-", b"x-remote-")
CORS = frozenset((
    b"access-control-allow-origin", b"access-control-allow-credentials", b"access-control-allow-headers",
    b"access-control-allow-methods", b"access-control-expose-headers", b"access-control-max-age",
))  # fmt: skip
MAX_REFUSAL = 64 << 10


def joined(base: str, path: str) -> str:
    """Return Go's ``path.Join``, but keep a trailing slash; "" if both parts are empty."""
    if not base and not path:
        return ""
    out = posixpath.normpath("/" + f"{base}/{path}".lstrip("/"))
    if path.endswith("/") and not out.endswith("/"):
        out += "/"
    return out


async def forward(req: Request, target: Target, path: str) -> Response:
    """Forward the request to ``target`` at ``path`` and return the response. Raises 503 if the backend cannot be reached."""
    target = target._replace(path=joined(target.path, path), query=req.query)
    host = req.header(b"host")
    if isinstance(req, WebSocketRequest):
        return await _upgrade(req, target, request_headers(req), host)
    if not target.path:
        # Without the slash, relative links in the response would be resolved wrongly (kubernetes#4958).
        location = req.path + "/" + (f"?{req.query}" if req.query else "")
        return Response(301, [(b"location", quote(location, safe=PATH_SAFE + "?%=&").encode())])
    try:
        connection = await connect_for(tenant(req.user.name), target)
    except BackendError as e:
        raise _unreachable(e) from None
    try:
        await connection.send(req.method, target, [*request_headers(req), (b"connection", b"close")], req.body, host)
        await connection.head()
    except BackendError as e:
        connection.close()
        raise _unreachable(e) from None
    except BaseException:
        connection.close()
        raise
    if connection.status == 101:
        # No upgrade was requested. If it were forwarded, the connection would become a tunnel that bypasses every check.
        connection.close()
        raise _unreachable(BackendError("unexpected protocol"))
    prepend = req.path.removesuffix(target.path)

    def relocate(url: str) -> str:
        return _relocated(url, prepend, target, host)

    headers, encoding = answer_headers(connection, relocate), connection.header(b"content-encoding").decode("latin-1")
    page = connection.header(b"content-type").partition(b";")[0].strip() == b"text/html"
    if not page or connection.header(b"location"):
        return Response(connection.status, headers, stream=piped(connection))
    from kas.endpoints.proxy_html import ENCODINGS, relinked  # loads the HTML entities, a third of a MiB, and few clients request pages

    if encoding not in ENCODINGS:
        return Response(connection.status, headers, stream=piped(connection))
    headers = [h for h in headers if h[0] != b"content-length"]
    return Response(connection.status, headers, stream=piped(connection, lambda pieces: relinked(pieces, encoding, relocate)))


def piped(connection: Connection, through: Callable[[AsyncIterator[bytes]], AsyncIterator[bytes]] = lambda pieces: pieces) -> Stream:
    """Return the backend's body, passed through ``through``, as a response stream.

    The connection is closed when the body or the client ends.
    """

    async def stream(write: Write) -> None:
        try:
            async for piece in through(connection.body()):
                if piece:
                    await write(piece)
        except (BackendError, ValueError) as e:
            raise _unreachable(e) from None  # too late for an error response: the client sees a truncated body
        finally:
            connection.close()

    return stream


def request_headers(req: Request) -> Headers:
    """Return the client's headers to forward to the backend."""
    named = {h.strip().lower().encode("latin-1", "replace") for h in req.header(b"connection").split(",")}
    out: Headers = []
    for name, value in req.headers:
        if name in HOP_BY_HOP or name in OWN or name in IDENTITY or name in named or name.startswith(IDENTITY_PREFIXES):
            continue
        if not name.startswith((b":", b"sec-websocket-")):
            out.append((name, value))
    before = req.header(b"x-forwarded-for")
    out.append((b"x-forwarded-for", f"{before}, {req.client}".encode() if before else req.client.encode()))
    out.append((b"x-forwarded-host", req.raw_header(b"host")))
    out.append((b"x-forwarded-proto", req.scheme.encode()))
    out.append((b"x-forwarded-uri", quote(req.path, safe=PATH_SAFE).encode()))
    return out


def answer_headers(connection: Connection, relocate=None) -> Headers:
    """Return the backend's headers to forward to the client."""
    named = {h.strip().lower() for h in connection.header(b"connection").split(b",")}
    out: Headers = []
    for name, value in connection.headers:
        if name in HOP_BY_HOP or name in CORS or name in named:
            continue
        if name == b"location" and relocate is not None:
            value = relocate(value.decode("latin-1")).encode("latin-1", "replace")
        out.append((name, value))
    return out


def _relocated(location: str, prepend: str, target: Target, host: str) -> str:
    """Rewrite a redirect or link within the backend so that it leads through the proxy; others are returned unchanged."""
    try:
        url = urlsplit(location)
    except ValueError:
        return location
    if (url.netloc and url.netloc not in (target.authority, host)) or not url.path.startswith("/"):
        return location
    path = url.path if url.path.startswith(prepend) else joined(prepend, url.path)
    scheme, netloc = (url.scheme, url.netloc) if url.netloc == host else ("", "")
    return urlunsplit((scheme, netloc, path, url.query, url.fragment))


async def _upgrade(req: WebSocketRequest, target: Target, headers: Headers, host: str) -> Response:
    try:
        connection, backend = await open_websocket(target, headers, req.subprotocols, host, tenant(req.user.name))
    except BackendError as e:
        raise dialling(e) from None
    if backend is None:
        return await refused(req, connection)
    chosen = connection.header(b"sec-websocket-protocol").decode("latin-1")
    return upgraded(chosen, connection, backend)


def upgraded(chosen: str, connection: Connection, backend: WebSocket) -> Upgrade:
    """Return a response that relays the client's WebSocket to the backend's in both directions until one side ends."""
    async def talk(client: Socket) -> int:
        try:
            return await relay(client, backend)
        except BackendError:
            return CLOSE_INTERNAL

    return Upgrade(chosen, talk, connection.close)


async def refused(req: Request, connection: Connection) -> Response:
    """Return the backend's response to a rejected handshake."""
    handed_on(req)
    try:
        body = await connection.read(MAX_REFUSAL)
    except BackendError as e:
        raise dialling(e) from None
    finally:
        connection.close()
    if connection.status == 101:
        raise dialling(BackendError("unexpected protocol"))
    return Response(connection.status, [h for h in answer_headers(connection) if h[0] != b"content-length"], body)


def handed_on(req: Request) -> None:
    """Mark the response as foreign: it is kept out of the audit log, whose lines it could imitate."""
    if req.audit is not None:
        req.audit.handed_on = True


def dialling(e: BackendError) -> ApiError:
    """Return upstream's 500 for an upgrade whose backend cannot be reached."""
    return ApiError(500, "", f"error dialing backend: {e}")


def _unreachable(e: Exception) -> ApiError:
    return errors.service_unavailable(f"error trying to reach service: {e}")
