"""Connections for fuzzing: a request is written to each of them before the first answer is read, so that nobody waits for a turn."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
from collections.abc import Sequence
from typing import NamedTuple

from kas.testing.server import KasServer

http.client._MAXHEADERS = 1000  # type: ignore[attr-defined]  # up to 4 KiB of short warnings are more headers than Python's client takes
TIMEOUT_S = 90.0
CONNECTIONS = 16
BODIES = ("POST", "PUT", "PATCH")  # a request that says a length even where it is 0


class Asked(NamedTuple):
    """A request: its path as it is on the wire, and headers besides Host, Authorization and Content-Length."""

    verb: str
    path: str
    headers: dict[str, str] = {}  # nobody changes it
    body: bytes = b""

    def shown(self) -> str:
        """What a failure says of it."""
        return f"{self.verb} {self.path[:300]} {self.headers} {self.body[:1500]!r}"


class Answer(NamedTuple):
    """What came: status 0 for a connection that was ended, twice, without an answer."""

    status: int
    ctype: str = ""
    data: bytes = b""

    @property
    def text(self) -> str:
        """The body, whatever its form."""
        return self.data.decode(errors="replace")


class Connection:
    """A connection to a server as its administrator, made again when the server ended it."""

    def __init__(self, server: KasServer, context: ssl.SSLContext) -> None:
        self._server, self._context = server, context
        self._always = f"\r\nHost: 127.0.0.1:{server.port}\r\n".encode()
        self._authorization = f"Authorization: Bearer {server.token}\r\n".encode()
        self._socket: ssl.SSLSocket | None = None

    def send(self, asked: Asked) -> None:
        """Writes a request. What cannot be written is seen when the answer is read."""
        if self._socket is None:
            plain = socket.create_connection(("127.0.0.1", self._server.port), timeout=TIMEOUT_S)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket = self._context.wrap_socket(plain, server_hostname="127.0.0.1")
        with contextlib.suppress(ConnectionError, ssl.SSLError):  # a server that says no before it has read all
            self._socket.sendall(self._head(asked) + asked.body)

    def take(self, asked: Asked) -> Answer | None:
        """The answer to the request that was written; None where the connection was ended without one. Raises TimeoutError."""
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
        """Ends the connection."""
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
    """`CONNECTIONS` to a server."""

    def __init__(self, server: KasServer) -> None:
        self.server = server
        context = ssl.create_default_context(cafile=server.ca)
        self._connections = [Connection(server, context) for _ in range(CONNECTIONS)]

    def ask(self, asked: Asked) -> Answer:
        """The answer to one request. One that was left without because its connection ended is asked once more, on a new one: the end may
        have been that of the request before it."""
        one = self._connections[0]
        one.send(asked)
        if (answer := one.take(asked)) is not None:
            return answer
        one.send(asked)
        return one.take(asked) or Answer(0)

    def ask_all(self, asked: Sequence[Asked]) -> list[Answer]:
        """The answers to requests, in their order, asked side by side in that of nobody."""
        out: list[Answer] = []
        for at in range(0, len(asked), CONNECTIONS):
            some = asked[at : at + CONNECTIONS]
            for one, wire in zip(some, self._connections, strict=False):
                wire.send(one)
            got = [wire.take(one) for one, wire in zip(some, self._connections, strict=False)]
            out += [answer or self.ask(one) for one, answer in zip(some, got, strict=True)]
        return out

    def close(self) -> None:
        """Ends the connections."""
        for one in self._connections:
            one.close()
