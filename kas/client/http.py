"""A small HTTP/1.1 client over asyncio's streams, for requests that the API server sends or forwards: to kubelets,
pods, services, webhooks.

Each request has a connection of its own, which is closed with it. The head of a response is bounded; its body is
read piece by piece on demand, so a slow client slows the backend down instead of filling memory. Redirects are never
followed. Connection errors are ``BackendError`` in the words of Go's net package, which clients show to users.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol, TypeVar, cast
from urllib.parse import quote

from kas.client.alerts import tls_text
from kas.client.chunks import ChunkError, Chunks
from kas.client.handshakes import Secured
from kas.meta.field import go_quote
from kas.meta.patterns import later
from kas.meta.records import NamedTuple
from kas.meta.tls import trust_as_go
from kas.meta.waiting import TimeSlice

Headers = list[tuple[bytes, bytes]]
T = TypeVar("T")
P = TypeVar("P", bound=asyncio.BaseProtocol)
Factory = Callable[[], P]
# Header lines: a name, and a value without characters that it must not have (RFC 9110 5.1 and 5.5) and that no
# recipient could pass on.
_FIELDS = later(rb"(?:[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[^\x00-\x08\n-\x1f\x7f]*\r\n)*")
CHUNK = 64 << 10
# What a kept connection or TLS context takes at most: buffers of TLS and of the event loop; the system's CAs.
CONNECTION_BYTES, CONTEXT_BYTES = 64 << 10, 1 << 20
MAX_HEAD = 64 << 10
_CODE_DIGITS = 3
_QUOTED = 256  # bytes quoted of a line that is not a status line
UNREADABLE = "unexpected error when reading response body. Please retry. Original error: "
LENGTH_DIGITS = 18  # of a Content-Length: more than any body has
MOST_INFORMATIONAL = 5  # responses before the final one, as in Go
BROKEN = "net/http: HTTP/1.x transport connection broken: "
TOO_MANY_1XX = "net/http: too many 1xx informational responses"
CONNECT_TIMEOUT_S = 30.0
HEAD_TIMEOUT_S = 300.0
# A connection that is closed while its peer has not taken what was written is aborted after this time.
CUT_S = 5.0
# What Go's URL.EscapedPath leaves unescaped.
PATH_SAFE = "$&+,/:;=@~"
# A raw query is passed on as it is, except for characters that would break the request line.
QUERY_SAFE = "!\"#$%&'()*+,/:;<=>?@[\\]^`{|}~"


class BackendError(Exception):
    """The backend could not be reached, or did not speak HTTP."""


class BodyError(BackendError):
    """The response began, but its body broke off."""


def request_error(op: str, url: str, error: Exception) -> str:
    """client-go's message for a failed request."""
    if isinstance(error, BodyError):
        return f"{UNREADABLE}{error}"
    return f'{op} "{url}": {error}'


class Outdated(NamedTuple):
    """A property of a certificate that Go once accepted and now refuses: its name in metrics and annotations, and its description."""

    id: str
    reason: str


MISSING_SAN = Outdated("missing-san", "relies on a legacy Common Name field instead of the SAN extension for subject validation")
INSECURE_SHA1 = Outdated("insecure-sha1", "uses an insecure SHA-1 signature")


class UnverifiedError(BackendError):
    """The backend's certificate was refused. ``outdated`` is set if that is for a property that was once accepted."""

    def __init__(self, message: str, outdated: Outdated | None) -> None:
        super().__init__(message)
        self.outdated = outdated


class Via(Protocol):
    """A way to reach backends other than a direct connection, such as a proxy; ``where`` names it."""

    where: str

    async def connect(self, factory: Factory[P], host: str, port: int) -> tuple[asyncio.BaseTransport, P]:
        """Like the event loop's ``create_connection``. Raises BackendError."""
        ...


class Egress(NamedTuple):
    """How to reach servers next to the control plane (webhooks at URLs), and those in the cluster; None for a direct connection."""

    controlplane: Via | None = None
    cluster: Via | None = None


DIRECT = Egress()


