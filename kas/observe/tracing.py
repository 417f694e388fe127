"""Spans of requests and W3C trace context; ``otlp.py`` exports them.

Without ``--tracing-config-file``, only ``outgoing`` runs. With it, the layers of a request are wrapped once when the server is assembled
(``Tracer.around``), and a request that is not sampled costs each of them one lookup of a context variable.

Callbacks and tasks scheduled while a context was set keep it; so a span that has ended gets no more children.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from random import getrandbits
from time import time_ns
from typing import Any, Protocol

from kas.meta.patterns import later

# version, trace ID, parent ID, flags. An ID of all zeros is invalid, and so is version ff.
_TRACEPARENT = later(r"\A(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})\Z")
INTERNAL, SERVER = 1, 2
MILLION = 1_000_000
MAX_CHILDREN = 256  # per request: deleting a collection is many writes

Attribute = str | int


class Remote:
    """The trace context of a client: its trace and its span. ``traceparent`` is the header."""

    __slots__ = ("over", "sampled", "span_id", "trace_id", "traceparent")

    def __init__(self, traceparent: str, trace_id: bytes, span_id: bytes, sampled: bool) -> None:
        self.traceparent, self.trace_id, self.span_id, self.sampled, self.over = traceparent, trace_id, span_id, sampled, False


def parse(traceparent: str) -> Remote | None:
    """Parses a ``traceparent`` header; None when it is invalid."""
    m = _TRACEPARENT.match(traceparent)
    return Remote(traceparent, bytes.fromhex(m[1]), bytes.fromhex(m[2]), bool(int(m[3], 16) & 1)) if m else None


class Span:
    """A span. Times are nanoseconds since 1970; ``failed`` marks an error."""

    __slots__ = (
        "_root", "_sink", "attributes", "children", "ended_ns", "failed", "kind", "link", "name", "over", "parent_id", "span_id",
        "started_ns", "trace_id",
    )  # fmt: skip

    def __init__(self, sink: Callable[[Span], None], name: str, trace_id: bytes, parent_id: bytes, kind: int, root: Span | None) -> None:
        self._sink, self.name, self.trace_id, self.parent_id, self.kind, self._root = sink, name, trace_id, parent_id, kind, root or self
        self.span_id = (getrandbits(64) or 1).to_bytes(8, "big")
        self.attributes: dict[str, Attribute] = {}
        self.link: Remote | None = None
        self.started_ns, self.ended_ns, self.children = time_ns(), 0, 0
        self.over = self.failed = False

    @property
    def traceparent(self) -> str:
        """The header that makes a called server part of this trace."""
        return f"00-{self.trace_id.hex()}-{self.span_id.hex()}-01"

    def child(self, name: str) -> Span | None:
        """Starts a child span; None when the request has ``MAX_CHILDREN`` already."""
        root = self._root
        root.children += 1
        return Span(self._sink, name, self.trace_id, self.span_id, INTERNAL, root) if root.children <= MAX_CHILDREN else None

    def end(self) -> None:
        """Ends the span and passes it to the exporter; further calls do nothing."""
        if not self.over:
            self.over, self.ended_ns = True, time_ns()
            self._sink(self)


CURRENT: ContextVar[Span | Remote | None] = ContextVar("span", default=None)


def current() -> Span | None:
    """The current span that is being recorded, or None."""
    found = CURRENT.get()
    return found if isinstance(found, Span) and not found.over else None


def outgoing() -> str:
    """The ``traceparent`` header for calls made on behalf of the current request, or ""."""
    found = CURRENT.get()
    return found.traceparent if found is not None and not found.over else ""


class Exporter(Protocol):
    """The destination of spans. Called on the loop's thread; never blocks."""

    def add(self, span: Span) -> None:
        """Queues a span that has ended, or drops it."""

    def close(self) -> None:
        """Sends the queued spans within a bounded time."""


class Tracer:
    """Creates spans. ``per_million`` is the sampling rate of requests without a trusted parent span."""

    def __init__(self, exporter: Exporter, per_million: int = 0) -> None:
        self.exporter, self._below = exporter, per_million * (1 << 63) // MILLION

    def begin(self, name: str, remote: Remote | None, trusted: bool) -> Span | None:
        """Starts the root span of a request; None when it is not sampled.

        The sampling decision of a ``trusted`` client is followed, and the span becomes part of its trace. Of any other client, the span
        only records a link to its trace.
        """
        if remote is not None and trusted:
            if not remote.sampled:
                return None
            return Span(self.exporter.add, name, remote.trace_id, remote.span_id, SERVER, None)
        trace_id = os.urandom(16)
        if int.from_bytes(trace_id[8:], "big") >> 1 >= self._below:
            return None
        span = Span(self.exporter.add, name, trace_id, b"", SERVER, None)
        span.link = remote
        return span

    def around(self, name: str, call: Callable[..., Any], label: str = "") -> Callable[..., Any]:
        """Wraps ``call`` in a child span, which ends when its awaitable result is complete. ``label`` is the attribute that records the
        first argument.
        """

        def run(*args: Any, **more: Any) -> Any:
            parent = current()
            span = parent.child(name) if parent is not None else None
            if span is None:
                return call(*args, **more)
            if label:
                span.attributes[label] = args[0]
            token = CURRENT.set(span)
            try:
                result = call(*args, **more)
            except BaseException:
                span.end()
                raise
            finally:
                CURRENT.reset(token)
            if isinstance(result, asyncio.Future):
                result.add_done_callback(lambda _: span.end())
                return result
            if isinstance(result, Awaitable):
                return _to_the_end(span, result)
            span.end()
            return result

        return run

    def observe(self, part: object, calls: dict[str, str], label: str = "") -> None:
        """Wraps the methods ``calls`` (method name -> span name) of an object with ``around``."""
        for method, name in calls.items():
            setattr(part, method, self.around(name, getattr(part, method), label))


async def _to_the_end(span: Span, waiting: Awaitable[Any]) -> Any:
    CURRENT.set(span)
    try:
        return await waiting
    finally:
        span.end()
