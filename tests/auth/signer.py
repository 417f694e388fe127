"""A signer of service account tokens behind a Unix socket, which can be faulty. Its messages are encoded here, independently of kas."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from tests.security.kms import _varint, field, read

SERVICE = "v1.ExternalJWTSigner"


def number(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value) if value else b""


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class Signer:
    """Listens at ``socket``. ``keys`` are those that it publishes, by id; ``kid`` is the one it signs with, ``header`` is added to the
    headers it writes, ``hidden`` keys are not published; ``asked`` has the methods that were called. ``answers`` replaces a method's
    answer."""

    def __init__(self, socket: Path, longest_s: int = 86400, hint_s: int = 3600) -> None:
        self.socket, self.longest_s, self.hint_s = Path(socket), longest_s, hint_s
        self.keys = {"one": ec.generate_private_key(ec.SECP256R1())}
        self.kid, self.hidden, self.header = "one", set[str](), dict[str, Any]()
        self.asked: list[str] = []
        self.answers: dict[str, Callable[[], bytes]] = {}
        self._server = grpc.server(futures.ThreadPoolExecutor(4))
        handlers = {
            name: grpc.unary_unary_rpc_method_handler(self._called(name, answer))
            for name, answer in (("Sign", self._sign), ("FetchKeys", self._fetch), ("Metadata", self._metadata))
        }
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        self._server.add_insecure_port(f"unix:{self.socket}")
        self._server.start()

    def _called(self, name: str, answer: Callable[[bytes], bytes]) -> Callable[[bytes, Any], bytes]:
        def call(request: bytes, context: Any) -> bytes:
            self.asked.append(name)
            other = self.answers.get(name)
            return answer(request) if other is None else other()

        return call

    def _sign(self, request: bytes) -> bytes:
        claims = read(request)[1].decode()
        header = b64(json.dumps({"alg": "ES256", "kid": self.kid, "typ": "JWT", **self.header}).encode())
        r, s = decode_dss_signature(self.keys[self.kid].sign(f"{header}.{claims}".encode(), ec.ECDSA(hashes.SHA256())))
        return field(1, header) + field(2, b64(r.to_bytes(32, "big") + s.to_bytes(32, "big")))

    def _fetch(self, request: bytes) -> bytes:
        form = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        keys = [
            field(1, field(1, kid) + field(2, key.public_key().public_bytes(*form)) + number(3, kid in self.hidden))
            for kid, key in self.keys.items()
        ]
        return b"".join(keys) + field(2, number(1, 1_800_000_000)) + number(3, self.hint_s)

    def _metadata(self, request: bytes) -> bytes:
        return number(1, self.longest_s)

    def close(self) -> None:
        self._server.stop(None).wait()
