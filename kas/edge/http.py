"""The request and response records everything below the edge works with. No HTTP server is known here or further down."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from kas._fast_request import Request

__all__ = ["JSON_TYPE", "MAX_BODY_BYTES", "Handler", "Headers", "Request", "Response", "Result", "Stream", "Write"]

MAX_BODY_BYTES = 3 * 1024 * 1024  # upstream's MaxRequestBodyBytes

Headers = list[tuple[bytes, bytes]]
JSON_TYPE = (b"content-type", b"application/json")


class Response:
    """An answer. ``stream`` replaces ``body`` for answers that are written piece by piece.

    ``stream(write)`` is awaited with a ``write(bytes)`` coroutine function that returns once the bytes are accepted by a
    bounded buffer; it ends the answer by returning and is cancelled when the client goes away. ``finish``, when set, is called
    once a stream has ended one way or another.
    """

    __slots__ = ("body", "finish", "headers", "status", "stream")

    def __init__(self, status: int, headers: Headers, body: bytes = b"", stream: Stream | None = None) -> None:
        self.status, self.headers, self.body, self.stream = status, headers, body, stream
        self.finish: Callable[[], None] | None = None


Write = Callable[[bytes], Awaitable[None]]
Stream = Callable[[Write], Awaitable[None]]
Result = Response | Awaitable[Response]
Handler = Callable[[Request], Result]
