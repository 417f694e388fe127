"""The order in which a worker begins requests that arrive faster than they are answered, or that wait for seats.

Granian hands requests over from a thread of its own. Each loop iteration begins everything that has arrived,
in order of arrival, as long as that is quick. Authenticating a request and finding no seat for it costs about as
much as a small response, so a burst must not be processed as a whole before other clients' requests are looked at.
Requests that an iteration has no time left to begin, and those that arrive while others wait for seats, are queued by
credential. Each credential is a flow, and the flows are served in turn, one request each. How much a credential may
use, and how long its requests then wait for seats, is decided by the filters. A credential used for impersonation is
one flow for each user it impersonates; an authenticating proxy is one flow for each user it names.

An iteration is long (``ITERATION_S``) while all requests are one user's, because nobody gains from shorter iterations, and short
(``SHARED_ITERATION_S``) while several users send requests. With several users:

- Flows that had nothing queued are served before those that had.
- A flow with more than four times as many pending requests as all others together is a flood. An iteration begins one
  request of it, and only after the flood's previous request has ended or has run for ``HOLD_S``, and not while a
  large response is being sent to another user.
- Before a request of the flood is begun, and before a large response is sent to it, the event loop yields the
  processor to other threads, and the requests that arrived in the meantime are begun first. Granian's threads read
  and write for all clients in order of arrival. Without the yield they would run only when the kernel preempts the
  event loop, some milliseconds later, and would then be busy with the flood's requests; so would the seats, the
  store's next commit and the queue of responses to be written.

The head of a request may have up to 256 KiB, and an HTTP/2 connection sends 100 of them at once, long before the
client is authenticated. The heads of queued requests are therefore bounded in bytes: beyond the bound, requests with
large heads are refused with 429, and those with ordinary heads are queued as usual.

Responses that are given to granian's thread faster than it writes them delay every later response
(``kas.edge.writelag``). While that thread lags behind, only flows that had nothing queued are served, those with a
recently valid credential first, and refusals wait as well. Requests with an unknown credential are told apart by
connection; otherwise a client could become a new flow with each request by making up a new credential.
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

ITERATION_S = 0.02  # length of a loop iteration, after which requests are queued; a hundred GETs take half of it
SHARED_ITERATION_S = 0.0003  # the same while several users send requests: half a dozen GETs
QUEUED_PER_ITERATION = 8  # queued requests that one iteration begins, unless it or the work between iterations took too long
YIELDS = 2  # times the processor is yielded: once for the thread that reads and writes, once for the one that hands requests over
HOLD_S = 0.002  # how long the flood's next request waits for its previous one, and for a large response to another user
LONGEST_S = 0.005  # the longest wait for that response, from the start of the flood's previous request
STEPS = 2  # loop iterations until a new arrival is answered: one begins it, the next runs the first step of its task
# A flow with this many times the pending requests of all others is a flood. With 1, two users who send the same load
# would lose more than half of their throughput, because a flood is limited to one request an iteration.
FLOOD_FACTOR = 4
UNPROBED = 7 * BATCH  # responses to flows with nothing queued, beyond the usual batch, before the write lag is checked
ENQUEUE_S = 0.005  # per iteration, for reading heads and queueing: 25,000 requests that arrived at once held the event loop for a second
HEADS_BYTES = 32 << 20  # of heads of queued requests; beyond that only small heads are queued
SMALL_HEAD = 4 << 10


class GranianRequest(Protocol):
    """A request as granian hands it over. ``scope`` is built anew on each access."""

    @property
    def scope(self) -> dict[str, Any]:
        """The ASGI scope."""

    @property
    def proto(self) -> Exchange:
        """The exchange's ``receive`` and ``send``."""


class _Refused:
    """What is kept of a request that is to be refused: its exchange, but not its head."""

    __slots__ = ("proto",)

    def __init__(self, proto: Exchange) -> None:
        self.proto = proto

    def done(self) -> None:
        """Has the signature of granian's; there is nothing left to release."""

    def err(self, error: BaseException) -> None:
        """Has the signature of granian's, which ends an exchange that is dropped unanswered."""
        log.error("a request was not refused: %s", error)


