"""Whose request is begun next when they come faster than they are answered, or wait for seats.

Granian hands requests over from a thread of its own. All that came since the loop looked last are begun in one turn of it, in the order in
which they came, as long as that is short: finding out who asks, and that there is no seat, costs about as much as a small answer, and a
flood that comes at once would have that done for all of it before anybody else is looked at. So what is not begun when a turn has taken its
time, or while somebody waits for seats, is put down by credential, and one of each is begun in turn; then others are heard. What a
credential is worth, and who waits how long then, is for the filters; who they let act as others with it is as many as those, and so is an
authenticating proxy, which names its users.

Turns are long while all requests are one user's (nobody gains by shorter ones), and short while there are several. Then who has nothing put
down is begun before those who have, and who has four times as much put down as all others together floods: of his, one a turn is begun, and
only when the one before has ended or had ``HOLD_S`` for it, and not while a large answer is given to another; before it, and before it is
answered at length, the processor is offered to the other threads, and who came meanwhile is begun first. Granian's threads, which read
and write for everybody in the order of arrival, would otherwise get to run when the kernel takes the processor away, some milliseconds
later, and whatever they have in hand by then is the flood's; so would seats, the store's next commit and what waits to be written to
clients.

A head is as large as a client likes, up to 256 KiB, and a connection of HTTP/2 sends 100 of them at once, long before anybody knows whose
they are. So what is put down has a bound in bytes: beyond it large heads are refused, and ordinary ones wait as ever.

What is given to granian's thread faster than it can write lies before what is answered next (``kas.edge.writelag``). So while it is behind,
only those are begun that have nothing put down, of credentials that were good a moment ago first, and refusals wait as well. Credentials
that nobody knows count by their connection: who makes up another one for each request would come anew with each.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from kas.edge.unauthenticated import UnauthenticatedShare
from kas.edge.writelag import BATCH, Exchange, WriteLag

if TYPE_CHECKING:
    from kas.edge.front.introduction import Introductions

log = logging.getLogger("kas.edge")

TURN_S = 0.02  # of the loop, after which what comes is put down; a hundred GETs take half of it
SHARED_TURN_S = 0.0003  # the same while several users ask: half a dozen GETs
BEGUN = 8  # of those put down, in a turn that took no longer
HANDS = 2  # how often the processor is offered for it: to the thread that reads and writes, and to the one that hands over what was read
HOLD_S = 0.002  # how long one of who floods may take until the next of his is begun beside it, and a large answer to another
LONGEST_S = 0.005  # but no longer than this after the one before
STEPS = 2  # of the loop, until what came meanwhile is answered: it is begun, and its task takes the first step
FLOOD = 4  # times what all others have to come: one a turn costs two who ask alike more than half of what both could have
UNASKED = 7 * BATCH  # answers of those who have nothing put down, beyond the usual, before it is asked whether they are written
PUT_DOWN_S = 0.005  # of a turn, for finding out whose what came is: 25,000 that came at once held the loop for a second
HEADS_BYTES = 32 << 20  # of heads that are put down; beyond that only small ones are
SMALL_HEAD = 4 << 10


class GranianRequest(Protocol):
    """A request as granian hands it over. ``scope`` is made anew whenever it is asked for."""

    @property
    def scope(self) -> dict[str, Any]:
        """ASGI's."""

    @property
    def proto(self) -> Exchange:
        """What receives and sends."""


class _Dismissed:
    """What is left of a request that is to be refused: its head is not kept."""

    __slots__ = ("proto",)

    def __init__(self, proto: Exchange) -> None:
        self.proto = proto

    def done(self) -> None:
        """As granian's."""

    def err(self, error: BaseException) -> None:
        """As granian's, which answers for what is dropped."""
        log.error("a request was not refused: %s", error)


class RequestTask(Protocol):
    """What is left to do of a request that was begun: its task."""

    def done(self) -> bool:
        """Whether that is done."""

    def add_done_callback(self, told: Callable[[Any], object], /) -> object:
        """``told`` is called once it is."""


Begin = Callable[[Any, dict[str, Any] | None], RequestTask | None]  # without a scope: it is to be refused
Shows = Callable[[bytes, str, "bytes | None"], "Hashable | None"]
Arrived = tuple[Begin, "Introductions | None", Any]
PutDown = tuple[Begin, Any, dict[str, Any], int, int]  # with its size, and its connection where its credential is not known, else 0


