"""A small HTTP/1.1 client over asyncio's streams, for what the API server asks or passes on: kubelets, pods, services, webhooks.

One connection a request, closed with it. An answer's head is bounded, its body is read piece by piece as it is asked for, so
a slow client slows the backend down instead of filling memory. No redirect is ever followed. Errors to connect are
``BackendError`` in the words of Go's net package, which clients show to people.
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
# Headers: a name, and a value without what it may not hold (RFC 9110 5.1 and 5.5): nobody behind could pass it on.
_FIELDS = later(rb"(?:[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[^\x00-\x08\n-\x1f\x7f]*\r\n)*")
CHUNK = 64 << 10
# What is kept for later takes at most: buffers of TLS and of the loop, and the authorities of a system.
CONNECTION_BYTES, CONTEXT_BYTES = 64 << 10, 1 << 20
MAX_HEAD = 64 << 10
_CODE_DIGITS = 3
_QUOTED = 256  # bytes of a line that is no answer's
UNREADABLE = "unexpected error when reading response body. Please retry. Original error: "
LENGTH_DIGITS = 18  # of a Content-Length: more than there is of anything
MOST_INFORMATIONAL = 5  # answers before the answer, as in Go
BROKEN = "net/http: HTTP/1.x transport connection broken: "
TOO_MANY_1XX = "net/http: too many 1xx informational responses"
CONNECT_TIMEOUT_S = 30.0
HEAD_TIMEOUT_S = 300.0
# A connection that is given up while its peer has not taken what was written is cut after so long.
CUT_S = 5.0
# What Go's URL.EscapedPath leaves alone.
PATH_SAFE = "$&+,/:;=@~"
# A raw query is passed on as it is; what could break the request line is escaped.
QUERY_SAFE = "!\"#$%&'()*+,/:;<=>?@[\\]^`{|}~"


class BackendError(Exception):
    """The backend could not be reached, or did not speak HTTP."""


class BodyError(BackendError):
    """The answer began, and its body did not come to its end."""


def untold(op: str, url: str, error: Exception) -> str:
    """What client-go says of a request that failed."""
    if isinstance(error, BodyError):
        return f"{UNREADABLE}{error}"
    return f'{op} "{url}": {error}'


class Outdated(NamedTuple):
    """What of a certificate Go has accepted once and now refuses: its name among metrics and annotations, and what it is."""

    id: str
    reason: str


MISSING_SAN = Outdated("missing-san", "relies on a legacy Common Name field instead of the SAN extension for subject validation")
INSECURE_SHA1 = Outdated("insecure-sha1", "uses an insecure SHA-1 signature")


class UnverifiedError(BackendError):
    """The backend's certificate was refused; ``outdated`` says when for something that was accepted once."""

    def __init__(self, message: str, outdated: Outdated | None) -> None:
        super().__init__(message)
        self.outdated = outdated


class Via(Protocol):
    """A way to backends that is not the direct one; ``where`` says which."""

    where: str

    async def connect(self, factory: Factory[P], host: str, port: int) -> tuple[asyncio.BaseTransport, P]:
        """As the loop's ``create_connection``. Raises BackendError."""
        ...


class Egress(NamedTuple):
    """The ways to what is beside the control plane (webhooks at URLs), and in the cluster; None is the direct one."""

    controlplane: Via | None = None
    cluster: Via | None = None


DIRECT = Egress()


