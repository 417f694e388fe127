"""Schedules TLS handshakes: clients take turns, and established connections come first.

A step of a handshake takes the front up to a millisecond, and anybody who can reach the port may begin any number of
them. Data for handshakes is therefore queued, and the steps get at most ``BUDGET_S`` of each loop iteration;
established connections are relayed in between.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from time import monotonic
from typing import Protocol

BUDGET_S = 0.001


class Handshaker(Protocol):
    """A connection during its handshake."""

    client: str  # the same for all connections of a client

    def handshake(self) -> None:
        """Continues the handshake as far as the received data allows; does nothing if the connection is closed."""


class Handshakes:
    """Runs handshakes on the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: OrderedDict[str, deque[Handshaker]] = OrderedDict()  # by client; the next one to serve is first
        self._due = False

    def ask(self, one: Handshaker) -> None:
        """Calls ``one.handshake()`` when it is its client's turn."""
        self._waiting.setdefault(one.client, deque()).append(one)
        if not self._due:
            self._due = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        until = monotonic() + BUDGET_S
        while self._waiting:
            client, of_client = next(iter(self._waiting.items()))
            one = of_client.popleft()
            if of_client:
                self._waiting.move_to_end(client)
            else:
                del self._waiting[client]
            one.handshake()
            if monotonic() >= until:
                break
        self._due = bool(self._waiting)
        if self._due:
            self._loop.call_soon(self._turn)
