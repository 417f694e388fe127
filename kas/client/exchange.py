"""A persistent connection for POSTs to webhooks: TLS and HTTP/1.1 in one protocol, without streams in between.

Every write in a cluster may call several webhooks, so a call takes as few loop iterations and function calls
as possible, and its usual path is compiled (``_exchange.pxd``). TLS is OpenSSL over memory BIOs: uvloop's own (0.23)
drops what it holds when the peer closes the connection, and asyncio's takes twice the time.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Any, cast

from kas.client._exchange import Wire
from kas.client.alerts import tls_text
from kas.client.chunks import LINES, ChunkError, Chunks
from kas.client.handshakes import goes_on, handshake_step, step
from kas.client.http import (
    CONNECT_TIMEOUT_S,
    MAX_HEAD,
    MOST_INFORMATIONAL,
    TOO_MANY_1XX,
    BackendError,
    BodyError,
    Head,
    Target,
    Way,
    dial,
    give_up,
    host_port,
    os_text,
    parse_head,
)
from kas.meta.offload import POOL
from kas.meta.records import NamedTuple
from kas.meta.waiting import in_turn

_OK = 200
# Steps through the chunks of a response that are done as soon as data arrives; many connections may receive some in one loop iteration.
_AT_ONCE = 256
_SAYING = {b"retry-after", b"content-encoding"}
_DER = 2  # OpenSSL's number for the DER encoding of a certificate
_NO_HEAD = Head(0, "", b"", [], {})


class _Framing(NamedTuple):
    """What a head (``raw``, with the empty line) says about the body: its length, None if chunks or the end of the
    connection delimit it; whether it is chunked; whether another response may follow on the connection."""

    raw: bytes
    head: Head
    length: int | None
    chunked: bool
    persistent: bool


_NOTHING = _Framing(b"", _NO_HEAD, None, False, False)


def _framing(raw: bytes) -> _Framing:
    """Parses a head. Raises BackendError."""
    head = parse_head(raw[:-2])
    chunked = b"chunked" in head.joined.get(b"transfer-encoding", b"").lower()
    text = head.joined.get(b"content-length", b"")
    length = int(text) if text and not chunked and head.status >= 200 else None
    if head.status in (204, 304):
        length, chunked = 0, False
    persistent = head.minor == b"1" and (chunked or length is not None) and b"close" not in head.joined.get(b"connection", b"").lower()
    return _Framing(raw, head, length, chunked, persistent)


def _plain(framing: _Framing) -> bool:
    """Whether a head has nothing that the caller needs to look at besides the body."""
    said = framing.head.joined
    return framing.head.status == _OK and framing.persistent and bool(framing.length) and not (_SAYING & said.keys())


class Exchange(Wire, asyncio.Protocol):
    """One connection with at most one request on it. What is read of a response is bounded by the request's
    ``limit`` plus one read of the socket. Unexpected data closes the connection."""

    def __init__(self, tls: ssl.SSLContext | None, name: str | None) -> None:
        sealed = sealing = None
        self._over_memory: ssl.SSLObject | None = None
        if tls is not None:
            sealed, sealing = ssl.MemoryBIO(), ssl.MemoryBIO()
            self._over_memory = tls.wrap_bio(sealed, sealing, server_hostname=name)
        # An SSLObject only forwards calls to its _sslobj, which is called directly.
        super().__init__(_NO_HEAD, _NOTHING, getattr(self._over_memory, "_sslobj", self._over_memory), sealed, sealing)
        self._loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[None] = self._loop.create_future()
        self._body = bytearray()
        self._between = ""  # the addresses of both ends
        self._handshake_task: asyncio.Task[None] | None = None  # the event loop itself keeps no reference
        self._heard = 0  # bytes of the handshake so far
        self._later = self._over = False  # whether more is to be taken in another turn; whether the peer has sent everything
        self._steps = _AT_ONCE  # for the chunks that have arrived

    @property
    def persistent(self) -> bool:
        """Whether the peer takes another request once the body of this response has been read to its end."""
        found: bool = self._framing.persistent
        return found

    def late(self) -> None:
        """Called when the time for the response is up: fails its future with BackendError."""
        if self._answer is not None:
            self._fail(BackendError("context deadline exceeded"))

    def close(self) -> None:
        """Closes the connection, whatever is still to arrive on it."""
        self._ended = True
        if self._transport is not None:
            give_up(self._transport)

    # --- asyncio's protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Starts the handshake; without TLS the connection is ready."""
        self._transport = cast(asyncio.Transport, transport)
        ends = [transport.get_extra_info(name) for name in ("sockname", "peername")]
        self._between = "->".join(host_port(*end[:2]) if isinstance(end, tuple) else str(end) for end in ends)
        if self._tls is not None:
            self._handshake(self._tls)
        else:
            self.ready.set_result(None)

    def eof_received(self) -> None:
        """The peer sends nothing more."""
        self._said_all()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has closed; ``exc`` is the error, if it was one."""
        self._transport = None
        if exc is None:
            self._said_all()
        else:
            self._end(exc)

    # --- TLS

    def _handshake(self, tls: Any) -> None:
        self._heard += self._sealed.pending
        if self._transport is None or goes_on(self._heard):
            self._handshake_stepped(handshake_step(tls))
            return
        self._transport.pause_reading()
        self._handshake_task = self._loop.create_task(self._handshake_later(tls))

    async def _handshake_later(self, tls: Any) -> None:
        error = await step(tls, self._heard)
        self._handshake_task = None
        if self.ready.done() or self._transport is None:
            return  # it was closed meanwhile
        self._transport.resume_reading()
        self._handshake_stepped(error)
        if self.ready.done() and not self._ended:
            self.data_received(b"")  # what arrived with the last step

    def _handshake_stepped(self, error: ssl.SSLError | None) -> None:
        """Handles the result of a handshake step; an error may be about the certificate."""
        if error is None:
            self.ready.set_result(None)
        if self._sealing.pending and self._transport is not None:
            self._transport.write(self._sealing.read())
        if error is not None and not isinstance(error, ssl.SSLWantReadError):
            self.ready.set_exception(error)
            self.close()

    # --- HTTP

    def _go_on(self) -> None:
        """Continues with what has arrived of the response."""
        try:
            whole = (self.head is not _NO_HEAD or self._begun()) and self._whole()
        except BackendError as e:
            self._fail(e)
            return
        if whole:
            self._done()

    def _done(self) -> None:
        """Completes the response with what has arrived of its body."""
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done():
            answer.set_result(bytes(self._body))
        self._body.clear()

    def _begun(self) -> bool:
        """Parses the head if it has arrived; returns whether it has. Only the head of the final response counts."""
        got = self._got
        while True:
            end = got.find(b"\r\n\r\n", self._looked)
            self._looked = max(0, len(got) - 3) if end < 0 else 0
            if end > MAX_HEAD or (end < 0 and len(got) > MAX_HEAD):
                raise BackendError("net/http: server response headers exceeded the limit")
            if end < 0:
                return False
            raw = bytes(got[: end + 4])
            del got[: end + 4]
            framing: _Framing = self._known
            if raw != framing.raw:  # usually a response has the same head as the last one
                framing = _framing(raw)
                self.knows(framing, raw, framing.length, _plain(framing))
            if framing.head.status >= 200 or framing.head.status == 101:
                break
            self._informational += 1
            if self._informational > MOST_INFORMATIONAL:
                raise BackendError(TOO_MANY_1XX)
        self.head, self._framing = framing.head, framing
        self._chunks = Chunks() if framing.chunked else None
        self._body.clear()
        return True

    def _whole(self) -> bool:
        """Takes what belongs to the body. Returns whether that is all of it, or all that was asked for."""
        got, body, length = self._got, self._body, self._framing.length
        if length == 0:
            return True
        if self._chunks is not None:
            last = self._unchunked(self._chunks)
        else:
            most = self._limit if length is None else min(length, self._limit)
            piece = got[: most - len(body)]
            body += piece
            del got[: len(piece)]
            last = len(body) == length
        if len(body) >= self._limit:
            del body[self._limit :]
            self._ended |= not last  # the rest of the response is not read
            return True
        return last

    def _unchunked(self, chunks: Chunks) -> bool:
        """Takes the chunks that have arrived; returns whether the last one has. If there are very many, the rest is
        taken when it is this connection's turn, one connection per loop iteration, and nothing more is read till then."""
        if self._later:
            return False
        try:
            more = chunks.take(self._got, self._body, self._limit, self._steps)
        except ChunkError as e:
            raise BodyError(str(e)) from None
        if more and len(self._body) < self._limit:
            self._later = True
            if self._transport is not None and not self._transport.is_closing():
                self._transport.pause_reading()
            in_turn(self._go_on_later)
        return chunks.done

    def _go_on_later(self) -> None:
        self._later = False
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
        if self._answer is not None and not self._answer.done():
            self._steps = LINES
            self._go_on()
            self._steps = _AT_ONCE
            if self._over and not self._later:
                self._end(None)

    def _said_all(self) -> None:
        """The peer sends nothing more, but something of it may still have to be taken."""
        self._over = True
        if not self._later:
            self._end(None)

    def _end(self, exc: Exception | None) -> None:
        """Nothing more arrives."""
        self._ended = True
        if not self.ready.done():
            self.ready.set_exception(self._broken(exc) if isinstance(exc, OSError) else exc or BackendError("EOF"))
        if self._answer is None or self._answer.done():
            return
        if isinstance(exc, OSError):
            self._fail(self._broken(exc), exc)
        elif self.head is _NO_HEAD:
            self._fail(BackendError("EOF"))
        elif self._chunks is not None or self._framing.length is not None:
            self._fail(BodyError("unexpected EOF"))
        else:
            self._done()  # the body ends with the connection

    def _broken(self, exc: OSError) -> BackendError:
        """The error for a request whose connection broke."""
        if isinstance(exc, ssl.SSLError):
            return BackendError(tls_text(exc))
        kind = BackendError if self.head is _NO_HEAD else BodyError
        error = kind(f"read tcp {self._between}: read: {os_text(exc)}")
        error.__cause__ = exc
        return error

    def unverified(self, error: ssl.SSLCertVerificationError, way: Way) -> BackendError:
        """The error for a certificate chain of the peer that was refused."""
        from kas.client.unverified import unverified

        assert way.tls is not None and way.name is not None
        chain: Any = getattr(self._tls, "get_unverified_chain", list)() or ()  # from Python 3.13 on it is public
        shown = [c if isinstance(c, bytes) else c.public_bytes(_DER) for c in chain]
        return unverified(error, shown, way.name, way.tls.get_ca_certs(binary_form=True))

    def _fail(self, error: BackendError, cause: OSError | None = None) -> None:
        error.__cause__ = cause
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done():
            answer.set_exception(error)
        self.close()


async def exchange(target: Target, timeout_s: float = CONNECT_TIMEOUT_S, address: tuple[str, int] | None = None) -> Exchange:
    """Makes a connection, like ``connect``. Raises BackendError."""
    return await dial(target, _open, timeout_s, address)


async def _open(way: Way) -> Exchange:
    _, made = await way.connect(lambda: Exchange(way.tls, way.name))
    try:
        await made.ready
    except ssl.SSLCertVerificationError as e:
        refused = await POOL.run(made.unverified, e.with_traceback(None), way)  # signatures are verified again, to find the reason
        made.close()
        del made  # as below
        raise refused from None
    except BaseException as e:
        made.close()
        del made  # it keeps the error, which refers to this frame and to those of the handshake
        raise e.with_traceback(None)
    return made