class Target(NamedTuple):
    """Where a request goes. ``path`` is decoded, ``query`` raw. ``tls`` is None for plain HTTP; ``tls_name`` is the name its
    certificate has to have, when that is not ``host``. ``via`` is the way there, None for the direct one."""

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
        """host:port as a URL has it; the port only when one was named."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}" if self.port else host

    @property
    def dial(self) -> tuple[str, int]:
        """Host and port to connect to; the port is the scheme's own where the URL names none."""
        return self.host, int(self.port) if self.port else (443 if self.scheme == "https" else 80)

    @property
    def url(self) -> str:
        """The whole URL, path and query quoted."""
        return f"{self.scheme}://{self.authority}{self.request_target}"

    @property
    def request_target(self) -> str:
        """What follows the verb on the request line: path and query, quoted."""
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
        self._beyond = False  # whether more came behind the end of the answer

    async def send(self, method: str, target: Target, headers: Headers, body: bytes = b"", host: str = "") -> None:
        """Writes the request. ``headers`` hold neither Host (``host``, or the target's) nor framing headers."""
        framing = b"Content-Length: %d\r\n\r\n" % len(body) if body or method in ("POST", "PUT", "PATCH") else b"\r\n"
        self._method = method
        await self._write(request_head(method, target, headers, host) + framing + body)

    async def post(self, head: bytes, body: bytes) -> None:
        """Writes a POST whose ``head`` is what ``request_head`` made."""
        self._method = "POST"
        await self._write(b"%bContent-Length: %d\r\n\r\n%b" % (head, len(body), body))

    async def begin(self, method: str, target: Target, headers: Headers, length: int, host: str = "") -> None:
        """As ``send``, of a request whose body follows by ``write`` and ``end``: ``length`` bytes, in chunks when that is negative."""
        self._chunked = length < 0
        framing = b"Transfer-Encoding: chunked\r\n\r\n" if self._chunked else b"Content-Length: %d\r\n\r\n" % length
        self._method = method
        await self._write(request_head(method, target, headers, host) + framing)

    async def write(self, piece: bytes) -> None:
        """The next piece of the body; returns when the peer has taken enough of it. Raises BackendError."""
        if piece:
            await self._write(b"%x\r\n%b\r\n" % (len(piece), piece) if self._chunked else piece)

    async def end(self) -> None:
        """The body is complete."""
        if self._chunked:
            await self._write(b"0\r\n\r\n")

    async def _write(self, data: bytes) -> None:
        try:
            self.writer.write(data)
            await self.writer.drain()
        except OSError as e:
            raise BackendError(f"write: {os_text(e)}") from e

    async def head(self, timeout_s: float | None = HEAD_TIMEOUT_S) -> None:
        """Reads status and headers of the final answer into ``status``, ``reason`` and ``headers`` (names in lower case). None for a
        caller that watches the time itself."""
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
        """All values of a header of the response, joined by commas; b"" when it is absent. ``name`` is in lower case."""
        return self._joined.get(name, b"")

    async def body(self) -> AsyncIterator[bytes]:
        """The body in pieces of at most ``CHUNK``; raises BackendError when it breaks off."""
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
                if time_slice.over:  # whoever takes it may do so at once, and a backend may send on and on
                    await time_slice.pause()
        except OSError as e:
            raise BackendError(f"read: {os_text(e)}") from e

    async def _chunks(self) -> AsyncIterator[bytes]:
        """What has come in any number of chunks is one piece."""
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
        """The first ``limit`` bytes of the body."""
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
        """Whether the peer takes another request when the body of this answer has been read to its end."""
        framed = self.header(b"content-length") or self.header(b"transfer-encoding") or self.status in (204, 304)
        return self._minor == b"1" and bool(framed) and not self._beyond and b"close" not in self.header(b"connection").lower()

    @property
    def quiet(self) -> bool:
        """Whether nothing came since the last answer: what is not, was closed by the peer or is out of step."""
        return not (self.writer.is_closing() or self.reader.at_eof() or getattr(self.reader, "_buffer", None))

    def at_its_end(self, call: Callable[[], None]) -> None:
        """Has ``call`` called once nothing is open any more, which a peer may put off behind ``close``, or by ``let_go``."""
        if self._plain.over:
            call()
        else:
            self._plain.at_its_end = call

    def let_go(self) -> None:
        """Nobody holds it any more, though it stays open for another."""
        call, self._plain.at_its_end = self._plain.at_its_end, _nothing
        call()

    def close(self) -> None:
        """Give the connection up, whatever is still to come on it."""
        give_up(self.writer.transport)


def _nothing() -> None:
    """Nobody waits for the end of a connection."""


def give_up(transport: asyncio.WriteTransport) -> None:
    """Closes it. What was written may still be taken, for ``CUT_S``: a peer that never reads would hold it and its connection for ever."""
    if transport.get_write_buffer_size():
        asyncio.get_running_loop().call_later(CUT_S, transport.abort)
    transport.close()


class Head(NamedTuple):
    """The head of an answer; names of ``headers`` are in lower case, ``joined`` has all values of a name joined by commas."""

    status: int
    reason: str
    minor: bytes
    headers: Headers
    joined: dict[bytes, bytes]

    def text(self, name: bytes) -> str:
        """All values of a header, "" when it is absent."""
        value = self.joined.get(name)
        return value.decode("latin-1") if value else ""


def retry_after_s(text: str) -> int | None:
    """The seconds that a Retry-After asks for; None for a date, and for what is none of the two."""
    return int(text[:9]) if text.isascii() and text.isdigit() else None


def parse_head(raw: bytes, broken: str = BROKEN) -> Head:
    """The head of an answer, without the empty line that ends it. Raises BackendError; ``broken`` is before what it says of a first line
    that is none."""
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
            # Two framings: the chunks count (RFC 9112 6.3), and nobody behind shall see the other.
            headers = [h for h in headers if h[0] != b"content-length"]
            del joined[b"content-length"]
    return Head(int(code), reason.decode("latin-1"), version[7:], headers, joined)


def _malformed(first: bytes) -> str:
    """What is wrong with the first line of an answer that is none."""
    line = first[:_QUOTED].decode("latin-1")
    version, blank, rest = line.partition(" ")
    if not blank:
        return f"malformed HTTP response {go_quote(line)}"
    code = rest.lstrip(" ").partition(" ")[0]
    if len(code) != _CODE_DIGITS or not code.isdigit():
        return f"malformed HTTP status code {go_quote(code)}"
    return f"malformed HTTP version {go_quote(version)}"


