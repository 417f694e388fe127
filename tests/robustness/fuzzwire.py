"""Connections for fuzzing: a request is written to each of them before the first answer is read, so that requests run concurrently."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
from collections.abc import Sequence
from typing import NamedTuple

from kas.testing.server import KasServer

http.client._MAXHEADERS = 1000  # type: ignore[attr-defined]  # up to 4 KiB of short warnings are more headers than Python's client accepts
TIMEOUT_S = 90.0
CONNECTIONS = 16
BODIES = ("POST", "PUT", "PATCH")  # methods whose requests have a Content-Length even if it is 0


class Asked(NamedTuple):
    """A request: its path as it is sent, and headers besides Host, Authorization and Content-Length."""

    verb: str
    path: str
    headers: dict[str, str] = {}  # must not be changed
    body: bytes = b""

    def shown(self) -> str:
        """Returns a description for failures."""
        return f"{self.verb} {self.path[:300]} {self.headers} {self.body[:1500]!r}"


class Answer(NamedTuple):
    """An answer; status 0 for a connection that was closed, twice, without one."""

    status: int
    ctype: str = ""
    data: bytes = b""

    @property
    def text(self) -> str:
        """The body as text, whatever its format."""
        return self.data.decode(errors="replace")


class Connection:
    """The administrator's connection to a server, opened again when the server closed it."""

    def __init__(self, server: KasServer, context: ssl.SSLContext) -> None:
        self._server, self._context = server, context
        self._always = f"\r\nHost: 127.0.0.1:{server.port}\r\n".encode()
        self._authorization = f"Authorization: Bearer {server.token}\r\n".encode()
        self._socket: ssl.SSLSocket | None = None

    def send(self, asked: Asked) -> None:
        """Writes a request. A write error shows when the answer is read."""
        if self._socket is None:
            plain = socket.create_connection(("127.0.0.1", self._server.port), timeout=TIMEOUT_S)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket = self._context.wrap_socket(plain, server_hostname="127.0.0.1")
        with contextlib.suppress(ConnectionError, ssl.SSLError):  # the server may refuse before it has read everything
            self._socket.sendall(self._head(asked) + asked.body)

    def take(self, asked: Asked) -> Answer | None:
        """Returns the answer to the request that was written; None if the connection was closed without one. Raises TimeoutError."""
        if self._socket is None:
            raise ValueError("nothing was sent")
        answer = http.client.HTTPResponse(self._socket, method=asked.verb)
        try:
            answer.begin()
            data = b"" if answer.status == 101 else answer.read()
        except TimeoutError:
            raise TimeoutError(asked.shown()) from None
        except (OSError, http.client.HTTPException):
            self.close()
            return None
        finally:
            answer.close()
        if answer.status == 101 or answer.will_close:
            self.close()
        return Answer(answer.status, answer.headers.get("Content-Type", ""), data)

    def close(self) -> None:
        """Closes the connection."""
        if self._socket is not None:
            self._socket.close()
        self._socket = None

    def _head(self, asked: Asked) -> bytes:
        lines = bytearray(f"{asked.verb} {asked.path} HTTP/1.1".encode("latin-1", "replace"))
        lines += self._always
        if "Authorization" not in asked.headers:
            lines += self._authorization
        for name, value in asked.headers.items():
            lines += f"{name}: {value}\r\n".encode("latin-1")
        if asked.body or asked.verb in BODIES:
            lines += b"Content-Length: %d\r\n" % len(asked.body)
        return bytes(lines + b"\r\n")


class Wire:
    """`CONNECTIONS` connections to a server."""

    def __init__(self, server: KasServer) -> None:
        self.server = server
        context = ssl.create_default_context(cafile=server.ca)
        self._connections = [Connection(server, context) for _ in range(CONNECTIONS)]

    def ask(self, asked: Asked) -> Answer:
        """Returns the answer to one request. If the connection was closed without one, the request is repeated once on a new connection:
        the request before it may have caused the close."""
        one = self._connections[0]
        one.send(asked)
        if (answer := one.take(asked)) is not None:
            return answer
        one.send(asked)
        return one.take(asked) or Answer(0)

    def ask_all(self, asked: Sequence[Asked]) -> list[Answer]:
        """Returns the answers to requests, in their order; the requests run concurrently."""
        out: list[Answer] = []
        for at in range(0, len(asked), CONNECTIONS):
            some = asked[at : at + CONNECTIONS]
            for one, wire in zip(some, self._connections, strict=False):
                wire.send(one)
            got = [wire.take(one) for one, wire in zip(some, self._connections, strict=False)]
            out += [answer or self.ask(one) for one, answer in zip(some, got, strict=True)]
        return out

    def close(self) -> None:
        """Closes the connections."""
        for one in self._connections:
            one.close()