class RequestTask(Protocol):
    """The task that runs the rest of a request that was begun."""

    def done(self) -> bool:
        """Whether the task has ended."""

    def add_done_callback(self, callback: Callable[[Any], object], /) -> object:
        """Calls ``callback`` with the task when it has ended."""


Begin = Callable[[Any, dict[str, Any] | None], RequestTask | None]  # without a scope the request is refused
Shows = Callable[[bytes, str, "bytes | None"], "Hashable | None"]
Arrived = tuple[Begin, "Introductions | None", Any]
Queued = tuple[Begin, Any, dict[str, Any], int, int]  # with the size of its head, and its connection if the credential is unknown, else 0


class Dispatcher:
    """Begins the requests of one worker's event loop in the order that the module describes.

    ``crowded()`` is true while requests of this worker wait for seats, ``shared()`` while several users send
    requests. The queues are bounded by the number of requests that granian has open, as granian's own queue is.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, crowded: Callable[[], object] = lambda: False, shared: Callable[[], object] = lambda: False,
        clock: Callable[[], float] = time.monotonic, give_way: Callable[[], object] = os.sched_yield,
        knows: Callable[[bytes], bool] = lambda credential: True, lone: Callable[[], object] = lambda: False,
        acts: Callable[[bytes, bytes], bool] = lambda credential, wanted: False, unauthenticated: Callable[[], int] = lambda: 0,
        shows: Shows = lambda certificates, named, wanted: None, naming: Sequence[bytes] = (),
        spoke: Callable[[int], object] = lambda port: None,
    ) -> None:  # fmt: skip
        """Take the callbacks that tell what the filters have learnt about clients.

        - ``knows(header)``: whether this Authorization header was valid a moment ago.
        - ``acts(header, name)``: whether it was accepted with this Impersonate-User header.
        - ``lone()``: whether, while one user sends requests, no request was refused lately either. Nobody else's
          responses then wait behind that user's.
        - ``unauthenticated()``: the number of unauthenticated requests so far.
        - ``shows(key, name, wanted)``: an identity for the user who was authenticated a moment ago with these client
          certificates, the user that a proxy named and that Impersonate-User header (None if there is none); None if
          there was no such user. Proxies name the user in the first header of ``naming`` that is not empty.
        - ``spoke(port)``: called with the client's port for each request that is queued. It may be long until the
          request is begun, and its connection must not count as unused.
        """
        self._loop, self._crowded, self._shared, self._clock, self._give_way = loop, crowded, shared, clock, give_way
        self._lone, self._alone = lone, False  # and whether it was when the last iteration began
        self._shows, self._naming, self._spoke = shows, tuple(naming), spoke
        self._knows, self._acts, self._write_lag = knows, acts, WriteLag(loop, self._written, clock)
        self._due = False  # whether an iteration is scheduled
        self._deferred = False  # whether the scheduled iteration is put off once, for the first step of a fresh request's task
        self._arrivals: deque[Arrived] = deque()
        self._flows: OrderedDict[int, deque[Queued]] = OrderedDict()  # by credential; the next one to serve is first
        self._fresh: OrderedDict[int, None] = OrderedDict()  # flows of which nothing has been begun since they were empty
        self._valid: OrderedDict[int, None] = OrderedDict()  # those of ``_fresh`` whose credential is known to be valid
        self._begun_in_lag: dict[int, int] = {}  # by credential: requests begun since granian's thread fell behind
        self._to_refuse: deque[tuple[Begin, _Refused]] = deque()  # to be refused
        self._unauthenticated = UnauthenticatedShare(unauthenticated, clock)
        self._timer: asyncio.TimerHandle | None = None  # fires when unauthenticated requests may be begun again
        self._fresh_in_a_row = 0  # how many requests of fresh flows were begun while another flow was next
        self._queued = self._heads_bytes = 0  # requests in all flows, and the bytes of their heads
        self._ended = 0.0  # when the last iteration that began queued requests ended
        self._flood_task: RequestTask | None = None  # the flood's request that was begun last
        self._flood_next_at = 0.0  # when another one of the flood may be begun alongside it
        self._large_response: RequestTask | None = None  # the task of another user that began to send a large response last
        self._large_response_until = 0.0  # how long the flood waits for that task
        self._flood_waits = False  # only the flood has requests queued, and it waits
        self._unfinished: dict[int, int] = {}  # by credential: unfinished requests that were begun while others waited for seats

    def arrive(self, begin: Begin, introductions: Introductions | None, request: GranianRequest) -> None:
        """Hands over a request, to be begun in this loop iteration or a later one.

        ``begin(request, scope)`` is called in the event loop, without a scope for a request that is to be refused;
        it must not raise. May be called from any thread.
        """
        self._arrivals.append((begin, introductions, request))
        if not self._due:
            self._due = True
            self._loop.call_soon_threadsafe(self._turn)

    def _turn(self) -> None:
        if self._deferred:
            self._deferred = False
            self._loop.call_soon(self._turn)
            return
        self._due = False
        try:
            self._begin_some()
        finally:  # whatever happens to one of them, the others are begun
            if not self._due:
                if self._arrivals or (self._flows and not self._flood_waits and not self._all_wait()):
                    self._due = True
                    self._loop.call_soon(self._turn)
                elif (self._to_refuse or self._unauthenticated.waiting) and self._timer is None and not self._lagging():
                    self._timer = self._loop.call_later(self._unauthenticated.rests(), self._rested)

    def _rested(self) -> None:
        self._timer = None
        if not self._due:
            self._due = True
            self._turn()

    def _all_wait(self) -> bool:
        """Whether no queued request may be begun until granian's thread has written what it was given."""
        return self._lagging() and not self._valid and (not self._fresh or self._lagging(BATCH))

    def _lagging(self, more: int = 0) -> bool:
        return not self._alone and self._write_lag.far(more)

    def _written(self) -> None:
        self._begun_in_lag.clear()
        self._resume()

    def _resume(self, _: object = None) -> None:
        self._flood_waits = False
        if (self._flows or self._to_refuse or self._unauthenticated.waiting) and not self._due:
            self._due = True
            self._loop.call_soon(self._turn)

    def _begin_some(self) -> None:
        arrivals, clock, crowded = self._arrivals, self._clock, self._crowded
        began = clock()
        length = SHARED_ITERATION_S if self._shared() else ITERATION_S
        self._alone = length == ITERATION_S and bool(self._lone())
        if not self._flows and not self._to_refuse and not self._unauthenticated.many(began):
            self._ended = began
            until, count, write_lag = began + length, 0, self._write_lag
            if write_lag.given < UNPROBED or not self._lagging(UNPROBED):
                while arrivals and not crowded():
                    begin, _, request = arrivals.popleft()
                    task = begin(request, scope := request.scope)
                    count += 1
                    if (count >= UNPROBED and not self._alone) or clock() > until:
                        break
                if count:
                    write_lag.given += count
                    if task is None and scope.get("method") == "GET":
                        write_lag.over = request.proto
                if not arrivals:
                    return
        self._enqueue_arrivals()
        self._begin_queued(began, length)

    def _enqueue_arrivals(self) -> None:
        arrivals, clock = self._arrivals, self._clock
        until = clock() + ENQUEUE_S
        while arrivals:
            self._enqueue(*arrivals.popleft())
            if clock() > until:  # the rest is looked at in the next iteration
                break

    def _enqueue(self, begin: Begin, introductions: Introductions | None, request: GranianRequest) -> None:
        scope = request.scope
        if introductions is None and scope["client"]:  # relays of the TLS front have no ports
            self._spoke(int(scope["client"][1]))
        size = _size(scope)
        if size > SMALL_HEAD and self._heads_bytes + size > HEADS_BYTES and scope["type"] == "http":
            self._to_refuse.append((begin, _Refused(request.proto)))
            return
        key, valid = self._credential(scope, introductions)
        connection = 0 if valid else _connection(scope)
        self._heads_bytes += size
        if connection and self._unauthenticated.knows(connection):
            self._unauthenticated.add(connection, (begin, request, scope, size, connection))
            return
        waiting = self._flows.get(key)
        if waiting is None:
            waiting = self._flows[key] = deque()
            self._fresh[key] = None
            if valid and self._begun_in_lag.get(key, 0) < QUEUED_PER_ITERATION:
                self._valid[key] = None
        waiting.append((begin, request, scope, size, connection))
        self._queued += 1

    def _credential(self, scope: dict[str, Any], introductions: Introductions | None) -> tuple[int, bool]:
        """A hash that identifies the client before it is authenticated, and whether its credential is known to be valid.

        It is made of the first of these that applies: a valid Authorization header, with the user it impersonates;
        valid client certificates, with the users that a proxy names and impersonates; the connection, for an unknown
        Authorization header; the client certificates; the client's address. Hashes are keyed per process.
        """
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

    def _begin_queued(self, began: float, length: float) -> None:
        """Begins some queued requests: none if this iteration has used up its time, one if the work between iterations took
        that long."""
        now, shared = self._clock(), length < ITERATION_S
        if self._unfinished and not self._crowded():
            self._unfinished = {}
        if now - began <= length:
            until = now + length
            left = 1 if began - self._ended > length else QUEUED_PER_ITERATION
            yielded = flooded = fresh_task = False
            while left and self._flows and now <= until and not self._all_wait():
                key = self._next(shared)
                fresh = shared and key in self._fresh
                if fresh_task and not fresh and self._fresh_in_a_row < QUEUED_PER_ITERATION:
                    break  # The new flow's request continues in a task, which takes its first step before others are begun.
                if shared and self._is_flood(key):
                    if key in self._fresh:
                        del self._fresh[key]  # new, but already a flood
                        self._valid.pop(key, None)
                        continue
                    if flooded or self._flood_must_wait(now):
                        if len(self._flows) == 1:
                            break
                        self._flows.move_to_end(key)
                        continue
                    if not yielded:
                        yielded = True
                        for _ in range(YIELDS):
                            self._give_way()
                        self._enqueue_arrivals()
                        continue  # flows that arrived in the meantime come first
                    flooded = True
                fresh_task = (self._begin(key) is not None and fresh) or fresh_task
                left -= 1
                now = self._clock()
            self._deferred = fresh_task and self._due
            if (self._to_refuse or self._unauthenticated.waiting) and not self._unauthenticated.rests():
                self._begin_unauthenticated()
        self._ended = now

    def _begin_unauthenticated(self) -> None:
        """Begins some unauthenticated requests, and refuses some of those that are to be refused."""
        share, began = self._unauthenticated, self._clock()
        for _ in range(QUEUED_PER_ITERATION):
            if self._lagging():
                break
            if share.waiting:
                begin, request, scope, size, connection = share.next()
                self._heads_bytes -= size
                before = share.count()
                task = begin(request, scope)
                share.began(connection, before)
                self._note_given(task, request, scope)
            elif self._to_refuse:
                begin, request = self._to_refuse.popleft()
                begin(request, None)
                self._write_lag.given += 1
            else:
                break
        share.took(self._clock() - began)

    def _next(self, shared: bool) -> int:
        """The flow to serve next. While there are several users, fresh flows come first, but at most ``QUEUED_PER_ITERATION`` times
        in a row."""
        if self._lagging():
            return next(iter(self._valid or self._fresh))
        return next(iter(self._fresh if shared and self._fresh and self._fresh_in_a_row < QUEUED_PER_ITERATION else self._flows))

    def _is_flood(self, key: int) -> bool:
        """Whether a flow has several times as many requests as all others together, counting those queued and those
        begun that wait for seats, as far as that is known. Users who send equal loads are never floods."""
        count = len(self._flows[key]) + self._unfinished.get(key, 0)
        return QUEUED_PER_ITERATION < count > FLOOD_FACTOR * (self._queued + sum(self._unfinished.values()) - count)

    def _flood_must_wait(self, now: float) -> bool:
        """Whether the flood has to wait: for its request that was begun last, or for a large response to another
        user. If only the flood has requests queued, no iteration is needed until then, and one is scheduled."""
        both = (self._flood_task, self._flood_next_at), (self._large_response, self._large_response_until)
        pending = {one: until for one, until in both if one is not None and now < until and not one.done()}
        if not pending:
            return False
        if not self._flood_waits and len(self._flows) == 1:
            self._flood_waits = True
            for one in pending:
                one.add_done_callback(self._resume)
            self._loop.call_later(max(pending.values()) - now, self._resume)
        return True

    def gives(self) -> Awaitable[None] | None:
        """Returns what the running task has to await before it sends a large response; None for every task but the flood's.

        Granian's thread, which reads for all clients, encrypts and writes such a response in one go. The flood's
        task lets requests that arrived in the meantime go first, as far as they can be answered at once. While
        another user's large response is sent, the flood waits.
        """
        task = asyncio.current_task()
        assert task is not None
        if task is self._flood_task:
            return self._others_first() if self._shared() else None
        self._large_response, self._large_response_until = task, min(self._clock() + HOLD_S, self._flood_next_at - HOLD_S + LONGEST_S)
        return None

    async def _others_first(self) -> None:
        for _ in range(YIELDS):
            self._give_way()
        for _ in range(STEPS):
            await asyncio.sleep(0)

    def _note_given(self, task: RequestTask | None, request: GranianRequest, scope: dict[str, Any]) -> None:
        self._write_lag.given += 1
        if task is None and scope.get("method") == "GET":
            self._write_lag.over = request.proto

    def _begin(self, key: int) -> RequestTask | None:
        flows, fresh, floods = self._flows, self._fresh, self._is_flood(key)
        self._fresh_in_a_row = self._fresh_in_a_row + 1 if key in fresh and len(fresh) < len(flows) else 0
        waiting = flows.pop(key)
        fresh.pop(key, None)
        self._valid.pop(key, None)
        queued = waiting.popleft()
        self._queued -= 1
        if waiting:
            flows[key] = waiting
        begin, request, scope, size, connection = queued
        if connection and self._unauthenticated.knows(connection):  # it may have become one of these while it was queued
            self._unauthenticated.add(connection, queued)
            return None
        self._heads_bytes -= size
        if self._lagging():
            self._begun_in_lag[key] = self._begun_in_lag.get(key, 0) + 1
        before = self._unauthenticated.count()
        task = begin(request, scope)
        self._unauthenticated.began(connection, before)
        self._note_given(task, request, scope)
        if task is not None and self._crowded():
            self._unfinished[key] = self._unfinished.get(key, 0) + 1
            task.add_done_callback(partial(_finished, self._unfinished, key))
        if floods:
            self._flood_task, self._flood_next_at = task, self._clock() + HOLD_S
        return task


def _finished(unfinished: dict[int, int], key: int, _: object) -> None:
    left = unfinished.get(key, 0) - 1
    if left > 0:
        unfinished[key] = left
    else:
        unfinished.pop(key, None)


def _connection(scope: dict[str, Any]) -> int:
    return hash(tuple(scope["client"] or ()))


def _size(scope: dict[str, Any]) -> int:
    """The memory that a head takes; path and query are kept both as bytes and as text."""
    size = 2 * (len(scope["path"]) + len(scope["query_string"]))
    for name, value in scope["headers"]:
        size += len(name) + len(value)
    return size