class Target(NamedTuple):
    """Where a request goes. ``path`` is decoded, ``query`` is raw. ``tls`` is None for plain HTTP. ``tls_name`` is
    the name that the certificate must have, if that is not ``host``. ``via`` is how to get there, None for a direct
    connection."""

    scheme: str
    host: str
    port: str
    path: str = ""
    query: str = ""
    tls: ssl.SSLContext | None = None
    tls_name: str = ""
    via: Via | None = None

    @property
    def authority(self) -> str:
        """host:port as in a URL; the port only if one was given."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}" if self.port else host

    @property
    def dial(self) -> tuple[str, int]:
        """Host and port to connect to; the scheme's default port if the URL has none."""
        return self.host, int(self.port) if self.port else (443 if self.scheme == "https" else 80)

    @property
    def url(self) -> str:
        """The whole URL, with path and query escaped."""
        return f"{self.scheme}://{self.authority}{self.request_target}"

    @property
    def request_target(self) -> str:
        """Path and query, escaped, as in the request line."""
        return quote(self.path, safe=PATH_SAFE) + (f"?{quote(self.query, safe=QUERY_SAFE)}" if self.query else "")


class Connection:
    """An open connection with at most one request on it."""

    __slots__ = ("_beyond", "_chunked", "_joined", "_method", "_minor", "_plain", "headers", "reader", "reason", "status", "writer")

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, plain: _Plain) -> None:
        self.reader, self.writer, self._plain = reader, writer, plain
        self.status, self.reason, self._minor = 0, "", b""
        self.headers: Headers = []
        self._joined: dict[bytes, bytes] = {}
        self._method, self._chunked = "", False
        self._beyond = False  # whether data followed the end of the response

    async def send(self, method: str, target: Target, headers: Headers, body: bytes = b"", host: str = "") -> None:
        """Writes the request. ``headers`` have neither Host (``host``, or the target's) nor framing headers."""
        framing = b"Content-Length: %d\r\n\r\n" % len(body) if body or method in ("POST", "PUT", "PATCH") else b"\r\n"
        self._method = method
        await self._write(request_head(method, target, headers, host) + framing + body)

    async def post(self, head: bytes, body: bytes) -> None:
        """Writes a POST whose ``head`` was made by ``request_head``."""
        self._method = "POST"
        await self._write(b"%bContent-Length: %d\r\n\r\n%b" % (head, len(body), body))

    async def begin(self, method: str, target: Target, headers: Headers, length: int, host: str = "") -> None:
        """Like ``send``, for a request whose body follows by ``write`` and ``end``: ``length`` bytes, or chunked if that is negative."""
        self._chunked = length < 0
        framing = b"Transfer-Encoding: chunked\r\n\r\n" if self._chunked else b"Content-Length: %d\r\n\r\n" % length
        self._method = method
        await self._write(request_head(method, target, headers, host) + framing)

    async def write(self, piece: bytes) -> None:
        """Writes the next piece of the body; returns when the peer has taken enough of it. Raises BackendError."""
        if piece:
            await self._write(b"%x\r\n%b\r\n" % (len(piece), piece) if self._chunked else piece)

    async def end(self) -> None:
        """Ends the body."""
        if self._chunked:
            await self._write(b"0\r\n\r\n")

    async def _write(self, data: bytes) -> None:
        try:
            self.writer.write(data)
            await self.writer.drain()
        except OSError as e:
            raise BackendError(f"write: {os_text(e)}") from e

    async def head(self, timeout_s: float | None = HEAD_TIMEOUT_S) -> None:
        """Reads the head of the final response into ``status``, ``reason`` and ``headers`` (names in lower case).
        With ``timeout_s`` None the caller limits the time itself."""
        if timeout_s is None:
            await self._final_head()
            return
        try:
            async with asyncio.timeout(timeout_s):
                await self._final_head()
        except TimeoutError:
            raise BackendError("net/http: timeout awaiting response headers") from None

    async def _final_head(self) -> None:
        for _ in range(MOST_INFORMATIONAL + 1):
            await self._read_head()
            if self.status >= 200 or self.status == 101:
                return
        raise BackendError(TOO_MANY_1XX)

    async def _read_head(self) -> None:
        try:
            raw = await self.reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            raise BackendError("EOF") from None
        except asyncio.LimitOverrunError:
            raise BackendError("net/http: server response headers exceeded the limit") from None
        except OSError as e:
            raise BackendError(f"read: {os_text(e)}") from e
        self.status, self.reason, self._minor, self.headers, self._joined = parse_head(raw[:-2])

    def header(self, name: bytes) -> bytes:
        """All values of a response header, joined by commas; b"" if it is absent. ``name`` is in lower case."""
        return self._joined.get(name, b"")

    async def body(self) -> AsyncIterator[bytes]:
        """Yields the body in pieces of at most ``CHUNK``. Raises BackendError if it breaks off."""
        if self._method == "HEAD" or self.status in (204, 304):
            return
        try:
            if b"chunked" in self.header(b"transfer-encoding").lower():
                async for piece in self._chunks():
                    yield piece
                return
            length, time_slice = self.header(b"content-length"), TimeSlice()
            left = int(length) if length else None
            while left != 0:
                piece = await self.reader.read(CHUNK if left is None else min(CHUNK, left))
                if not piece:
                    if left:
                        raise BackendError("unexpected EOF")
                    return
                if left is not None:
                    left -= len(piece)
                yield piece
                if time_slice.over:  # the consumer may take each piece at once, and the backend may never stop sending
                    await time_slice.pause()
        except OSError as e:
            raise BackendError(f"read: {os_text(e)}") from e

    async def _chunks(self) -> AsyncIterator[bytes]:
        """Yields the body of a chunked response; data that has arrived in any number of chunks becomes one piece."""
        chunks, got, time_slice = Chunks(), bytearray(), TimeSlice()
        try:
            while not chunks.done:
                received = await self.reader.read(CHUNK)
                if not received:
                    raise BackendError("unexpected EOF")
                got += received
                more = True
                while more:
                    body = bytearray()
                    more = chunks.take(got, body, CHUNK)
                    if body:
                        yield bytes(body)
                    if time_slice.over:
                        await time_slice.pause()
            self._beyond = bool(got)
        except ChunkError as e:
            raise BackendError(str(e)) from None

    async def read(self, limit: int) -> bytes:
        """Returns the first ``limit`` bytes of the body."""
        length = self._joined.get(b"content-length", b"")
        if length and self._method != "HEAD" and self.status not in (204, 304) and int(length) <= limit:
            try:
                return await self.reader.readexactly(int(length))
            except asyncio.IncompleteReadError:
                raise BackendError("unexpected EOF") from None
            except OSError as e:
                raise BackendError(f"read: {os_text(e)}") from e
        out, size = list[bytes](), 0
        async for piece in self.body():
            out.append(piece)
            size += len(piece)
            if size >= limit:
                break
        return b"".join(out)[:limit]

    @property
    def persistent(self) -> bool:
        """Whether the peer takes another request once the body of this response has been read to its end."""
        framed = self.header(b"content-length") or self.header(b"transfer-encoding") or self.status in (204, 304)
        return self._minor == b"1" and bool(framed) and not self._beyond and b"close" not in self.header(b"connection").lower()

    @property
    def quiet(self) -> bool:
        """Whether nothing has arrived since the last response; otherwise the peer has closed the connection or is out of step."""
        return not (self.writer.is_closing() or self.reader.at_eof() or getattr(self.reader, "_buffer", None))

    def at_its_end(self, call: Callable[[], None]) -> None:
        """Registers ``call``, to be called when the connection has closed completely, which the peer may delay
        beyond ``close``; or by ``let_go``."""
        if self._plain.over:
            call()
        else:
            self._plain.at_its_end = call

    def let_go(self) -> None:
        """Releases what the caller held for the connection, which stays open for another user."""
        call, self._plain.at_its_end = self._plain.at_its_end, _nothing
        call()

    def close(self) -> None:
        """Closes the connection, whatever is still to arrive on it."""
        give_up(self.writer.transport)


