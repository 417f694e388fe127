"""What the TLS front tells a worker about its connections: the client's address and the certificates it has presented.

Messages on a stream socket, each preceded by its length (4 bytes, big endian). From the front:

- "+", the length of the relay's address (1 byte) and the address, the length of the client's address (1 byte) and
  the address, and for each certificate its length (4 bytes) and its DER: the relay speaks for that client.
- "-", the length of the relay's address and the address: the relay's address is given up.
- "n", the length of the relay's address and the address, 8 bytes (big endian), and one byte that is 1 once the
  client has disconnected: the answer to "c".

From the worker, each with the length of a relay's address and the address:

- "g": the client should be asked to reconnect.
- "l": the client has to reconnect.
- "c": the worker wants to know how many bytes have arrived over the connection.

"+" is sent before the relay connects, and "-" before its address is freed. The kernel has what was sent, so a worker
that reads everything pending before it looks an address up never misses a "+", nor trusts what a "-" has taken back.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import struct
from collections.abc import Callable, Sequence

from kas.auth.authn.x509 import Certificates
from kas.edge.front.rendezvous import free

log = logging.getLogger("kas.front")

_LENGTH, _COUNT = struct.Struct(">I"), struct.Struct(">Q?")
GO_AWAY, LEAVE, HOW_MUCH = b"g", b"l", b"c"  # messages of a worker
READ_BYTES = 1 << 18


def hello(address: str, client: str, chain: Sequence[bytes]) -> bytes:
    """The message that a relay at ``address`` speaks for ``client``, which has presented the certificates ``chain``
    (DER; may be empty)."""
    parts = [b"+", _short(address), _short(client)]
    for der in chain:
        parts += [_LENGTH.pack(len(der)), der]
    return _framed(b"".join(parts))


def goodbye(address: str) -> bytes:
    """The message that ``address`` no longer speaks for a client."""
    return _framed(b"-" + _short(address))


def counted(address: str, size: int, gone: bool) -> bytes:
    """The message that ``size`` bytes have arrived over the connection of ``address``, and whether its client has
    disconnected."""
    return _framed(b"n" + _short(address) + _COUNT.pack(size, gone))


def _short(text: str) -> bytes:
    data = text.encode()
    return bytes((len(data),)) + data


def _framed(body: bytes) -> bytes:
    return _LENGTH.pack(len(body)) + body


class Messages:
    """Splits a stream that arrives piece by piece into messages."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = b""

    def of(self, data: bytes) -> list[bytes]:
        """The messages that these bytes complete, without their lengths."""
        data, at, out = self._rest + data, 0, []
        while len(data) - at >= 4:
            (length,) = _LENGTH.unpack_from(data, at)
            end = at + 4 + length
            if end > len(data):
                break
            out.append(data[at + 4 : end])
            at = end
        self._rest = data[at:]
        return out


def named(body: bytes) -> str:
    """The relay's address in a message."""
    return body[2 : 2 + body[1]].decode()


class Introduction:
    """The client that a relay speaks for (``kas.request.http.Connection``). ``certificates`` is None if it presented
    none."""

    __slots__ = ("_address", "_front", "_on_count", "certificates", "client", "over")

    def __init__(self, address: str, client: str, certificates: Certificates | None, front: socket.socket) -> None:
        self._address, self.client, self.certificates, self._front = address, client, certificates, front
        self._on_count: Callable[[int, bool], None] = lambda size, gone: None
        self.over = False  # the relay speaks for no client any more

    def leave(self, must: bool = False) -> None:
        """Asks the client to reconnect; if it ``must``, the front enforces it."""
        self._send(LEAVE if must else GO_AWAY)

    def count(self, report: Callable[[int, bool], None]) -> None:
        """Asks the front how many bytes have arrived over the connection and whether the client has disconnected;
        calls ``report`` with both."""
        self._on_count = report
        if self.over:
            report(0, True)
        else:
            self._send(HOW_MUCH)

    def tell(self, size: int, gone: bool) -> None:
        """Delivers the front's answer to ``count``."""
        self._on_count(size, gone)

    def _send(self, what: bytes) -> None:
        """Sends a message, which is lost if the front is busy or gone."""
        with contextlib.suppress(OSError):
            self._front.send(_framed(what + _short(self._address)))


class _Front:
    """A connected front process and what it has told so far."""

    __slots__ = ("known", "messages", "sock")

    def __init__(self, sock: socket.socket) -> None:
        self.sock, self.messages, self.known = sock, Messages(), dict[str, Introduction]()


class Introductions:
    """The worker's side. What a front process has told is forgotten when it ends."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._fronts: list[_Front] = []
        self._listening: socket.socket | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Accepts front processes from now on, in the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._listening = socket.socket(socket.AF_UNIX)
        free(self._address)
        self._listening.bind(self._address)
        self._listening.listen(16)
        self._listening.setblocking(False)
        self._loop.add_reader(self._listening.fileno(), self._accept)

    def of(self, address: str) -> Introduction | None:
        """The client that the relay with this address speaks for now; None for an unknown address."""
        for front in self._fronts:
            found = front.known.get(address)
            if found is not None:
                if found.certificates is None:
                    return found
                break
        # An introduction may be taken back at any time, which matters for certificates, and a connection may be faster
        # than its introduction.
        for front in tuple(self._fronts):
            self._read(front)
        found = next((f.known[address] for f in self._fronts if address in f.known), None)
        return self.of(address) if found is None and self._accept() else found  # it may be the first one of a front that has just connected

    def close(self) -> None:
        """Accepts no more front processes and forgets what they have told."""
        assert self._loop is not None
        if self._listening is not None:
            self._loop.remove_reader(self._listening.fileno())
            self._listening.close()
            self._listening = None
        for front in tuple(self._fronts):
            self._drop(front)

    def _accept(self) -> bool:
        """Accepts a front process if one is waiting; returns whether it did."""
        if self._listening is None or self._loop is None:
            return False
        try:
            sock, _ = self._listening.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return False
        sock.setblocking(False)
        front = _Front(sock)
        self._fronts.append(front)
        self._loop.add_reader(sock.fileno(), self._read, front)
        return True

    def _read(self, front: _Front) -> None:
        """Reads everything that the front has sent by now."""
        while True:
            try:
                data = front.sock.recv(READ_BYTES)
            except BlockingIOError:
                return
            except OSError as e:
                log.warning("the connection to a TLS front failed: %s", e)
                data = b""
            if not data:
                self._drop(front)
                return
            for body in front.messages.of(data):
                self._handle(front, body)
            if len(data) < READ_BYTES:
                return

    @staticmethod
    def _handle(front: _Front, body: bytes) -> None:
        address = named(body)
        if body[:1] == b"-":
            if (left := front.known.pop(address, None)) is not None:
                left.over = True
            return
        if body[:1] == b"n":
            if address in front.known:
                front.known[address].tell(*_COUNT.unpack_from(body, 2 + body[1]))
            return
        at = 2 + body[1]
        end = at + 1 + body[at]
        client, at, chain = body[at + 1 : end].decode(), end, []
        while at < len(body):
            (length,) = _LENGTH.unpack_from(body, at)
            chain.append(body[at + 4 : at + 4 + length])
            at += 4 + length
        front.known[address] = Introduction(address, client, Certificates(chain) if chain else None, front.sock)

    def _drop(self, front: _Front) -> None:
        assert self._loop is not None
        self._loop.remove_reader(front.sock.fileno())
        front.sock.close()
        self._fronts.remove(front)
        for one in front.known.values():
            one.over = True
