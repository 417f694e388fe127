"""Exports spans to an OpenTelemetry collector: OTLP over gRPC (``opentelemetry.proto.collector.trace.v1``), without TLS, in batches.

The messages are encoded here (``meta/protowire.py``): OpenTelemetry's libraries require a version of protobuf that conflicts with the one
for etcd's messages, and only a dozen fields are written.

A thread sends, so that no request waits for a collector. The bounds are those of OpenTelemetry's batch processor: 2,048 spans may be
queued, and 512 are sent at once, after 5 s at the latest. Spans that arrive while the queue is full are dropped; the log reports their
number.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from time import monotonic
from typing import Any

from kas import __version__
from kas.meta.protowire import put_bytes, put_int, put_text, varint
from kas.observe.tracing import Attribute, Span

log = logging.getLogger("kas.tracing")

METHOD = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
DEFAULT_ENDPOINT = "localhost:4317"
QUEUE, BATCH, EVERY_S, TIMEOUT_S, LAST_S = 2048, 512, 5.0, 10.0, 2.0
MAX_TEXT = 1024  # characters of an attribute
_ERROR = 2
_FIXED64 = 1


def _fixed64(number: int, value: int) -> bytes:
    return varint(number << 3 | _FIXED64) + value.to_bytes(8, "little")


def _attribute(number: int, key: str, value: Attribute) -> bytes:
    # The value is a oneof: its field must be written even if it is empty.
    if isinstance(value, str):
        text = value[:MAX_TEXT].encode()
        encoded = b"\x0a" + varint(len(text)) + text
    else:
        encoded = b"\x18" + varint(value)
    return put_bytes(number, put_text(1, key) + put_bytes(2, encoded))


def message(span: Span) -> bytes:
    """Encodes a ``Span``."""
    out = [
        put_bytes(1, span.trace_id), put_bytes(2, span.span_id), put_bytes(4, span.parent_id), put_text(5, span.name),
        put_int(6, span.kind), _fixed64(7, span.started_ns), _fixed64(8, span.ended_ns),
        *(_attribute(9, key, value) for key, value in span.attributes.items()),
    ]  # fmt: skip
    if span.link is not None:
        out.append(put_bytes(13, put_bytes(1, span.link.trace_id) + put_bytes(2, span.link.span_id)))
    if span.failed:
        out.append(put_bytes(15, put_int(3, _ERROR)))
    return b"".join(out)


def request(resource: bytes, spans: list[Span]) -> bytes:
    """Encodes an ``ExportTraceServiceRequest``."""
    scope = put_bytes(1, put_text(1, "kas") + put_text(2, __version__))
    return put_bytes(1, resource + put_bytes(2, scope + b"".join(put_bytes(2, message(s)) for s in spans)))


class OTLPExporter:
    """Sends spans to ``endpoint`` (a gRPC target, such as host and port, without a scheme). ``instance`` identifies this server."""

    def __init__(self, endpoint: str, instance: str) -> None:
        self._endpoint = endpoint or DEFAULT_ENDPOINT
        named = _attribute(1, "service.name", "apiserver") + _attribute(1, "service.instance.id", instance)
        self._resource = put_bytes(1, named)
        self._queue: deque[Span] = deque()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._closed = False
        self.dropped = 0

    def add(self, span: Span) -> None:
        """Queues a span, or drops it when the queue is full or closed."""
        if len(self._queue) >= QUEUE or self._closed:
            self.dropped += 1
            return
        self._queue.append(span)
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="tracing", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # no more threads from the system: retried with a later span
                return
            self._thread = thread
        if len(self._queue) >= BATCH:
            self._wake.set()

    def close(self) -> None:
        """Sends the queued spans, waiting two seconds at most."""
        self._closed = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(LAST_S)

    def _run(self) -> None:
        import grpc  # an optional dependency, and large

        channel = grpc.insecure_channel(self._endpoint, options=[("grpc.enable_http_proxy", 0)])
        export = channel.unary_unary(METHOD)
        logged, logged_s = 0, 0.0
        while not self._closed or self._queue:
            if len(self._queue) < BATCH and not self._closed:
                self._wake.wait(EVERY_S)
            self._wake.clear()
            self._send(export)
            if self.dropped > logged and monotonic() - logged_s > 60:
                log.warning('Spans were dropped dropped=%d endpoint="%s"', self.dropped, self._endpoint)
                logged, logged_s = self.dropped, monotonic()
        channel.close()

    def _send(self, export: Any) -> None:
        import grpc

        spans = [self._queue.popleft() for _ in range(min(BATCH, len(self._queue)))]
        if not spans:
            return
        try:
            export(request(self._resource, spans), timeout=LAST_S if self._closed else TIMEOUT_S)
        except grpc.RpcError as e:
            self.dropped += len(spans)
            why = f"{e.code().name}: {e.details()}"
            log.warning('Unable to export spans count=%d endpoint="%s" err="%s"', len(spans), self._endpoint, why)
