"""Forwarding of requests to the API server behind an APIService (upstream: ``kube-aggregator/pkg/apiserver/handler_proxy.go``).

A request is authenticated and authorized here. The backend receives the user in headers (``transport.user_headers``), but no credential.
Bodies are streamed in both directions with back-pressure. The backend's response is returned unchanged, except for redirects.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Hashable, Sequence
from typing import Protocol
from urllib.parse import quote_plus

from kas.aggregator.apiservices import APIService
from kas.aggregator.idle import IdleConnections
from kas.aggregator.transport import PROBER, TLSContexts, TransportError, user_headers
from kas.auth.user import UserInfo, tenant
from kas.client.http import BackendError, Connection, Target, Via, connect
from kas.client.outgoing import connect_for, hold
from kas.client.services import OWN, ResolveError
from kas.endpoints.proxy import answer_headers, handed_on, request_headers, upgraded
from kas.endpoints.proxy_websocket import open_websocket
from kas.endpoints.respond import text
from kas.meta.errors import service_unavailable, too_many_requests
from kas.observe import tracing
from kas.request.http import Headers, Request, Response, Result, Stream, Write
from kas.request.websocket import WebSocketRequest

UNAVAILABLE = "service unavailable\n"
REDIRECTED = "the backend attempted to redirect this request, which is not permitted"
MAX_REFUSAL = 64 << 10
PROBE_S = 5.0
# Methods that may be repeated if a connection turns out to be closed (as in Go's http.Transport).
REPEATABLE = frozenset(("GET", "HEAD", "OPTIONS"))
# Request headers that this server sets instead of the client's.
SAID_ANEW = frozenset((b"audit-id", b"traceparent", b"x-forwarded-host", b"x-forwarded-proto"))
# Response headers of the backend that are dropped, since this server sets them.
OURS = frozenset((b"audit-id",))


class Resolver(Protocol):
    """Finds the addresses of Services."""

    def resolve(self, namespace: str, name: str, port: int) -> tuple[str, int]:
        """Return host and port. Raises ResolveError."""


class Proxy:
    """``most`` bounds the requests (except streams) waiting for one backend at a time: so a hanging backend occupies at most that much of
    the server's capacity, and further requests get a 429. ``via`` is the route to backends, None for direct connections; ``mark`` are
    headers added to forwarded requests."""

    def __init__(
        self, resolver: Resolver, contexts: TLSContexts, most: int, with_uid: bool = True, reject_redirects: bool = True,
        via: Via | None = None, mark: Sequence[tuple[bytes, bytes]] = (),
    ) -> None:  # fmt: skip
        self._mark = list(mark)
        self._resolver, self._contexts, self._most = resolver, contexts, most
        self._with_uid, self._reject_redirects, self._via = with_uid, reject_redirects, via
        self._running: dict[str, int] = {}
        self._idle = IdleConnections()

    def close(self) -> None:
        """Close idle connections."""
        self._idle.close()

    def target(self, service: APIService) -> tuple[Target, tuple[str, int]]:
        """Return the target of requests, and the host and port to connect to. Raises ResolveError and TransportError."""
        assert service.service is not None
        tls = self._contexts.of(service.ca_bundle, service.insecure)
        host, port = self._resolver.resolve(*service.service)
        return Target("https", host, str(port), tls=tls, tls_name=service.service.server_name, via=self._way(service)), (host, port)

    def _way(self, service: APIService) -> Via | None:
        return None if service.service is None or service.service[:3] == OWN else self._via

    def handle(self, service: APIService, req: Request) -> Result:
        """Return the backend's response; 503 at once if it is not available."""
        if not service.available:
            return text(503, UNAVAILABLE)
        ready = self._contexts.ready(service.ca_bundle, service.insecure)
        return self._handle(service, req) if ready is None else self._handle_later(ready, service, req)

    async def _handle_later(self, ready: Awaitable[object], service: APIService, req: Request) -> Response:
        await ready
        result = self._handle(service, req)
        return result if isinstance(result, Response) else await result

    def _handle(self, service: APIService, req: Request) -> Result:
        try:
            target, _ = self.target(service)
            identity = user_headers(req.user, self._with_uid)
        except TransportError as e:
            return text(500, f"{e}\n")
        except ResolveError:
            return text(503, UNAVAILABLE)
        except ValueError as e:
            return _failed(str(e))
        # Encoded like Go's url.Values.Encode: parameters that cannot be parsed here are not forwarded.
        pairs = sorted(req.params.pairs.items()) if req.query else ()
        query = "&".join(f"{quote_plus(key)}={quote_plus(value)}" for key, values in pairs for value in values)
        target = target._replace(path=req.path, query=query)
        headers = [*_forwarded(req, target.authority), *identity, *self._mark]
        handed_on(req)
        if isinstance(req, WebSocketRequest):
            return self._upgrade(req, target, headers)
        if req.long_running:
            if req.initialized is not None:
                req.initialized()  # from here on, a watch uses the backend's resources
            return self._forward(req, target, headers)
        if self._running.get(service.name, 0) >= self._most:
            raise too_many_requests("Too many requests, please try again later.", 1)
        return self._counted(service.name, req, target, headers)

    async def _counted(self, name: str, req: Request, target: Target, headers: Headers) -> Response:
        """Forward a request, counted until the backend begins to answer."""
        self._running[name] = self._running.get(name, 0) + 1
        try:
            return await self._forward(req, target, headers)
        finally:
            self._running[name] -= 1
            if not self._running[name]:
                del self._running[name]

    async def _forward(self, req: Request, target: Target, headers: Headers) -> Response:
        key = (target.host, target.port, target.tls_name, target.tls)
        used = self._idle.take(key) if req.method in REPEATABLE and req.incoming is None else None
        client = tenant(req.user.name)
        try:
            if used is not None:
                hold(client, used)
                try:
                    return await self._exchange(req, target, headers, used, key)
                except BackendError:
                    pass  # most likely closed at this moment; retry on a new connection
            return await self._exchange(req, target, headers, await connect_for(client, target), key)
        except BackendError as e:
            return _failed(f"error trying to reach service: {e}")

    async def _exchange(self, req: Request, target: Target, headers: Headers, connection: Connection, key: Hashable) -> Response:
        sending: asyncio.Task[None] | None = None
        try:
            host = req.header(b"host")
            if req.incoming is None:
                await connection.send(req.method, target, headers, req.body, host)
            else:
                await connection.begin(req.method, target, headers, req.incoming.length, host)
                sending = asyncio.ensure_future(_send(connection, req.incoming.pieces()))
            await _head(connection, sending)
            if sending is not None and not sending.done() and _is_short_refusal(connection):
                # Read it as a whole: after the end of a streamed response nothing more is received from the client (granian), and closing
                # a connection while its client is still sending may discard the response.
                body = await connection.read(MAX_REFUSAL)
                await _abandon(connection, sending)
                return Response(connection.status, [h for h in _answered(connection) if h[0] != b"content-length"], body)
        except BaseException:
            await _abandon(connection, sending)
            raise
        if connection.status == 101:
            # The client requested no upgrade; forwarding it would open a tunnel around every check.
            await _abandon(connection, sending)
            return _failed("error trying to reach service: unexpected protocol")
        if self._reject_redirects and 300 <= connection.status <= 399 and connection.header(b"location"):
            await _abandon(connection, sending)
            return Response(502, [(b"content-type", b"text/plain; charset=utf-8")], REDIRECTED.encode())
        return Response(connection.status, _answered(connection), stream=self._piped(connection, sending, key))

    def _piped(self, connection: Connection, sending: asyncio.Task[None] | None, key: Hashable) -> Stream:
        """Return the backend's body as a response stream. When it ends or the client leaves, sending of the request's body ends, too."""

        async def stream(write: Write) -> None:
            whole = False
            try:
                if not connection.header(b"content-length"):
                    await write(b"")  # send the head now, even if the first event takes long
                async for piece in connection.body():
                    await write(piece)
                sent = sending is None or (sending.done() and not sending.cancelled() and sending.exception() is None)
                whole = sent and connection.persistent
            except BackendError as e:
                raise service_unavailable(f"error trying to reach service: {e}") from None  # too late: the client sees it break off
            finally:
                if whole:
                    connection.let_go()
                    self._idle.keep(key, connection)
                else:
                    await _abandon(connection, sending)

        return stream

    async def _upgrade(self, req: WebSocketRequest, target: Target, headers: Headers) -> Response:
        try:
            host = req.header(b"host")
            connection, backend = await open_websocket(target, headers, req.subprotocols, host, tenant(req.user.name))
        except BackendError as e:
            return _failed(f"error dialing backend: {e}")
        if backend is not None:
            return upgraded(connection.header(b"sec-websocket-protocol").decode("latin-1"), connection, backend)
        try:
            if connection.status < 400:
                return _failed(f"invalid upgrade response: status code {connection.status}")
            body = await connection.read(MAX_REFUSAL)
        except BackendError as e:
            return _failed(f"error dialing backend: {e}")
        finally:
            connection.close()
        return Response(connection.status, [h for h in _answered(connection) if h[0] != b"content-length"], body)

    async def probe(self, service: APIService) -> str:
        """Return why the backend does not answer for its group version, "" if it does. Its certificate is not verified: an impostor is
        detected by the first forwarded request."""
        assert service.service is not None
        try:
            host, port = self._resolver.resolve(*service.service)
            target = Target("https", host, str(port), service.path, tls=self._contexts.of("", True), via=self._way(service))
        except (ResolveError, TransportError) as e:
            return str(e)
        failing = f"failing or missing response from {target.url}: "
        limit, connection = "net/http: request canceled while waiting for connection", None
        try:
            async with asyncio.timeout(PROBE_S):
                connection = await connect(target)
                limit = "context deadline exceeded"
                await connection.send("GET", target, [*user_headers(PROBER), (b"connection", b"close")])
                await connection.head()
        except TimeoutError:
            return f'{failing}Get "{target.url}": {limit} (Client.Timeout exceeded while awaiting headers)'
        except BackendError as e:
            return f'{failing}Get "{target.url}": {e}'
        finally:
            if connection is not None:
                connection.close()
        return "" if 200 <= connection.status < 300 else f"{failing}bad status from {target.url}: {connection.status}"

    async def ask(
        self, service: APIService, method: str, path: str, user: UserInfo, headers: Headers, limit: int, timeout_s: float, query: str = "",
        body: bytes = b"",
    ) -> tuple[int, Headers, bytes]:  # fmt: skip
        """Send a request of the server itself; return status, headers and body. Raises BackendError if there is no response, for any
        reason, or if the body is longer than ``limit`` bytes."""
        try:
            async with asyncio.timeout(timeout_s):
                if ready := self._contexts.ready(service.ca_bundle, service.insecure):
                    await ready
                target, _ = self.target(service)
                target = target._replace(path=path, query=query)
                connection = await connect(target)
                try:
                    all_headers = [*user_headers(user, self._with_uid), *headers, (b"connection", b"close")]
                    await connection.send(method, target, all_headers, body)
                    await connection.head()
                    found = await connection.read(limit + 1)
                finally:
                    connection.close()
        except TimeoutError:
            raise BackendError("request timed out") from None
        except (ResolveError, TransportError, ValueError) as e:
            raise BackendError(str(e)) from None
        if len(found) > limit:
            raise BackendError(f"the answer is larger than {limit} bytes")
        return connection.status, connection.headers, found


