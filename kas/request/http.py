"""The request and response records everything below the edge works with. No HTTP server is known here or further down."""

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
    """What ``write`` offers to those who are in no task: it writes at once, and returns None where the connection took all of it, else
    what is left to be awaited before anything else is written. None where it offers no such thing."""
    return getattr(write, "begin", None)


# How many pieces the HTTP server below takes before it waits for the client (granian 2.8.7; measured on HTTP/1 and 2), and one.
_AHEAD = 6
Result: TypeAlias = Response | Awaitable[Response]
Handler = Callable[[Request], Result]


class Connection(Protocol):
    """What is known of a connection that a TLS front relays."""

    @property
    def certificates(self) -> Any:
        """What the client has shown (``kas.auth.authn.x509.Certificates``), unverified; None when it has shown nothing."""

    def leave(self, must: bool = False) -> None:
        """Asks a client of HTTP/2 to finish here and to connect anew; with ``must`` it cannot stay."""

    def count(self, told: Callable[[int, bool], None]) -> None:
        """Asks how many bytes have come over the connection, and whether its client has gone; ``told`` is called with both a little later,
        or never."""


class Incoming(Protocol):
    """A request's body on its way: taken as a whole or piece by piece. ``length`` is what its head says, -1 when it does not."""

    length: int

    async def read(self, user: Any) -> bytes:
        """The whole body, which counts as the user's (a ``UserInfo``). Raises ApiError 400 when it breaks off, 413 beyond
        ``MAX_BODY_BYTES``, 429 beyond what a user or the worker may hold, 408 when it comes too slowly."""

    def pieces(self) -> AsyncIterator[bytes]:
        """The body as it comes, however long. Raises ApiError 400 when it breaks off."""
        ...


class AuditEvent(Protocol):
    """What a request that is recorded tells on its way (``kas.audit.event``). ``level`` is audit.k8s.io's; ``handed_on``: another
    server answers. ``panicked`` names the exception that was a bug, "" for none. ``took`` are the
    seconds that went to something, by its name (``kas.observe.latencies``)."""

    level: str
    panicked: str
    handed_on: bool
    took: dict[str, float]

    def authorized(self, decision: str, reason: str, seconds: float) -> None:
        """What the authorizers said, and how long that took."""

    def decoded(self, type_: Any, kind: str, api_version: str, obj: dict[str, Any]) -> None:
        """The body was decoded to this object of a descriptor's type, and defaulted."""

    def patched(self, body: bytes) -> None:
        """The body is a patch."""


def with_body(req: Request, handler: Callable[..., Result], *args: Any) -> Result:
    """``handler(req, *args)`` once ``req.body`` holds the body: at once when it is there already or there is none."""
    return handler(req, *args) if req.incoming is None else _read_first(req, handler, args)


async def _read_first(req: Request, handler: Callable[..., Result], args: tuple[Any, ...]) -> Response:
    assert req.incoming is not None
    req.body = await req.incoming.read(req.user)
    req.incoming = None
    result = handler(req, *args)
    return result if isinstance(result, Response) else await result


async def taken(write: Write, piece: bytes) -> None:
    """Writes the last piece of an answer, and returns when the connection has taken all but a few bytes of it and of what came before: the
    HTTP server below holds some pieces for whoever does not read, whatever their size, so the end is given in as many of a byte each."""
    await write(piece[:-_AHEAD])
    for byte in piece[-_AHEAD:]:
        await write(byte.to_bytes())