def _nothing() -> None:
    """The callback if nothing is registered."""


def give_up(transport: asyncio.WriteTransport) -> None:
    """Closes a transport. What was written can still be delivered for ``CUT_S``; a peer that never reads would keep it open for ever."""
    if transport.get_write_buffer_size():
        asyncio.get_running_loop().call_later(CUT_S, transport.abort)
    transport.close()


class Head(NamedTuple):
    """The head of a response. Names in ``headers`` are in lower case; ``joined`` has all values of a name joined by commas."""

    status: int
    reason: str
    minor: bytes
    headers: Headers
    joined: dict[bytes, bytes]

    def text(self, name: bytes) -> str:
        """All values of a header, "" if it is absent."""
        value = self.joined.get(name)
        return value.decode("latin-1") if value else ""


def retry_after_s(text: str) -> int | None:
    """The seconds of a Retry-After header; None for a date, and for an invalid value."""
    return int(text[:9]) if text.isascii() and text.isdigit() else None


def parse_head(raw: bytes, broken: str = BROKEN) -> Head:
    """Parses the head of a response, without the empty line that ends it. Raises BackendError; ``broken`` is the
    prefix of its message for an invalid status line."""
    first, _, lines = raw.partition(b"\r\n")
    version, _, rest = first.partition(b" ")
    code, _, reason = rest.partition(b" ")
    if not version.startswith(b"HTTP/1.") or not code.isdigit() or len(code) != _CODE_DIGITS:
        raise BackendError(f"{broken}{_malformed(first)}")
    if not _FIELDS.fullmatch(lines):
        raise BackendError("malformed MIME header line")
    headers: Headers = []
    joined: dict[bytes, bytes] = {}
    lengths: set[bytes] = set()
    for line in lines.split(b"\r\n")[:-1]:
        name, _, value = line.partition(b":")
        name, value = name.lower(), value.strip()
        headers.append((name, value))
        joined[name] = joined[name] + b", " + value if name in joined else value
        if name == b"content-length":
            lengths.add(value)
    if len(lengths) > 1 or not all(v.isdigit() and len(v) <= LENGTH_DIGITS for v in lengths):
        raise BackendError("bad Content-Length")
    if lengths:
        joined[b"content-length"] = lengths.pop()
        if joined.get(b"transfer-encoding"):
            # Both framings: the chunks count (RFC 9112 6.3), and no recipient may see the length.
            headers = [h for h in headers if h[0] != b"content-length"]
            del joined[b"content-length"]
    return Head(int(code), reason.decode("latin-1"), version[7:], headers, joined)