def request_head(method: str, target: Target, headers: Headers, host: str = "") -> bytes:
    """The head of a request but for its framing, and for the empty line that ends it."""
    head = [f"{method} {target.request_target or '/'} HTTP/1.1\r\nHost: {host or target.authority}\r\n".encode("latin-1")]
    for name, value in headers:
        if b"\r" in value or b"\n" in value or b"\r" in name or b"\n" in name:
            continue
        head.append(name + b": " + value + b"\r\n")
    return b"".join(head)


async def connect(target: Target, timeout_s: float = CONNECT_TIMEOUT_S, upgrade: bool = False) -> Connection:
    """Raises BackendError. Go dials for a connection that is to be an ``upgrade``d one itself, past the environment's proxies."""
    return Connection(*await dial(target, _streams, timeout_s, None, not upgrade))


class Way(NamedTuple):
    """How a connection is made: ``via`` to host and port. ``name`` is what the certificate has to have, None where ``tls`` is."""

    host: str
    port: int
    tls: ssl.SSLContext | None
    name: str | None
    via: Via | None

    async def connect(self, factory: Factory[P]) -> tuple[asyncio.BaseTransport, P]:
        """As the loop's ``create_connection``; without TLS."""
        if self.via is not None:
            return await self.via.connect(factory, self.host, self.port)
        return await asyncio.get_running_loop().create_connection(factory, self.host, self.port)


_environment: Callable[[Target], Via | None] | None = None


def use_environment(proxies: Callable[[Target], Via | None] | None) -> None:
    """From now on this process asks ``proxies`` for the way to a target that names none (``kas.client.proxies.Environment``)."""
    global _environment
    _environment = proxies


async def dial(
    target: Target, opened: Callable[[Way], Awaitable[T]], timeout_s: float, address: tuple[str, int] | None, proxied: bool = True
) -> T:
    """What ``opened`` makes of the way, in time. ``address`` is dialled instead of what the target names, whose name the certificate has
    to have all the same; a proxy of the environment is told the target, and finds it. Raises BackendError."""
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
    """As Go's ``net.JoinHostPort``."""
    return f"{f'[{host}]' if ':' in host else host}:{port}"


class DialErrors:
    """A context manager: what goes wrong in making a connection becomes a BackendError, in the words of Go's net package.

    No generator: the frame of one would be left in a cycle with what it was thrown, and keep the request of whoever dials.
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
        if exc is not None:  # the reader keeps it, and it the frames it came through, those of who closes the connection among them
            exc.__traceback__ = exc.__context__ = None
        super().connection_lost(exc)
        self.over = True
        self.at_its_end()


class _Connected(asyncio.Protocol):
    """Makes the protocol of a connection once there is one. uvloop makes what it is to be before it connects, and asyncio's TLS is a cycle
    with a buffer of 256 KiB from its beginning: each attempt where nobody listens would leave one until somebody looks for cycles."""

    def __init__(self, made: Callable[[], asyncio.BaseProtocol]) -> None:
        self._made = made

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        protocol = self._made()
        cast(asyncio.Transport, transport).set_protocol(protocol)
        protocol.connection_made(transport)


async def _streams(way: Way) -> Streams:
    """TLS by asyncio's own protocol, whichever loop runs: uvloop's (0.23) throws away what was received and not read yet when the peer
    hangs up behind it, and so cuts off the end of an answer whose reader is slow."""
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
            del ready  # it keeps the error, which leads to this frame, and to those of the handshake
            raise e.with_traceback(None)
    return reader, asyncio.StreamWriter(plain.transport, plain, reader, loop), plain


# OpenSSL's codes for a chain that ends in nobody we know, in Go's words.
_UNVERIFIED = dict.fromkeys((2, 18, 19, 20, 21), "certificate signed by unknown authority")

_TEXTS = {
    errno.ECONNREFUSED: "connection refused", errno.EHOSTUNREACH: "no route to host", errno.ENETUNREACH: "network is unreachable",
    errno.ECONNRESET: "connection reset by peer", errno.ETIMEDOUT: "connection timed out", errno.EPIPE: "broken pipe",
}  # fmt: skip


def os_text(e: OSError) -> str:
    """What went wrong, in the words of Go's net package."""
    return _TEXTS.get(e.errno or 0) or (e.strerror or str(e)).lower()


def insecure_tls(cert: str = "", key: str = "") -> ssl.SSLContext:
    """A client context that believes any certificate, as upstream's proxy transport does towards pods."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if cert:
        context.load_cert_chain(cert, key)
    return context


def verified_tls(ca: str, cert: str = "", key: str = "") -> ssl.SSLContext:
    """A client context that wants a certificate of ``ca`` with the host's name or address in it."""
    context = trust_as_go(ssl.create_default_context(cafile=ca))
    if cert:
        context.load_cert_chain(cert, key)
    return context
