"""Reads that have to be as new as etcd: they wait until the replica has passed a revision that etcd told after they came.

All that wait at a moment are a round, and share one question. One question is under way at a time: whoever comes meanwhile may have been
told of a write elsewhere that it is too old for, and is in the next round. Nothing of it needs a task while etcd answers, and who is parked
needs none either, unless that takes ``PARKED_S``. What happens while all goes well is compiled (``kas/fastpath/consistentread.pxi``).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

from kas._fastpath import FreshnessBase, RoundBase
from kas.store.errors import Behind, StoreError, Unavailable
from kas.store.etcd import etcd_pb2 as pb
from kas.store.etcd.client import PUT, AsyncClient
from kas.store.etcd.rpc import Stream
from kas.store.etcd.sharedcall import SharedCall

FRESH_S = 3.0  # how long a read waits at most (upstream's waitUntilFreshTimeout)
ON_ITS_WAY_S = 0.005
PARKED_S = 0.1  # from then on a client that leaves is looked for, which takes a task
TIME_SLICE_S = 0.005  # how long those who go on keep the loop
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


class Dated(Protocol):
    """What is at a revision."""

    @property
    def revision(self) -> int:
        """See above."""


class Parked(Protocol):
    """Who was put down (``kas.request.parking``)."""

    def go_on(self) -> None:
        """It is here."""

    def wait(self, passed: Awaitable[None]) -> None:
        """It is not here yet, or will not be: to be awaited."""


class Round(RoundBase):
    """Those who share a question. ``told``: it has been answered. ``had`` is the revision here before it was asked."""

    __slots__ = ()

    def join(self) -> asyncio.Future[None]:
        """Another one, who is answered within ``FRESH_S``."""
        loop = self._rounds._loop
        reader: asyncio.Future[None] = loop.create_future()
        until = loop.time() + FRESH_S
        self.readers.append(reader)
        if self.timer is None:
            self.until, self.timer = [], loop.call_at(until, self._expire)
        self.until.append(until)
        return reader

    def unpark(self) -> None:
        """Who was put down joins."""
        for one in self.take():
            one.wait(self.join())

    def _expire(self) -> None:
        """Ends the waiting of those who have waited for long enough."""
        loop = self._rounds._loop
        now, n = loop.time(), 1
        while n < len(self.until) and self.until[n] <= now:
            n += 1
        late, self.readers, self.until = self.readers[:n], self.readers[n:], self.until[n:]
        self.timer = loop.call_at(self.until[0], self._expire) if self.until else None
        _fail(late, (Behind if self.told else Unavailable)(TIMED_OUT))

    def _end(self) -> list[asyncio.Future[None]]:
        self.unpark()
        readers, self.readers = self.readers, []
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        return readers

    def wake(self) -> None:
        """Those who joined may go on."""
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


class Freshness(FreshnessBase):
    """The rounds of one store, on its loop's thread. Who was parked for ``PARKED_S`` joins its round; one timer looks for them, since
    rounds are mostly over within a millisecond. What happens while etcd answers and the replica is as new is ``FreshnessBase``'."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, client: AsyncClient, question: SharedCall[pb.RangeResponse], fence: bytes, replica: Dated,
        hub: Dated, wait: Callable[[int, Waiter], bool], ask_progress: Callable[[], None], ordered: Callable[[], bool],
    ) -> None:  # fmt: skip
        """``question`` is the one that is asked, ``fence`` the key that is written where progress is not ``ordered()``: else
        ``ask_progress()`` has etcd tell the replica how far it is. ``replica`` is what is here, ``hub`` what was dispatched here;
        ``wait(revision, waiter)`` says whether somebody has to wait for a revision of the hub's, and tells him later."""
        super().__init__(loop, question, replica, hub, wait, Round, TIME_SLICE_S)
        self._client, self._fence_key, self._ask_progress, self._ordered = client, fence, ask_progress, ordered
        self._tasks: set[asyncio.Task[None]] = set()

    def join(self) -> asyncio.Future[None]:
        """See ``EtcdStore.fresh``."""
        self._will_ask()
        joined: asyncio.Future[None] = self._next.join()
        return joined

    def close(self) -> None:
        """Nobody is answered any more."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for one in (self._next, self._asking):
            if one is not None:
                one.cancel()
        for task in self._tasks:
            task.cancel()

    def _look_later(self) -> None:
        self._timer = self._loop.call_later(PARKED_S, self._look)

    def _look(self) -> None:
        self._timer, since, rounds = None, time.monotonic() - PARKED_S + TICK_S, self._open
        while rounds and (rounds[0].since <= since or rounds[0].done()):
            rounds.popleft().unpark()
        if rounds:
            self._timer = self._loop.call_later(rounds[0].since + TICK_S - since, self._look)

    def _unanswered(self, asking: Round, stream: Stream) -> None:
        """The question is over, and was not answered as it mostly is."""
        try:
            answer = self._question.ended(stream)
        except StoreError as e:
            self._failed(asking, e)
            return
        if answer is None:
            self._find(asking)
        else:
            self._told(asking, answer.header.revision)

    def _find(self, asking: Round) -> None:
        """A server has to be found."""
        self._later(self._call(asking))

    async def _call(self, asking: Round) -> None:
        try:
            answer = await self._question.anew(max(0.05, asking.asked + FRESH_S - time.monotonic()))
        except StoreError as e:
            self._failed(asking, e)
        else:
            self._told(asking, answer.header.revision)

    def _failed(self, asking: Round, error: StoreError) -> None:
        asking.fail(error)
        self._over()

    def _went_back(self, asking: Round) -> None:
        asking.fail(Unavailable(WENT_BACK))

    def _behind(self, asking: Round) -> None:
        """The replica waits for what etcd has."""
        if self._ordered():
            self._ask_progress()
        else:  # what is on its way comes by itself
            self._loop.call_later(ON_ITS_WAY_S, self._write_fence, asking)

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