def _malformed(first: bytes) -> str:
    """What is wrong with an invalid status line."""
    line = first[:_QUOTED].decode("latin-1")
    version, blank, rest = line.partition(" ")
    if not blank:
        return f"malformed HTTP response {go_quote(line)}"
    code = rest.lstrip(" ").partition(" ")[0]
    if len(code) != _CODE_DIGITS or not code.isdigit():
        return f"malformed HTTP status code {go_quote(code)}"
    return f"malformed HTTP version {go_quote(version)}"


def request_head(method: str, target: Target, headers: Headers, host: str = "") -> bytes:
    """The head of a request without its framing headers and the empty line that ends it."""
    head = [f"{method} {target.request_target or '/'} HTTP/1.1\r\nHost: {host or target.authority}\r\n".encode("latin-1")]
    for name, value in headers:
        if b"\r" in value or b"\n" in value or b"\r" in name or b"\n" in name:
            continue
        head.append(name + b": " + value + b"\r\n")
    return b"".join(head)


async def connect(target: Target, timeout_s: float = CONNECT_TIMEOUT_S, upgrade: bool = False) -> Connection:
    """Connects to the target. Raises BackendError. As in Go, a connection for an ``upgrade`` bypasses the environment's proxies."""
    return Connection(*await dial(target, _streams, timeout_s, None, not upgrade))


class Way(NamedTuple):
    """How a connection is made: to host and port, through ``via``. ``name`` is the name that the certificate must
    have, None if there is no ``tls``."""

    host: str
    port: int
    tls: ssl.SSLContext | None
    name: str | None
    via: Via | None

    async def connect(self, factory: Factory[P]) -> tuple[asyncio.BaseTransport, P]:
        """Like the event loop's ``create_connection``, without TLS."""
        if self.via is not None:
            return await self.via.connect(factory, self.host, self.port)
        return await asyncio.get_running_loop().create_connection(factory, self.host, self.port)


_environment: Callable[[Target], Via | None] | None = None


def use_environment(proxies: Callable[[Target], Via | None] | None) -> None:
    """Makes this process call ``proxies`` for targets that have no ``via`` (``kas.client.proxies.Environment``)."""
    global _environment
    _environment = proxies


async def dial(
    target: Target, opened: Callable[[Way], Awaitable[T]], timeout_s: float, address: tuple[str, int] | None, proxied: bool = True
) -> T:
    """Returns what ``opened`` makes of a ``Way`` within the timeout. Raises BackendError.

    ``address`` is dialled in place of the target's host and port, whose name the certificate must have nevertheless.
    A proxy of the environment is given the target itself, and resolves it.
    """
    name = (target.tls_name or target.host) if target.tls is not None else None
    via = target.via
    if via is None and proxied and _environment is not None and (via := _environment(target)) is not None:
        address = None
    way = Way(*(address or target.dial), target.tls, name, via)
    where = host_port(way.host, way.port)
    with DialErrors("tcp", where if way.via is None else f"{where} via proxy {way.via.where}"):
        async with asyncio.timeout(timeout_s):
            return await opened(way)


