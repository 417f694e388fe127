"""The request and response records everything below the edge works with. No HTTP server is known here or further down."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any

MAX_BODY_BYTES = 3 * 1024 * 1024  # upstream's MaxRequestBodyBytes

Headers = list[tuple[bytes, bytes]]
JSON_TYPE = (b"content-type", b"application/json")


class Request:
    """One HTTP request, decoded as far as every filter needs it.

    ``path`` is percent-decoded (as Go's ``URL.Path``), ``query`` the raw query string, ``headers`` lower-case names.
    ``known`` is set by the director for a path that is served. Filters fill in what they find out: ``info`` (RequestInfo), ``user``, ``audit_id``, ``deadline``.
    ``warnings`` become ``Warning`` headers of the answer, in order, each text once.
    """

    __slots__ = (
        "_header_map", "annotations", "audit_id", "body", "client", "deadline", "headers", "http_version", "in_flight", "info", "known",
        "long_running", "method", "params", "path", "query", "raw_path", "read_only_port", "scheme", "started", "user", "warnings",
    )  # fmt: skip

    def __init__(self, method: str, path: str, query: str, headers: Headers, body: bytes = b"") -> None:
        self.method, self.path, self.query, self.headers, self.body = method, path, query, headers, body
        self.raw_path = path
        self.client, self.scheme, self.http_version = "", "https", "1.1"
        self.started = monotonic()
        self._header_map: dict[bytes, bytes] | None = None
        self.info: Any = None
        self.user: Any = None
        self.params: Any = None
        self.audit_id = ""
        self.long_running = False
        self.known = False
        self.read_only_port = False
        self.in_flight = 0
        self.deadline = 0.0
        self.warnings: list[str] | None = None
        self.annotations: dict[str, str] | None = None

    def header(self, name: bytes) -> str:
        """The value of a header ("" when absent; repeats joined by ", ")."""
        m = self._header_map
        if m is None:
            m = {}
            for k, v in self.headers:
                m[k] = m[k] + b", " + v if k in m else v
            self._header_map = m
        value = m.get(name)
        return value.decode("latin-1") if value is not None else ""

    def raw_header(self, name: bytes) -> bytes:
        """As ``header``, undecoded."""
        if self._header_map is None:
            self.header(name)
        return self._header_map.get(name, b"")  # type: ignore[union-attr]

    def get(self, name: str) -> str | None:
        """As ``header``, None when absent: what authenticators ask with."""
        return self.header(name.encode()) if self.has_header(name.encode()) else None

    def has_header(self, name: bytes) -> bool:
        if self._header_map is None:
            self.header(name)
        return name in self._header_map  # type: ignore[operator]

    def drop_header(self, name: bytes) -> None:
        """Forget a header, so that nothing behind this point can see it."""
        self.headers = [h for h in self.headers if h[0] != name]
        if self._header_map is not None:
            self._header_map.pop(name, None)

    def warn(self, text: str) -> None:
        if self.warnings is None:
            self.warnings = []
        if text not in self.warnings:
            self.warnings.append(text)

    def annotate(self, key: str, value: str) -> None:
        """Adds an audit annotation."""
        if self.annotations is None:
            self.annotations = {}
        self.annotations[key] = value


class Response:
    """An answer. ``stream`` replaces ``body`` for answers that are written piece by piece.

    ``stream(write)`` is awaited with a ``write(bytes)`` coroutine function that returns once the bytes are accepted by a
    bounded buffer; it ends the answer by returning and is cancelled when the client goes away.
    """

    __slots__ = ("body", "headers", "status", "stream")

    def __init__(self, status: int, headers: Headers, body: bytes = b"", stream: Stream | None = None) -> None:
        self.status, self.headers, self.body, self.stream = status, headers, body, stream


Write = Callable[[bytes], Awaitable[None]]
Stream = Callable[[Write], Awaitable[None]]
Result = Response | Awaitable[Response]
Handler = Callable[[Request], Result]
