"""A KMS v2 plug-in behind a Unix socket, which can be working, down, slow, wrong or huge. Its messages are encoded here, independently of
kas."""

from __future__ import annotations

import os
import threading
from concurrent import futures
from pathlib import Path

import grpc
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

SERVICE = "v2.KeyManagementService"


def _varint(n: int) -> bytes:
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def field(number: int, data: bytes | str) -> bytes:
    """Returns a field of bytes."""
    raw = data.encode() if isinstance(data, str) else data
    return _varint(number << 3 | 2) + _varint(len(raw)) + raw


def read(message: bytes) -> dict[int, bytes]:
    """Returns the last value of each field of bytes; the messages have no other fields."""
    out, at = {}, 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        tag = number()
        size = number()
        out[tag >> 3] = message[at : at + size]
        at += size
    return out


class Plugin:
    """Listens at ``socket``. Its answers may be changed while it runs: ``key_id``, ``healthz`` and ``status_version`` of Status,
    ``encrypts_with`` (another id in answers), ``annotation`` (in every answer); ``asked`` counts calls by method; ``hold()`` makes it slow
    until ``release()``."""

    service = SERVICE

    def __init__(self, socket: Path, key: bytes = b"\x11" * 32, key_id: str = "key-1") -> None:
        self.socket, self.key_id, self.encrypts_with, self.healthz = Path(socket), key_id, "", "ok"
        self.annotation, self.status_version = b"note", "v2"
        self.asked: dict[str, int] = {}
        self._aead = AESGCM(key)
        self._go = threading.Event()
        self._go.set()
        self._server: grpc.Server | None = None

    def start(self) -> Plugin:
        handlers = {name: self._handler(name, work) for name, work in self._methods().items()}
        self._server = grpc.server(futures.ThreadPoolExecutor(8))
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(self.service, handlers),))
        self._server.add_insecure_port(f"unix:{self.socket}")
        self._server.start()
        return self

    def _methods(self):
        return {"Status": self._status, "Encrypt": self._encrypt, "Decrypt": self._decrypt}

    def stop(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            self._go.set()
            server.stop(0).wait()
            self.socket.unlink(missing_ok=True)

    def __enter__(self) -> Plugin:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def target(self) -> str:
        return f"unix://{self.socket}"

    def hold(self) -> None:
        """Answers nothing from now on."""
        self._go.clear()

    def release(self) -> None:
        self._go.set()

    def _handler(self, name, work):
        def call(request: bytes, context: grpc.ServicerContext) -> bytes:
            self.asked[name] = self.asked.get(name, 0) + 1
            self._go.wait()
            return work(request, context)

        return grpc.unary_unary_rpc_method_handler(call)

    def _status(self, request: bytes, context) -> bytes:
        return field(1, self.status_version) + field(2, self.healthz) + field(3, self.key_id)

    def _encrypt(self, request: bytes, context) -> bytes:
        nonce = os.urandom(12)
        sealed = nonce + self._aead.encrypt(nonce, read(request)[1], None)
        annotation = field(1, "test.example.com") + field(2, self.annotation)
        return field(1, sealed) + field(2, self.encrypts_with or self.key_id) + field(3, annotation)

    def _decrypt(self, request: bytes, context) -> bytes:
        sealed = read(request)[1]
        try:
            return field(1, self._aead.decrypt(sealed[:12], sealed[12:], None))
        except InvalidTag:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "cannot decrypt")
            raise


class PluginV1(Plugin):
    """A plug-in of version 1; ``version`` is what it reports."""

    service = "v1beta1.KeyManagementService"
    version = "v1beta1"

    def _methods(self):
        return {"Version": self._version, "Encrypt": self._encrypt, "Decrypt": self._decrypt}

    def _version(self, request: bytes, context) -> bytes:
        assert read(request) == {1: b"v1beta1"}
        return field(1, self.version) + field(2, "test") + field(3, "0.1.0")

    def _encrypt(self, request: bytes, context) -> bytes:
        said = read(request)
        assert said[1] == b"v1beta1"
        nonce = os.urandom(12)
        return field(1, nonce + self._aead.encrypt(nonce, said[2], None))

    def _decrypt(self, request: bytes, context) -> bytes:
        return super()._decrypt(field(1, read(request)[2]), context)