def host_port(host: str, port: int) -> str:
    """Go's ``net.JoinHostPort``."""
    return f"{f'[{host}]' if ':' in host else host}:{port}"


class DialErrors:
    """A context manager that turns errors in making a connection into BackendError, in the words of Go's net package.

    It is not a generator, whose frame would form a reference cycle with the exception and keep the caller's request
    alive.
    """

    def __init__(self, network: str, where: str) -> None:
        self._network, self._where = network, where

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, e: BaseException | None, _traceback: object) -> None:
        network, where = self._network, self._where
        if isinstance(e, TimeoutError):
            raise BackendError(f"dial {network} {where}: i/o timeout") from None
        if isinstance(e, socket.gaierror):
            raise BackendError(f"dial {network}: lookup {where.rpartition(':')[0]}: no such host") from None
        if isinstance(e, ssl.SSLCertVerificationError):
            why = _UNVERIFIED.get(e.verify_code, e.verify_message)
            raise UnverifiedError(f"tls: failed to verify certificate: x509: {why}", None) from None
        if isinstance(e, ssl.SSLError):
            raise BackendError(tls_text(e)) from None
        if isinstance(e, OSError):
            raise BackendError(f"dial {network} {where}: connect: {os_text(e)}") from e


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter, "_Plain"]


class _Plain(asyncio.StreamReaderProtocol):
    """The decrypted side of a connection, or one without TLS."""

    transport: asyncio.Transport
    over = False
    at_its_end: Callable[[], None] = staticmethod(_nothing)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        # The reader keeps the exception, which keeps the frames that it passed through, those of the caller that closes
        # the connection among them.
        if exc is not None:
            exc.__traceback__ = exc.__context__ = None
        super().connection_lost(exc)
        self.over = True
        self.at_its_end()


class _Connected(asyncio.Protocol):
    """Creates the protocol of a connection once it is established. uvloop creates it before it connects, and
    asyncio's TLS protocol is a reference cycle with a buffer of 256 KiB: each failed attempt to connect would leave
    one until the garbage is collected."""

    def __init__(self, made: Callable[[], asyncio.BaseProtocol]) -> None:
        self._made = made

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        protocol = self._made()
        cast(asyncio.Transport, transport).set_protocol(protocol)
        protocol.connection_made(transport)


async def _streams(way: Way) -> Streams:
    """Connects with asyncio's own TLS protocol, whichever event loop runs. uvloop's (0.23) discards data that was
    received and not read when the peer closes the connection, which cuts off the end of a response whose reader is
    slow."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=MAX_HEAD, loop=loop)
    plain = _Plain(reader, loop=loop)
    if way.tls is None:
        await way.connect(lambda: plain)
    else:
        tls, ready = way.tls, loop.create_future()
        sealed = lambda: Secured(loop, plain, tls, ready, server_side=False, server_hostname=way.name)  # noqa: E731
        transport = (await way.connect(lambda: _Connected(sealed)))[0]
        try:
            await ready
        except BaseException as e:
            transport.close()
            del ready  # it keeps the error, which refers to this frame and to those of the handshake
            raise e.with_traceback(None)
    return reader, asyncio.StreamWriter(plain.transport, plain, reader, loop), plain


# OpenSSL's codes for a chain without a trusted CA, in Go's words.
_UNVERIFIED = dict.fromkeys((2, 18, 19, 20, 21), "certificate signed by unknown authority")

_TEXTS = {
    errno.ECONNREFUSED: "connection refused", errno.EHOSTUNREACH: "no route to host", errno.ENETUNREACH: "network is unreachable",
    errno.ECONNRESET: "connection reset by peer", errno.ETIMEDOUT: "connection timed out", errno.EPIPE: "broken pipe",
}  # fmt: skip


def os_text(e: OSError) -> str:
    """An operating system error in the words of Go's net package."""
    return _TEXTS.get(e.errno or 0) or (e.strerror or str(e)).lower()


def insecure_tls(cert: str = "", key: str = "") -> ssl.SSLContext:
    """A client context that accepts any certificate, as upstream's proxy transport does for pods."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if cert:
        context.load_cert_chain(cert, key)
    return context


def verified_tls(ca: str, cert: str = "", key: str = "") -> ssl.SSLContext:
    """A client context that requires a certificate issued by ``ca`` for the host's name or address."""
    context = trust_as_go(ssl.create_default_context(cafile=ca))
    if cert:
        context.load_cert_chain(cert, key)
    return context
