"""Whose request is begun next while requests wait for seats, or come faster than they are answered.

Finding out who asks, and that there is no seat, costs about as much as a small answer. A flood that comes at once would have that done for
all of it before anybody else is looked at. So while somebody waits for seats, what granian hands over is only put down here, by
credential, and begun a few a turn of the loop, one of each credential in turn. What a credential is worth, and who waits how long
then, is for the filters; nothing is refused here. While nobody waits this costs the one question.

The same goes for a turn of the loop that has taken long already: a thousand requests that came at once and take some milliseconds each,
without waiting for anything, would be answered before whoever comes next. Of them one of each credential is begun, then others are heard.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any

from kas.edge.front.introduction import Introductions

TURN_S = 0.02  # of the loop, after which what comes is put down; a hundred GETs take half of it
BEGUN = 8  # in a turn: twice what a level serves in a long one, so that what waits is soon where levels choose among it


class Turns:
    """``crowded()`` is true while requests of this worker wait for seats. Bounded by what granian has open, as its own queue is."""

    def __init__(self, crowded: Callable[[], object], clock: Callable[[], float] = time.monotonic) -> None:
        self._crowded, self._clock = crowded, clock
        self._marked = False  # whether this turn of the loop has begun a request at ``_began``
        self._began = 0.0
        self._flowing = 0.0  # when the turn began in which `_turn` looks
        self._share = BEGUN  # how many it begins
        self._flows: OrderedDict[int, deque[tuple[Callable[[Any], object], Any]]] = OrderedDict()  # by credential, who is next first

    def hold(self, scope: dict[str, Any], introductions: Introductions | None, begin: Callable[[Any], object], request: Any) -> bool:
        """Whether the request is begun later, by ``begin(request)``. False: now, by whoever asks."""
        if not self._flows:
            # uvloop's own time says when a turn began only until somebody sets a timer.
            if not self._marked:
                self._marked, self._began = True, self._clock()
                asyncio.get_running_loop().call_soon(self._unmark)
                late = False
            else:
                late = self._clock() - self._began > TURN_S
            if not late and not self._crowded():
                return False
            self._flowing, self._share = self._began, BEGUN
            asyncio.get_running_loop().call_soon(self._turn)
        key = _credential(scope, introductions)
        waiting = self._flows.get(key)
        if waiting is None:
            waiting = self._flows[key] = deque()
        waiting.append((begin, request))
        return True

    def _unmark(self) -> None:
        self._marked = False

    def _note(self) -> None:
        self._flowing = self._clock()

    def _turn(self) -> None:
        # What was begun in the turn before ran in this one, between `_note` and here.
        self._share = 1 if self._clock() - self._flowing > TURN_S else min(BEGUN, self._share + 1)
        asyncio.get_running_loop().call_soon(self._note)
        for _ in range(self._share):
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
