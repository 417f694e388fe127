"""Outcomes of calls: gRPC's status codes, and their form in trailers and HTTP statuses."""

from __future__ import annotations

import ssl
from enum import IntEnum
from urllib.parse import unquote_to_bytes

from kas.store.etcd.rpc.hpack import Headers


class Code(IntEnum):
    """gRPC's status codes (google.rpc.Code)."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


# The codes for answers that are not gRPC's (grpc: doc/http-grpc-status-mapping.md).
OF_HTTP = {
    b"400": Code.INTERNAL, b"401": Code.UNAUTHENTICATED, b"403": Code.PERMISSION_DENIED, b"404": Code.UNIMPLEMENTED,
    b"429": Code.UNAVAILABLE, b"502": Code.UNAVAILABLE, b"503": Code.UNAVAILABLE, b"504": Code.UNAVAILABLE,
}  # fmt: skip


class RpcError(Exception):
    """A failed call. ``unsent``: it is certain that the server did not begin with it. ``from_server``: the error comes from the
    server's program, not from a connection or a proxy."""

    def __init__(self, code: Code, details: str, unsent: bool = False, from_server: bool = False) -> None:
        super().__init__(f"{code.name}: {details}")
        self.code, self.details, self.unsent, self.from_server = code, details, unsent, from_server


def reason(e: Exception) -> str:
    """Returns what is wrong with a connection, without error numbers and positions in a library's source."""
    if isinstance(e, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {e.verify_message}"
    if isinstance(e, ssl.SSLError):
        return f"TLS: {e.reason.lower().replace('_', ' ') if e.reason else e}"
    return e.strerror if isinstance(e, OSError) and e.strerror else str(e)


def verdict(headers: Headers) -> RpcError | None:
    """Returns the outcome according to an answer's last headers; None: it succeeded. Without a gRPC status the HTTP status
    counts."""
    said = headers.get(b"grpc-status")
    if said == b"0":
        return None
    if said is None:
        http = headers.get(b":status", b"200")
        return RpcError(OF_HTTP.get(http, Code.UNKNOWN), f"an answer without a status; HTTP {http.decode(errors='replace')}")
    try:
        code = Code(int(said))
    except ValueError:
        code = Code.UNKNOWN
    return RpcError(code, unquote_to_bytes(headers.get(b"grpc-message", b"")).decode(errors="replace"), from_server=True)
