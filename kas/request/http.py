"""The request and response records that everything below the edge works with. Nothing here or below knows the HTTP server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Protocol, TypeAlias

from kas._fastpath import Request, Response

__all__ = [
    "JSON_TYPE", "MAX_BODY_BYTES", "AuditEvent", "Begin", "Connection", "Handler", "Headers", "Incoming", "Request", "Response", "Result",
    "Stream", "Write", "begin_of", "taken", "with_body",
]  # fmt: skip

MAX_BODY_BYTES = 3 * 1024 * 1024  # upstream's MaxRequestBodyBytes

Headers = list[tuple[bytes, bytes]]
JSON_TYPE = (b"content-type", b"application/json")


Write = Callable[[bytes], Awaitable[None]]
Stream = Callable[[Write], Awaitable[None]]
Begin = Callable[[bytes], Awaitable[None] | None]


def begin_of(write: Write) -> Begin | None:
    """The ``begin`` of ``write``, for callers that run in no task: it writes at once and returns None if the
    connection took everything, else an awaitable to await before anything else is written. None if ``write`` has no
    such attribute."""
    return getattr(write, "begin", None)


# How many pieces granian takes before it waits for the client (granian 2.8.7; measured on HTTP/1 and 2), and one more.
_AHEAD = 6
Result: TypeAlias = Response | Awaitable[Response]
Handler = Callable[[Request], Result]


class Connection(Protocol):
    """What is known of a connection that a TLS front relays."""

    @property
    def certificates(self) -> Any:
        """The certificates that the client has presented (``kas.auth.authn.x509.Certificates``), unverified; None if there are none."""

    def leave(self, must: bool = False) -> None:
        """Asks an HTTP/2 client to finish its requests here and to reconnect; if it ``must``, it is disconnected otherwise."""

    def count(self, report: Callable[[int, bool], None]) -> None:
        """Asks how many bytes have arrived over the connection, and whether its client has disconnected; ``report`` is
        called with both a little later, or never."""


class Incoming(Protocol):
    """The body of a request that has not been read, to be read as a whole or piece by piece. ``length`` is the
    Content-Length, -1 if there is none."""

    length: int

    async def read(self, user: Any) -> bytes:
        """Returns the whole body, which counts against the user's budget (a ``UserInfo``). Raises ApiError 400 if it
        breaks off, 413 beyond ``MAX_BODY_BYTES``, 429 beyond what a user or the worker may hold, 408 if it arrives
        too slowly."""

    def pieces(self) -> AsyncIterator[bytes]:
        """Yields the body as it arrives, whatever its length. Raises ApiError 400 if it breaks off."""
        ...


class AuditEvent(Protocol):
    """The audit event of a request, which is filled in on its way (``kas.audit.event``).

    ``level`` is audit.k8s.io's. ``handed_on``: another server answers the request. ``panicked`` names the unexpected
    exception, "" if there was none. ``took`` has the seconds spent on something, by its name
    (``kas.observe.latencies``).
    """

    level: str
    panicked: str
    handed_on: bool
    took: dict[str, float]

    def authorized(self, decision: str, reason: str, seconds: float) -> None:
        """Records what the authorizers decided, and how long that took."""

    def decoded(self, type_: Any, kind: str, api_version: str, obj: dict[str, Any]) -> None:
        """Records that the body was decoded to this object, of a descriptor's type, and defaulted."""

    def patched(self, body: bytes) -> None:
        """Records that the body is a patch."""


def with_body(req: Request, handler: Callable[..., Result], *args: Any) -> Result:
    """Calls ``handler(req, *args)`` once ``req.body`` holds the body: at once if it has been read or there is none."""
    return handler(req, *args) if req.incoming is None else _read_first(req, handler, args)


async def _read_first(req: Request, handler: Callable[..., Result], args: tuple[Any, ...]) -> Response:
    assert req.incoming is not None
    req.body = await req.incoming.read(req.user)
    req.incoming = None
    result = handler(req, *args)
    return result if isinstance(result, Response) else await result


async def taken(write: Write, piece: bytes) -> None:
    """Writes the last piece of a response and returns when the connection has taken all but a few bytes of the
    response. granian holds some pieces for a client that does not read, whatever their size, so the end is written
    as that many pieces of one byte."""
    await write(piece[:-_AHEAD])
    for byte in piece[-_AHEAD:]:
        await write(byte.to_bytes())