def _failed(message: str) -> Response:
    return text(503, f"{message}\n")


def _forwarded(req: Request, authority: str) -> Headers:
    """Return the client's headers with this request's audit id and trace context. As upstream, the X-Forwarded host and scheme are the
    backend's own, ``authority``; an upgrade, which goes to the backend directly, has neither them nor the URI."""
    out = [h for h in request_headers(req) if h[0] not in SAID_ANEW]
    if isinstance(req, WebSocketRequest):
        out = [h for h in out if h[0] != b"x-forwarded-uri"]
    else:
        out += [(b"x-forwarded-host", authority.encode("latin-1", "replace")), (b"x-forwarded-proto", b"https")]
    out.append((b"audit-id", req.audit_id.encode("latin-1", "replace")))
    trace = tracing.outgoing()
    if trace:
        out.append((b"traceparent", trace.encode()))
    return out


def _answered(connection: Connection) -> Headers:
    return [h for h in answer_headers(connection) if h[0] not in OURS]


async def _send(connection: Connection, pieces: AsyncIterator[bytes]) -> None:
    async for piece in pieces:
        await connection.write(piece)
    await connection.end()


async def _head(connection: Connection, sending: asyncio.Task[None] | None) -> None:
    """Read the response head while the request's body is being sent. A backend may answer before it has all of the body; if the client
    breaks off, both end."""
    if sending is None:
        await connection.head()
        return
    reading = asyncio.ensure_future(connection.head())
    try:
        await asyncio.wait((reading, sending), return_when=asyncio.FIRST_COMPLETED)
        if sending.done() and not sending.cancelled():
            error = sending.exception()
            if error is not None and not isinstance(error, BackendError):
                raise error
        # A backend that stopped reading may have sent the reason.
        await reading
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


def _is_short_refusal(connection: Connection) -> bool:
    length = connection.header(b"content-length")
    return connection.status >= 400 and length.isdigit() and len(length) < 6 and int(length) <= MAX_REFUSAL


async def _abandon(connection: Connection, sending: asyncio.Task[None] | None) -> None:
    """Close the connection, and return when the client's body is not being read any more, so that the next reader may."""
    connection.close()
    if sending is not None:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
