"""What rows are made of: concurrent requests of one user, raw bytes on HTTP/1 and frames on HTTP/2."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

import requests

from kas.testing.server import KasServer
from tests.hostile.hostile_wire import dial

http.client._MAXHEADERS = 1000  # up to 4 KiB of short warnings are more headers than Python's client accepts

MIB = 1 << 20
JSON, YAML, PROTOBUF = "application/json", "application/yaml", "application/vnd.kubernetes.protobuf"
APPLY, MERGE = "application/apply-patch+yaml", "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
# ":method", ":scheme", ":path: /version" and ":authority: x", in HPACK without its dynamic table
GET_VERSION = b"\x82\x87\x04\x08/version\x01\x01x"
DATA, HEADERS, PRIORITY, RST, SETTINGS, PING, WINDOW, CONTINUATION = 0, 1, 2, 3, 4, 6, 8, 9
END_STREAM, END_HEADERS = 1, 4
MOMENT_S = 0.2
LAST = b"\x9dlast\xe3\x01\x7f"  # payload of the ping that is sent last


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """Returns an HTTP/2 frame (RFC 9113, 4.1)."""
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def string(text: bytes) -> bytes:
    """Returns a text in HPACK without Huffman coding."""
    out, n = bytearray(), len(text)
    if n < 127:
        return bytes((n,)) + text
    out.append(127)
    n -= 127
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    return bytes(out) + bytes((n,)) + text


def authorized(stream: int, path: str, token: str) -> bytes:
    """Returns a complete request with a credential."""
    credential = string(b"authorization") + string(b"Bearer " + token.encode())
    return frame(HEADERS, END_STREAM | END_HEADERS, stream, b"\x82\x87\x04" + string(path.encode()) + b"\x01\x01x\x40" + credential)


def get(stream: int) -> bytes:
    """Returns a complete request for /version."""
    return frame(HEADERS, END_STREAM | END_HEADERS, stream, GET_VERSION)


def definition(plural: str, schema: dict[str, Any]) -> dict[str, Any]:
    """Returns a CustomResourceDefinition of ``<plural>.rows.example.com`` whose spec has the given schema."""
    whole = {"type": "object", "properties": {"spec": schema}}
    return {
        "metadata": {"name": f"{plural}.rows.example.com"},
        "spec": {
            "group": "rows.example.com", "scope": "Namespaced", "names": {"plural": plural, "kind": plural.capitalize()},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": whole}}],
        },
    }  # fmt: skip


@dataclass
class Attacker:
    """Attacks ``server`` with ``token``; ``room`` is a namespace where everything is allowed. ``codes`` has the statuses of the answers, 0
    for none."""

    server: KasServer
    token: str
    room: str

    def __post_init__(self) -> None:
        self.codes: list[int] = []
        self.cleaned: list[Callable[[], object]] = []

    @property
    def maps(self) -> str:
        return f"/api/v1/namespaces/{self.room}/configmaps"

    @property
    def pods(self) -> str:
        return f"/api/v1/namespaces/{self.room}/pods"

    def ask(self, method: str, path: str, body: Any = None, ctype: str = JSON, **headers: str) -> int:
        """Sends one request on a connection of its own, and records its status."""
        with requests.Session() as session:
            return self._asked(session, method, path, body, ctype, **headers)

    def _asked(self, session: requests.Session, method: str, path: str, body: Any = None, ctype: str = JSON, **headers: str) -> int:
        data = body if body is None or isinstance(body, (bytes, str)) else json.dumps(body)
        sent = {"Authorization": f"Bearer {self.token}", "Content-Type": ctype, **{k.replace("_", "-"): v for k, v in headers.items()}}
        session.trust_env = False
        try:
            answer = session.request(
                method, self.server.url + path, data=data, headers=sent, verify=self.server.ca, timeout=120, stream=True
            )
            end = b""
            for piece in answer.iter_content(MIB):
                end = piece
            # etcd accepts 1.5 MiB where LMDB accepts 3, and upstream passes on its message.
            code = 413 if answer.status_code == 500 and b'"etcdserver: request is too large"' in end else answer.status_code
        except requests.RequestException:
            code = 0
        self.codes.append(code)
        return code

    def made(self, path: str, body: Any) -> Any:
        """Creates an object; returns it as the server shows it. ``generateName`` makes the name unique, because an attack may be repeated.
        """
        with requests.Session() as session:
            session.trust_env = False
            sent = {"Authorization": f"Bearer {self.token}"}
            answer = session.post(self.server.url + path, json=body, headers=sent, verify=self.server.ca, timeout=120)
        self.codes.append(answer.status_code)
        return answer.json()

    def many(self, asks: Iterable[tuple[Any, ...]], at_once: int = 4) -> None:
        """Sends many requests over a fixed number of connections: opening a connection for each would be most of the work."""
        free = SimpleQueue[requests.Session]()
        with contextlib.ExitStack() as stack, ThreadPoolExecutor(at_once) as pool:
            for _ in range(at_once):
                free.put(stack.enter_context(requests.Session()))

            def ask(args: tuple[Any, ...]) -> None:
                session = free.get()
                try:
                    self._asked(session, *args)
                finally:
                    free.put(session)

            list(pool.map(ask, asks))

    def post(self, path: str, body: Any, ctype: str = JSON, times: int = 4, **headers: str) -> None:
        """Sends the same request several times, all at once."""
        with ThreadPoolExecutor(times) as pool:
            list(pool.map(lambda _: self.ask("POST", path, body, ctype, **headers), range(times)))

    def define(self, plural: str, schema: dict[str, Any]) -> str:
        """Creates a definition and waits until it is served; returns the path of its objects, or "" if it was refused. It is deleted
        afterwards."""
        made = self.ask("POST", CRDS, definition(plural, schema))
        if made not in (201, 409):
            return ""
        self.cleaned.append(lambda: self.ask("DELETE", f"{CRDS}/{plural}.rows.example.com"))
        path = f"/apis/rows.example.com/v1/namespaces/{self.room}/{plural}"
        while self.ask("GET", path) == 404:
            self.codes.pop()
        return path

    def custom(self, plural: str, spec: Any) -> dict[str, Any]:
        """Returns an object of a definition."""
        return {"apiVersion": "rows.example.com/v1", "kind": plural.capitalize(), "metadata": {"generateName": "x"}, "spec": spec}

    @contextlib.contextmanager
    def wire(self, alpn: str = "http/1.1", timeout: float = 10.0) -> Iterator[ssl.SSLSocket]:
        """Opens a connection. Whatever the server does to it is accepted."""
        with contextlib.suppress(OSError), dial(self.server, alpn) as s:
            s.settimeout(timeout)
            if alpn == "h2":
                s.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0, b""))
            yield s

    def frames(self, pieces: Iterable[bytes], listen: float = 1.0) -> None:
        """Sends HTTP/2 frames without reading, then reads answers for a while. The wait is short if a final ping is answered: then all
        frames have been processed."""
        with self.wire("h2") as s:
            for piece in pieces:
                s.sendall(piece)
            s.sendall(frame(PING, 0, 0, LAST))
            s.settimeout(listen)
            got = b""
            while data := s.recv(65536):
                if LAST in (got := got[1 - len(LAST) :] + data):
                    s.settimeout(min(listen, MOMENT_S))

    def head(self, method: str, path: str, *lines: str) -> bytes:
        """Returns the head of an HTTP/1.1 request."""
        return "\r\n".join((f"{method} {path} HTTP/1.1", "Host: x", f"Authorization: Bearer {self.token}", *lines, "", "")).encode()

    def raw(self, connections: int, *pieces: bytes, listen: float = 1.0) -> None:
        """Sends the same bytes on several connections at once; reads only after everything was sent."""
        with contextlib.ExitStack() as stack:
            wires = [stack.enter_context(self.wire(timeout=2.0)) for _ in range(connections)]
            for s in wires:
                with contextlib.suppress(OSError):
                    for piece in pieces:
                        s.sendall(piece)
            for s in wires:
                s.settimeout(listen)
                with contextlib.suppress(OSError):
                    s.recv(65536)

    def plain(self, connections: int, first: bytes) -> list[socket.socket]:
        """Opens connections that begin as TLS and go no further."""
        made = []
        for _ in range(connections):
            s = socket.create_connection(("127.0.0.1", self.server.port), 60)
            s.sendall(first)
            made.append(s)
        self.cleaned.append(lambda: [s.close() for s in made])
        return made

    def clean(self) -> None:
        """Deletes what rows have created."""
        for one in reversed(self.cleaned):
            one()
        self.cleaned.clear()
