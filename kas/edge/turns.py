"""Whose request is begun next while requests wait for seats.

Finding out who asks, and that there is no seat, costs about as much as a small answer. A flood that comes at once would have that done for
all of it before anybody else is looked at. So while somebody waits for seats, what granian hands over is only put down here, by
credential, and begun a few a turn of the loop, one of each credential in turn. What a credential is worth, and who waits how long
then, is for the filters; nothing is refused here. While nobody waits this costs the one question.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any

from kas.edge.front.introduction import Introductions

BEGUN = 8  # in a turn: twice what a level serves in one, so that what waits is soon where levels choose among it


class Turns:
    """``crowded()`` is true while requests of this worker wait for seats. Bounded by what granian has open, as its own queue is."""

    def __init__(self, crowded: Callable[[], object]) -> None:
        self._crowded = crowded
        self._flows: OrderedDict[int, deque[tuple[Callable[[Any], object], Any]]] = OrderedDict()  # by credential, who is next first

    def hold(self, scope: dict[str, Any], introductions: Introductions | None, begin: Callable[[Any], object], request: Any) -> bool:
        """Whether the request is begun later, by ``begin(request)``. False: now, by whoever asks."""
        if not self._flows and not self._crowded():
            return False
        if not self._flows:
            asyncio.get_running_loop().call_soon(self._turn)
        key = _credential(scope, introductions)
        waiting = self._flows.get(key)
        if waiting is None:
            waiting = self._flows[key] = deque()
        waiting.append((begin, request))
        return True

    def _turn(self) -> None:
        for _ in range(BEGUN):
            if not self._flows:
                return
            key, waiting = self._flows.popitem(last=False)
            begin, request = waiting.popleft()
            if waiting:
                self._flows[key] = waiting
            begin(request)
        if self._flows:
            asyncio.get_running_loop().call_soon(self._turn)


def _credential(scope: dict[str, Any], introductions: Introductions | None) -> int:
    """What tells clients apart before it is known who they are: the credential, else the certificate, else the address. A hash, whose key
    is the process's own."""
    for name, value in scope["headers"]:
        if name == b"authorization":
            return hash(value)
    address = scope["client"][0] if scope["client"] else ""
    who = introductions.of(address) if introductions is not None else None
    if who is None:
        return hash(address)
    return hash(who.client if who.certificates is None else who.certificates.key)
