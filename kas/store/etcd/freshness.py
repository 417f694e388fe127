"""Reads that have to be as new as etcd: they wait until the replica has passed a revision that etcd told after they came.

All that wait at a moment are a round, and share one question. One question is under way at a time: whoever comes meanwhile may have been
told of a write elsewhere that it is too old for, and is in the next round. Nothing of it needs a task while etcd answers, and who is parked
needs none either, unless that takes ``PARKED_S``.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Protocol

from kas._fastpath import Lot, go_on_for
from kas.store.errors import Behind, StoreError, Unavailable
from kas.store.etcd import etcd_pb2 as pb
from kas.store.etcd.client import PUT, RANGE, AsyncClient, Begun
from kas.store.etcd.layout import Keys

FRESH_S = 3.0  # how long a read waits at most (upstream's waitUntilFreshTimeout)
ON_ITS_WAY_S = 0.005
PARKED_S = 0.1  # from then on a client that leaves is looked for, which takes a task
STINT_S = 0.005  # how long those who go on keep the loop
TICK_S = 0.001  # of the loop's clock
TIMED_OUT = "etcdserver: request timed out"
WENT_BACK = "etcdserver: the cluster has gone back to an older state"


class Waiter(Protocol):
    """Who waits for a revision to be here."""

    def done(self) -> bool:
        """Whether nobody waits any more."""

    def reached(self) -> None:
        """It is here."""

    def late(self) -> None:
        """It has not come."""

    def cancel(self) -> object:
        """The store is closed."""


class Parked(Protocol):
    """Who was put down (``kas.request.parking``)."""

    def go_on(self) -> None:
        """It is here."""

    def wait(self, passed: Awaitable[None]) -> None:
        """It is not here yet, or will not be: to be awaited."""


class Parking:
    """Has those who were parked go on, a stint in a turn of the loop, and never out of the round that they waited for: what they do then
    is anything. Those who have waited for ``PARKED_S`` join their rounds; one timer looks for them, since rounds are mostly over within a
    millisecond."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self._ready = loop, deque[Parked]()
        self._rounds = deque[tuple[float, Round]]()  # in which somebody was parked, and when they join
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, one: Round) -> None:
        """The first one was parked there."""
        self._rounds.append((self._loop.time() + PARKED_S, one))
        if self._timer is None:
            self._timer = self._loop.call_later(PARKED_S, self._look)

    def _look(self) -> None:
        self._timer, now = None, self._loop.time()
        while self._rounds and (self._rounds[0][0] <= now + TICK_S or self._rounds[0][1].done()):
            self._rounds.popleft()[1].unpark()
        if self._rounds:
            self._timer = self._loop.call_at(self._rounds[0][0], self._look)

    def close(self) -> None:
        """Nobody joins any more."""
        if self._timer is not None:
            self._timer.cancel()

    def go_on(self, parked: list[Parked]) -> None:
        """They may."""
        if not self._ready:
            self._loop.call_soon(self._stint)
        self._ready.extend(parked)

    def _stint(self) -> None:
        if go_on_for(self._ready, STINT_S):
            self._loop.call_soon(self._stint)


class Round:
    """Those who share a question. ``told``: it has been answered. ``had`` is the revision here before it was asked, ``until`` when who
    joined last at that time has waited for too long. ``lot`` has those who were parked, till it asks."""

    def __init__(self, loop: asyncio.AbstractEventLoop, parking: Parking, lot: Lot) -> None:
        self._loop, self._readers, self._until = loop, list[asyncio.Future[None]](), list[float]()
        self._timer: asyncio.TimerHandle | None = None  # for who has waited longest
        self._parking, self._lot, self._parked = parking, lot, list[Parked]()
        self._asks = False
        self.told, self.had, self.until = False, 0, 0.0

    def join(self) -> asyncio.Future[None]:
        """Another one, who is answered within ``FRESH_S``."""
        reader, until = self._loop.create_future(), self._loop.time() + FRESH_S
        self._readers.append(reader)
        self._until.append(until)
        if self._timer is None:
            self._timer = self._loop.call_at(until, self._expire)
        return reader

    def ask(self) -> None:
        """Its question leaves: who is parked from now on is of the next one."""
        self._parked, self._asks = self._lot.take(), True

    def _taken(self) -> list[Parked]:
        parked = self._parked if self._asks else self._lot.take()
        self._parked = []
        return parked

    def unpark(self) -> None:
        """Who is parked joins."""
        for one in self._taken():
            one.wait(self.join())

    def _expire(self) -> None:
        """Ends the waiting of those who have waited for long enough."""
        now, n = self._loop.time(), 1
        while n < len(self._until) and self._until[n] <= now:
            n += 1
        late, self._readers, self._until = self._readers[:n], self._readers[n:], self._until[n:]
        self._timer = self._loop.call_at(self._until[0], self._expire) if self._until else None
        _fail(late, (Behind if self.told else Unavailable)(TIMED_OUT))

    def _end(self) -> list[asyncio.Future[None]]:
        self.unpark()
        readers, self._readers, self._until = self._readers, [], []
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        return readers

    def done(self) -> bool:
        """See ``Waiter``."""
        if self._parked if self._asks else self._lot:
            return False
        return not self._readers or all(reader.done() for reader in self._readers)

    def reached(self) -> None:
        """See ``Waiter``."""
        if parked := self._taken():
            self._parking.go_on(parked)
        if self._readers:  # mostly there are none
            for reader in self._end():
                if not reader.done():
                    reader.set_result(None)

    def late(self) -> None:
        """See ``Waiter``."""
        self.fail(Behind(TIMED_OUT))

    def fail(self, error: Exception) -> None:
        """It ends with an error."""
        _fail(self._end(), error)

    def cancel(self) -> None:
        """See ``Waiter``."""
        for reader in self._end():
            reader.cancel()