class Dispatcher:
    """``crowded()`` is true while requests of this worker wait for seats, ``shared()`` while several users ask. Bounded by what granian
    has open, as its own queue is."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, crowded: Callable[[], object] = lambda: False, shared: Callable[[], object] = lambda: False,
        clock: Callable[[], float] = time.monotonic, give_way: Callable[[], object] = os.sched_yield,
        knows: Callable[[bytes], bool] = lambda credential: True, lone: Callable[[], object] = lambda: False,
        acts: Callable[[bytes, bytes], bool] = lambda credential, wanted: False, strangers: Callable[[], int] = lambda: 0,
        shows: Shows = lambda certificates, named, wanted: None, naming: Sequence[bytes] = (),
        spoke: Callable[[int], object] = lambda port: None,
    ) -> None:  # fmt: skip
        """``knows(header)`` is whether this Authorization header was good a moment ago, ``acts(header, name)`` whether it was with this
        Impersonate-User header, ``lone()`` whether, while one user asks, nobody was refused lately either: what was given to him lies
        before nobody else's. ``strangers()`` is how many requests so far came of nobody known. ``shows(key, name, wanted)`` is who was let
        in with these certificates a moment ago, with that user named by a proxy and that Impersonate-User header (None for none), None for
        nobody; proxies name users in the first of the headers ``naming`` that is not empty. ``spoke`` is told the client's port of each
        request that is put down: it may be long until it is begun, and its connection is no silent one."""
        self._loop, self._crowded, self._shared, self._clock, self._give_way = loop, crowded, shared, clock, give_way
        self._lone, self._alone = lone, False  # and whether it was when the last turn began
        self._shows, self._naming, self._spoke = shows, tuple(naming), spoke
        self._knows, self._acts, self._behind = knows, acts, WriteLag(loop, self._written, clock)
        self._due = False  # whether a turn is to come
        self._anew = False  # whether that was asked for before who came anew, and goes on in a task, has one
        self._come: deque[Arrived] = deque()
        self._flows: OrderedDict[int, deque[PutDown]] = OrderedDict()  # by credential, who is next first
        self._fresh: OrderedDict[int, None] = OrderedDict()  # those of them of whom none has been begun since they had nothing put down
        self._good: OrderedDict[int, None] = OrderedDict()  # those of these whose credential is known
        self._let: dict[int, int] = {}  # by credential, how many were begun while granian's thread was behind, until it came by
        self._dismissed: deque[tuple[Begin, _Dismissed]] = deque()  # to be refused
        self._strangers = UnauthenticatedShare(strangers, clock)
        self._timer: asyncio.TimerHandle | None = None  # until the end of the rest of those
        self._passed = 0  # how many of these were begun while others were next
        self._waiting = self._bytes = 0  # how many there are in all of them, and of how many bytes
        self._ended = 0.0  # when the last turn did that began what was put down
        self._last: RequestTask | None = None  # of the flood's, the one that was begun last
        self._beside = 0.0  # when another one may be begun beside it
        self._other: RequestTask | None = None  # of the others', the one that began to give a large answer last
        self._until = 0.0  # how long the flood waits for that
        self._held = False  # only the flood's is left, and waits for that
        self._going: dict[int, int] = {}  # by credential, how many go on that were begun since nobody waited for seats

    def arrive(self, begin: Begin, introductions: Introductions | None, request: GranianRequest) -> None:
        """``begin(request, scope)`` is called in a turn of the loop, this one or a later one, without a scope for what is to be refused; it
        does not raise. From any thread."""
        self._come.append((begin, introductions, request))
        if not self._due:
            self._due = True
            self._loop.call_soon_threadsafe(self._turn)

    def _turn(self) -> None:
        if self._anew:
            self._anew = False
            self._loop.call_soon(self._turn)
            return
        self._due = False
        try:
            self._begin_some()
        finally:  # whatever became of one of them, the others are begun
            if not self._due:
                if self._come or (self._flows and not self._held and not self._stops()):
                    self._due = True
                    self._loop.call_soon(self._turn)
                elif (self._dismissed or self._strangers.waiting) and self._timer is None and not self._far():
                    self._timer = self._loop.call_later(self._strangers.rests(), self._rested)

    def _rested(self) -> None:
        self._timer = None
        if not self._due:
            self._due = True
            self._turn()

    def _stops(self) -> bool:
        """Whether nothing of what is put down may be begun until others have written what they were given."""
        return self._far() and not self._good and (not self._fresh or self._far(BATCH))

    def _far(self, more: int = 0) -> bool:
        return not self._alone and self._behind.far(more)

    def _written(self) -> None:
        self._let.clear()
        self._resume()

    def _resume(self, _: object = None) -> None:
        self._held = False
        if (self._flows or self._dismissed or self._strangers.waiting) and not self._due:
            self._due = True
            self._loop.call_soon(self._turn)

    def _begin_some(self) -> None:
        come, clock, crowded = self._come, self._clock, self._crowded
        began = clock()
        length = SHARED_TURN_S if self._shared() else TURN_S
        self._alone = length == TURN_S and bool(self._lone())
        if not self._flows and not self._dismissed and not self._strangers.many(began):
            self._ended = began
            until, count, behind = began + length, 0, self._behind
            if behind.given < UNASKED or not self._far(UNASKED):
                while come and not crowded():
                    begin, _, request = come.popleft()
                    going = begin(request, scope := request.scope)
                    count += 1
                    if (count >= UNASKED and not self._alone) or clock() > until:
                        break
                if count:
                    behind.given += count
                    if going is None and scope.get("method") == "GET":
                        behind.over = request.proto
                if not come:
                    return
        self._put_all_down()
        self._go_on(began, length)

    def _put_all_down(self) -> None:
        come, clock = self._come, self._clock
        until = clock() + PUT_DOWN_S
        while come:
            self._put_down(*come.popleft())
            if clock() > until:  # the rest is looked at in the next turn
                break

    def _put_down(self, begin: Begin, introductions: Introductions | None, request: GranianRequest) -> None:
        scope = request.scope
        if introductions is None and scope["client"]:  # a front's relays have no ports
            self._spoke(int(scope["client"][1]))
        size = _size(scope)
        if size > SMALL_HEAD and self._bytes + size > HEADS_BYTES and scope["type"] == "http":
            self._dismissed.append((begin, _Dismissed(request.proto)))
            return
        key, good = self._credential(scope, introductions)
        connection = 0 if good else _connection(scope)
        self._bytes += size
        if connection and self._strangers.knows(connection):
            self._strangers.add(connection, (begin, request, scope, size, connection))
            return
        waiting = self._flows.get(key)
        if waiting is None:
            waiting = self._flows[key] = deque()
            self._fresh[key] = None
            if good and self._let.get(key, 0) < BEGUN:
                self._good[key] = None
        waiting.append((begin, request, scope, size, connection))
        self._waiting += 1

    def _credential(self, scope: dict[str, Any], introductions: Introductions | None) -> tuple[int, bool]:
        """What tells clients apart before it is known who they are, and whether it is known to be good: the credential where it is, with
        whom it acts as, else the certificates, with whom their proxy names, else the connection where a credential is shown; without one
        the certificates, else the address. A hash, whose key is the process's own."""
        client, naming = scope["client"], self._naming
        credential = wanted = None
        names: dict[bytes, bytes] = {}
        for name, value in scope["headers"]:
            if name == b"authorization":
                credential = value if credential is None else credential
            elif name == b"impersonate-user":
                wanted = value if wanted is None else wanted
            elif name in naming:
                names.setdefault(name, value)
        if credential is not None and self._knows(credential):
            return hash((credential, wanted) if wanted is not None and self._acts(credential, wanted) else credential), True
        address = client[0] if client else ""
        who = introductions.of(address) if introductions is not None else None
        certificates = None if who is None else who.certificates
        if certificates is not None:
            named = next((value for header in naming if (value := names.get(header, b""))), b"")
            found = self._shows(certificates.key, named.decode("utf-8", "replace"), wanted)
            if found is not None:
                return hash(found), True
        if credential is not None:
            return hash(tuple(client) if client else credential), False
        if who is None:
            return hash(address), False
        return hash(who.client if certificates is None else certificates.key), False

    def _go_on(self, began: float, length: float) -> None:
        """Begins some of what was put down, none where this turn has taken its time, one where what was begun before does so in tasks."""
        now, shared = self._clock(), length < TURN_S
        if self._going and not self._crowded():
            self._going = {}
        if now - began <= length:
            until = now + length
            left = 1 if began - self._ended > length else BEGUN
            gave_way = flooded = anew = False
            while left and self._flows and now <= until and not self._stops():
                key = self._next(shared)
                fresh = shared and key in self._fresh
                if anew and not fresh and self._passed < BEGUN:
                    break  # who came anew and goes on in a task takes his first step before others are begun
                if shared and self._floods(key):
                    if key in self._fresh:
                        del self._fresh[key]  # he has come anew, but in numbers
                        self._good.pop(key, None)
                        continue
                    if flooded or self._holds(now):
                        if len(self._flows) == 1:
                            break
                        self._flows.move_to_end(key)
                        continue
                    if not gave_way:
                        gave_way = True
                        for _ in range(HANDS):
                            self._give_way()
                        self._put_all_down()
                        continue  # who came meanwhile is first
                    flooded = True
                anew = (self._begin(key) is not None and fresh) or anew
                left -= 1
                now = self._clock()
            self._anew = anew and self._due
            if (self._dismissed or self._strangers.waiting) and not self._strangers.rests():
                self._begin_strangers()
        self._ended = now

    def _begin_strangers(self) -> None:
        """Begins some of what came of nobody known, and refuses some of those that are to be refused."""
        strangers, began = self._strangers, self._clock()
        for _ in range(BEGUN):
            if self._far():
                break
            if strangers.waiting:
                begin, request, scope, size, connection = strangers.next()
                self._bytes -= size
                before = strangers.count()
                going = begin(request, scope)
                strangers.began(connection, before)
                self._gave(going, request, scope)
            elif self._dismissed:
                begin, request = self._dismissed.popleft()
                begin(request, None)
                self._behind.given += 1
            else:
                break
        strangers.took(self._clock() - began)

    def _next(self, shared: bool) -> int:
        """Whose request is next: while there are several users who has come anew, but not for ever."""
        if self._far():
            return next(iter(self._good or self._fresh))
        return next(iter(self._fresh if shared and self._fresh and self._passed < BEGUN else self._flows))

    def _floods(self, key: int) -> bool:
        """Whether he has several times as much to come as all others together: put down, or begun and waiting for seats, as far as that
        can be told. Of users who ask for as much as one another none does."""
        count = len(self._flows[key]) + self._going.get(key, 0)
        return BEGUN < count > FLOOD * (self._waiting + sum(self._going.values()) - count)

    def _holds(self, now: float) -> bool:
        """Whether the flood has to wait: for the one of it that was begun last, or for what is given to others. Who is held alone needs no
        turn until then."""
        both = (self._last, self._beside), (self._other, self._until)
        going = {one: until for one, until in both if one is not None and now < until and not one.done()}
        if not going:
            return False
        if not self._held and len(self._flows) == 1:
            self._held = True
            for one in going:
                one.add_done_callback(self._resume)
            self._loop.call_later(max(going.values()) - now, self._resume)
        return True

    def gives(self) -> Awaitable[None] | None:
        """The running task is about to give a large answer, which the thread that reads for everybody encrypts and writes in one go.
        Returns what it has to wait for before, None for all but the flood's: who came while that was made is heard, and what can be
        answered at once goes first. While others' are given the flood waits."""
        task = asyncio.current_task()
        assert task is not None
        if task is self._last:
            return self._others_first() if self._shared() else None
        self._other, self._until = task, min(self._clock() + HOLD_S, self._beside - HOLD_S + LONGEST_S)
        return None

    async def _others_first(self) -> None:
        for _ in range(HANDS):
            self._give_way()
        for _ in range(STEPS):
            await asyncio.sleep(0)

    def _gave(self, going: RequestTask | None, request: GranianRequest, scope: dict[str, Any]) -> None:
        self._behind.given += 1
        if going is None and scope.get("method") == "GET":
            self._behind.over = request.proto

    def _begin(self, key: int) -> RequestTask | None:
        flows, fresh, floods = self._flows, self._fresh, self._floods(key)
        self._passed = self._passed + 1 if key in fresh and len(fresh) < len(flows) else 0
        waiting = flows.pop(key)
        fresh.pop(key, None)
        self._good.pop(key, None)
        put_down = waiting.popleft()
        self._waiting -= 1
        if waiting:
            flows[key] = waiting
        begin, request, scope, size, connection = put_down
        if connection and self._strangers.knows(connection):  # by now
            self._strangers.add(connection, put_down)
            return None
        self._bytes -= size
        if self._far():
            self._let[key] = self._let.get(key, 0) + 1
        before = self._strangers.count()
        going = begin(request, scope)
        self._strangers.began(connection, before)
        self._gave(going, request, scope)
        if going is not None and self._crowded():
            self._going[key] = self._going.get(key, 0) + 1
            going.add_done_callback(partial(_gone, self._going, key))
        if floods:
            self._last, self._beside = going, self._clock() + HOLD_S
        return going


def _gone(going: dict[int, int], key: int, _: object) -> None:
    left = going.get(key, 0) - 1
    if left > 0:
        going[key] = left
    else:
        going.pop(key, None)


def _connection(scope: dict[str, Any]) -> int:
    return hash(tuple(scope["client"] or ()))


def _size(scope: dict[str, Any]) -> int:
    """What a head takes: its path and query are kept as bytes and as text."""
    size = 2 * (len(scope["path"]) + len(scope["query_string"]))
    for name, value in scope["headers"]:
        size += len(name) + len(value)
    return size
