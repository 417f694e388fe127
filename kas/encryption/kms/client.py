"""Calls of a KMS plug-in: gRPC over a Unix socket, without TLS, blocking, each with the timeout of the configuration."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from kas.encryption.ciphers import SealError
from kas.encryption.configuration import parse_endpoint

# An answer contains one key and its annotations; a larger one is invalid.
MAX_ANSWER_BYTES = 256 << 10
# A restarted plug-in is found by the next call.
RECONNECT_MS = 500
# (method, name of the status) -> seconds
Measure = Callable[[str, str, float], None]


def target(endpoint: str) -> str:
    """Returns gRPC's name for an endpoint ``unix:///path``; ``unix:///@name`` is a socket without a file."""
    _, path = parse_endpoint(endpoint)
    return f"unix-abstract:{path[2:]}" if path.startswith("/@") else f"unix:/{path.lstrip('/')}"  # after two slashes it would be a host


class KMSClient:
    """The connection to one plug-in. Any thread may call; the first call opens it."""

    def __init__(self, endpoint: str, timeout_s: float, service: str, measure: Measure | None = None) -> None:
        self._target, self.timeout_s, self._service, self.measure = target(endpoint), timeout_s, service, measure
        self._channel: Any = None
        self._calls: dict[str, Any] = {}

    def call(self, method: str, request: bytes, timeout_s: float = 0.0) -> bytes:
        """Returns the answer to a request, both as encoded messages. Raises SealError with gRPC's code and reason."""
        import grpc  # an extra, and large

        began, code = time.monotonic(), "OK"
        try:
            return self._of(method)(request, timeout=min(timeout_s or self.timeout_s, self.timeout_s))
        except grpc.RpcError as e:
            code = e.code().name.title().replace("_", "")
            raise SealError(f"rpc error: code = {code} desc = {e.details()}") from None
        finally:
            if self.measure is not None:
                self.measure(method, code, time.monotonic() - began)

    def _of(self, method: str) -> Any:
        import grpc

        if self._channel is None:
            self._channel = grpc.insecure_channel(self._target, options=[
                ("grpc.max_receive_message_length", MAX_ANSWER_BYTES), ("grpc.initial_reconnect_backoff_ms", RECONNECT_MS),
                ("grpc.min_reconnect_backoff_ms", RECONNECT_MS), ("grpc.max_reconnect_backoff_ms", RECONNECT_MS),
                ("grpc.enable_http_proxy", 0), ("grpc.default_authority", "localhost"),
            ])  # fmt: skip
        call = self._calls.get(method)
        if call is None:
            call = self._calls[method] = self._channel.unary_unary(f"/{self._service}/{method}")
        return call

    def close(self) -> None:
        """Closes the connection; calls in progress fail."""
        channel, self._channel, self._calls = self._channel, None, {}
        if channel is not None:
            channel.close()
