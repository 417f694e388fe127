"""A collector of spans: OTLP over gRPC on loopback, by OpenTelemetry's ``trace_service.proto``."""

from __future__ import annotations

import threading
from concurrent import futures
from dataclasses import dataclass
from typing import Any

import grpc

from kas.meta.protowire import fields

SERVICE = "opentelemetry.proto.collector.trace.v1.TraceService"


@dataclass
class Received:
    """A received span; ``start`` and ``end`` in nanoseconds."""

    trace: str
    span: str
    parent: str
    name: str
    kind: int
    start: int
    end: int
    attributes: dict[str, Any]
    links: list[tuple[str, str]]
    error: bool


def _all(message: bytes, number: int) -> list[Any]:
    return [value for n, _, value in fields(message) if n == number]


def _first(message: bytes, number: int, default: Any) -> Any:
    return (_all(message, number) or [default])[0]


def attributes(messages: list[bytes]) -> dict[str, Any]:
    out = {}
    for m in messages:
        value = _first(m, 2, b"")
        texts = _all(value, 1)
        out[_first(m, 1, b"").decode()] = texts[0].decode() if texts else _first(value, 3, 0)
    return out


def read_span(message: bytes) -> Received:
    links = [(_first(link, 1, b"").hex(), _first(link, 2, b"").hex()) for link in _all(message, 13)]
    times = [int.from_bytes(_first(message, n, b""), "little") for n in (7, 8)]
    return Received(
        _first(message, 1, b"").hex(), _first(message, 2, b"").hex(), _first(message, 4, b"").hex(), _first(message, 5, b"").decode(),
        _first(message, 6, 0), *times, attributes(_all(message, 9)), links, _first(_first(message, 15, b""), 3, 0) == 2,
    )  # fmt: skip


class Collector:
    """Listens at ``endpoint``. ``spans`` and ``resource`` have what arrived."""

    def __init__(self) -> None:
        self.spans: list[Received] = []
        self.resource: dict[str, Any] = {}
        self._came = threading.Condition()
        self._server = grpc.server(futures.ThreadPoolExecutor(2))
        handlers = {"Export": grpc.unary_unary_rpc_method_handler(self._export)}
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        self.endpoint = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def _export(self, request: bytes, context: Any) -> bytes:
        with self._came:
            for group in _all(request, 1):
                self.resource = attributes(_all(_first(group, 1, b""), 1))
                for scope in _all(group, 2):
                    self.spans += map(read_span, _all(scope, 2))
            self._came.notify_all()
        return b""

    def wait_for(self, count: int) -> list[Received]:
        """Returns the spans once there are this many."""
        with self._came:
            assert self._came.wait_for(lambda: len(self.spans) >= count, 60), self.spans
            return self.spans

    def close(self) -> None:
        self._server.stop(None).wait()
