"""Whose handshake goes on: clients take turns, and those who have a connection already come first.

A step of a handshake takes the front up to a millisecond, and whoever can reach the port may begin as many as he likes. So what has come
for those that are under way is put down, and of each turn of the loop they get no more than ``TURN_S``; what is said over connections that
are made is relayed in between.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from time import monotonic
from typing import Protocol

TURN_S = 0.001


class Handshaker(Protocol):
    """A connection in its handshake."""

    client: str  # one and the same for all connections of a client

    def shake(self) -> None:
        """Goes on with it, as far as what has come allows; nothing when it is closed."""


class Handshakes:
    """Goes on with handshakes in the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: OrderedDict[str, deque[Handshaker]] = OrderedDict()  # by client, whose turn is next in front
        self._due = False

    def ask(self, one: Handshaker) -> None:
        """``one.shake()`` is called when its client has its turn."""
        self._waiting.setdefault(one.client, deque()).append(one)
        if not self._due:
            self._due = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        until = monotonic() + TURN_S
        while self._waiting:
            client, of_client = next(iter(self._waiting.items()))
            one = of_client.popleft()
            if of_client:
                self._waiting.move_to_end(client)
            else:
                del self._waiting[client]
            one.shake()
            if monotonic() >= until:
                break
        self._due = bool(self._waiting)
        if self._due:
            self._loop.call_soon(self._turn)
