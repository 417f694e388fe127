"""Reads that must be as new as etcd: they wait until the replica has passed a revision that etcd reported after they arrived.

All reads that wait at a moment form a round and share one request. Only one request is in progress at a time: a read that
arrives meanwhile may depend on a later write elsewhere, and joins the next round. Nothing here needs a task while etcd
answers, and a parked request needs none either, unless the wait exceeds ``PARKED_S``. The common path is compiled
(``kas/fastpath/consistentread.pxi``).
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

FRESH_S = 3.0  # maximum wait of a read (upstream's waitUntilFreshTimeout)
ON_ITS_WAY_S = 0.005
PARKED_S = 0.1  # from then on a disconnect of the client is watched for, which takes a task
TIME_SLICE_S = 0.005  # how long resumed requests keep the loop
TICK_S = 0.001  # resolution of the loop's clock
TIMED_OUT = "etcdserver: request timed out"
WENT_BACK = "etcdserver: the cluster has gone back to an older state"


class Waiter(Protocol):
    """A waiter for a revision."""

    def done(self) -> bool:
        """Returns whether it no longer waits."""

    def reached(self) -> None:
        """Called when the revision was dispatched here."""

    def late(self) -> None:
        """Called when the revision has not arrived in time."""

    def cancel(self) -> object:
        """Called when the store is closed."""


class Dated(Protocol):
    """An object with a revision."""

    @property
    def revision(self) -> int:
        """The revision."""


class Parked(Protocol):
    """A parked request (``kas.request.parking``)."""

    def go_on(self) -> None:
        """Resumes the request: reads are fresh."""

    def wait(self, passed: Awaitable[None]) -> None:
        """Passes an awaitable to the request: reads are not fresh yet, or will not be."""


class Round(RoundBase):
    """The reads that share a request. ``answered``: it was answered. ``had`` is the revision here before it was sent."""

    __slots__ = ()

    def join(self) -> asyncio.Future[None]:
        """Adds a reader, which is answered within ``FRESH_S``."""
        loop = self._rounds._loop
        reader: asyncio.Future[None] = loop.create_future()
        until = loop.time() + FRESH_S
        self.readers.append(reader)
        if self.timer is None:
            self.until, self.timer = [], loop.call_at(until, self._expire)
        self.until.append(until)
        return reader

    def unpark(self) -> None:
        """Makes the parked requests ordinary readers."""
        for one in self.take():
            one.wait(self.join())

    def _expire(self) -> None:
        """Fails the readers whose deadline has passed."""
        loop = self._rounds._loop
        now, n = loop.time(), 1
        while n < len(self.until) and self.until[n] <= now:
            n += 1
        late, self.readers, self.until = self.readers[:n], self.readers[n:], self.until[n:]
        self.timer = loop.call_at(self.until[0], self._expire) if self.until else None
        _fail(late, (Behind if self.answered else Unavailable)(TIMED_OUT))

    def _end(self) -> list[asyncio.Future[None]]:
        self.unpark()
        readers, self.readers = self.readers, []
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        return readers

    def wake(self) -> None:
        """Resumes the readers."""
        for reader in self._end():
            if not reader.done():
                reader.set_result(None)

    def late(self) -> None:
        """See ``Waiter``."""
        self.fail(Behind(TIMED_OUT))

    def fail(self, error: Exception) -> None:
        """Ends the round with an error."""
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
    """The rounds of one store, on its loop's thread. A request parked for ``PARKED_S`` becomes a reader of its round; one
    timer serves all rounds, since most are over within a millisecond. ``FreshnessBase`` handles the case that etcd answers and the
    replica is up to date."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, client: AsyncClient, question: SharedCall[pb.RangeResponse], fence: bytes, replica: Dated,
        hub: Dated, wait: Callable[[int, Waiter], bool], ask_progress: Callable[[], None], ordered: Callable[[], bool],
    ) -> None:  # fmt: skip
        """``question`` is the shared request, ``fence`` the key to write if progress is not ``ordered()``; otherwise
        ``ask_progress()`` makes etcd report its progress to the replica. ``replica`` has the revision stored here, ``hub``
        the revision dispatched here; ``wait(revision, waiter)`` returns whether the waiter has to wait for a revision of the
        hub, and notifies it later."""
        super().__init__(loop, question, replica, hub, wait, Round, TIME_SLICE_S)
        self._client, self._fence_key, self._ask_progress, self._ordered = client, fence, ask_progress, ordered
        self._tasks: set[asyncio.Task[None]] = set()

    def join(self) -> asyncio.Future[None]:
        """See ``EtcdStore.fresh``."""
        self._will_ask()
        joined: asyncio.Future[None] = self._next.join()
        return joined

    def close(self) -> None:
        """Cancels all waiting reads."""
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
        """Handles the end of a request without the usual answer."""
        try:
            answer = self._question.ended(stream)
        except StoreError as e:
            self._failed(asking, e)
            return
        if answer is None:
            self._find(asking)
        else:
            self._on_answer(asking, answer.header.revision)

    def _find(self, asking: Round) -> None:
        """Repeats the request in a task, which finds a server."""
        self._later(self._call(asking))

    async def _call(self, asking: Round) -> None:
        try:
            answer = await self._question.anew(max(0.05, asking.asked + FRESH_S - time.monotonic()))
        except StoreError as e:
            self._failed(asking, e)
        else:
            self._on_answer(asking, answer.header.revision)

    def _failed(self, asking: Round, error: StoreError) -> None:
        asking.fail(error)
        self._over()

    def _went_back(self, asking: Round) -> None:
        asking.fail(Unavailable(WENT_BACK))

    def _behind(self, asking: Round) -> None:
        """Handles a replica that is behind etcd."""
        if self._ordered():
            self._ask_progress()
        else:  # events on their way usually arrive soon
            self._loop.call_later(ON_ITS_WAY_S, self._write_fence, asking)

    def _write_fence(self, asking: Round) -> None:
        """Writes a key whose event reaches the replica after all earlier ones."""
        if not (self._closed or asking.done()):
            self._later(self._fence())

    async def _fence(self) -> None:
        with contextlib.suppress(StoreError):  # waiters have deadlines, and then read from etcd directly
            await self._client.call(PUT, pb.PutRequest(key=self._fence_key), FRESH_S)

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
