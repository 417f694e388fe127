"""A worker as the front sees it: where it accepts connections, and the channel that introduces them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

from kas.edge.front.introduction import HOW_MUCH, LEAVE, Messages, counted, named

RETRY_S = 0.05
READ_BYTES = 1 << 16


class Worker:
    """One worker. ``joined`` is true while the worker reads introductions; only then is it given connections, at
    ``address``, or at ``streams`` if they ask for SPDY. ``changed`` is called when that changes. ``relays`` are its
    connections by address."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, address: str, introductions: str, changed: Callable[[], None], streams: str = ""
    ) -> None:
        self._loop, self.address, self._introductions, self._changed = loop, address, introductions, changed
        self.streams = streams or address
        self.relays: dict[str, Any] = {}
        self.joined = False
        self._sock: socket.socket | None = None
        self._pending = b""  # bounded by what the waiting relays have to tell
        self._callbacks: list[Callable[[], None]] = []

    def join(self) -> None:
        """Tries until the worker can be reached, also when it comes back after its end."""
        sock = socket.socket(socket.AF_UNIX)
        sock.setblocking(False)
        try:
            sock.connect(self._introductions)
        except OSError:
            sock.close()
            self._loop.call_later(RETRY_S, self.join)
            return
        self._sock, self.joined = sock, True
        self._messages = Messages()
        self._loop.add_reader(sock.fileno(), self._read)
        self._changed()

    def tell(self, message: bytes, then: Callable[[], None]) -> None:
        """Sends a message and calls ``then`` once it, and all before it, is in the worker's socket; at once if the
        worker is gone."""
        self._callbacks.append(then)
        if self.joined:
            self._pending += message
        self._flush()

    def _flush(self) -> None:
        if self._sock is not None and self._pending:
            try:
                sent = self._sock.send(self._pending)
            except BlockingIOError:
                sent = 0
            except OSError:
                self._disconnect()
                return
            self._pending = self._pending[sent:]
            if self._pending:
                self._loop.add_writer(self._sock.fileno(), self._flush)
                return
            self._loop.remove_writer(self._sock.fileno())
        then, self._callbacks = self._callbacks, []
        for f in then:
            f()

    def _read(self) -> None:
        assert self._sock is not None
        try:
            data = self._sock.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data or self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):  # libuv no longer polls a socket with an error
            self._disconnect()
            return
        for body in self._messages.of(data):
            address = named(body)
            relay = self.relays.get(address)
            if relay is not None and body[:1] == HOW_MUCH:
                self.tell(counted(address, relay.came, relay.gone()), lambda: None)
            elif relay is not None:
                relay.go_away(body[:1] == LEAVE)

    def _disconnect(self) -> None:
        if self._sock is None:
            return
        self._loop.remove_reader(self._sock.fileno())
        self._loop.remove_writer(self._sock.fileno())
        self._sock.close()
        self._sock, self.joined, self._pending = None, False, b""
        self._flush()
        self._changed()
        self._loop.call_later(RETRY_S, self.join)