def _fail(readers: list[asyncio.Future[None]], error: Exception) -> None:
    for reader in readers:
        if not reader.done():
            reader.set_exception(error)


class Freshness:
    """The rounds of one store, on its loop's thread."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, client: AsyncClient, keys: Keys, here: Callable[[], int],
        wait: Callable[[int, Waiter], bool], ask_progress: Callable[[], None], ordered: Callable[[], bool],
    ) -> None:  # fmt: skip
        """``here()`` is the replica's revision; ``wait(revision, waiter)`` says whether somebody has to wait for one, and tells him later.
        ``ask_progress()`` has etcd tell the replica how far it is, which may be believed where it is ``ordered()``."""
        self._loop, self._client, self._fence_key = loop, client, keys.fence
        self._here, self._wait, self._ask_progress, self._ordered = here, wait, ask_progress, ordered
        self._parking, self._lot = Parking(loop), Lot(self._first)
        self._next = Round(loop, self._parking, self._lot)  # has not asked yet
        self.park: Callable[[Parked], None] = self._lot.park  # as ``join``, without a task while etcd answers soon
        self._asking: Round | None = None
        self._due = False  # the next one asks at the end of the loop's turn, for all who come in it
        self._closed = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._request = pb.RangeRequest(key=keys.root, limit=1, keys_only=True)

    def join(self) -> asyncio.Future[None]:
        """See ``EtcdStore.fresh``."""
        self._will_ask()
        return self._next.join()

    def _first(self) -> None:
        self._parking.begin(self._next)
        self._will_ask()

    def _will_ask(self) -> None:
        if not self._due and self._asking is None:
            self._due = True
            self._loop.call_soon(self._ask)

    def close(self) -> None:
        """Nobody is answered any more."""
        self._closed = True
        self._parking.close()
        for one in (self._next, self._asking):
            if one is not None:
                one.cancel()
        for task in self._tasks:
            task.cancel()

    def _ask(self) -> None:
        self._due = False
        if self._closed or self._next.done():
            return
        asking, self._next = self._next, Round(self._loop, self._parking, self._lot)
        asking.ask()
        self._asking, asking.had, asking.until = asking, self._here(), self._loop.time() + FRESH_S
        share = FRESH_S / self._client.servers  # so that there is time for the others
        if not self._client.begin(RANGE, self._request, share, partial(self._answered, asking)):
            self._later(self._call(asking))

    def _answered(self, asking: Round, begun: Begun[pb.RangeResponse]) -> None:
        if self._closed:
            return
        try:
            answer = self._client.ended(begun)
        except StoreError as e:
            self._failed(asking, e)
            return
        if answer is None:
            self._later(self._call(asking))
        else:
            self._told(asking, answer.header.revision)

    async def _call(self, asking: Round) -> None:
        """Where a server has to be found."""
        try:
            answer = await self._client.call(RANGE, self._request, max(0.05, asking.until - self._loop.time()))
        except StoreError as e:
            self._failed(asking, e)
        else:
            self._told(asking, answer.header.revision)

    def _failed(self, asking: Round, error: StoreError) -> None:
        asking.fail(error)
        self._go_on()

    def _go_on(self) -> None:
        """No question is under way any more: who has come meanwhile asks the next one."""
        self._asking = None
        self._ask()

    def _told(self, asking: Round, revision: int) -> None:
        """etcd's revision is as new as any acknowledged write; the replica has it, or will be told of it."""
        asking.told = True
        try:
            if revision < asking.had:
                asking.fail(Unavailable(WENT_BACK))
            elif not self._wait(revision, asking):
                asking.reached()
            elif self._ordered():
                self._ask_progress()
            else:  # what is on its way comes by itself
                self._loop.call_later(ON_ITS_WAY_S, self._write_fence, asking)
        except Exception as e:  # who waits is told, not the connection
            asking.fail(e)
        self._go_on()

    def _write_fence(self, asking: Round) -> None:
        """A key is written that the replica will be told of, and with it of all before."""
        if not (self._closed or asking.done()):
            self._later(self._fence())

    async def _fence(self) -> None:
        with contextlib.suppress(StoreError):  # who waits has a time of his own, and is read for from etcd then
            await self._client.call(PUT, pb.PutRequest(key=self._fence_key), FRESH_S)

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
