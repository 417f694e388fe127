"""Long work beside the event loop: a few threads for what is pure, so that others are answered meanwhile.

What goes here decodes, validates, patches, converts or encodes one request's own objects. It may read the store (any thread may) and fill
memos whose entries are found by single lookups; it does not touch futures, the hub, informers' indexes or another request's objects. Writes
stay on the loop.

Two threads: they take the interpreter's lock in turns with the loop, which a worker gets after a millisecond at the latest
(``observe/process.py``), or after the longest stretch of compiled code that keeps it (measured in docs/threat-model.md). More threads
would not be faster and would make that wait longer.

``meta/fairqueue.py`` decides whose job is next, so that a client that sends one large object does not wait for everything another client
has sent. Of one client the oldest request goes first: what it has decoded is released before the next request is decoded. A job that may
take many seconds gives way to clients that have no thread; otherwise two clients with such work would hold both threads until it ends, and
one client may act as any number of users.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from traceback import clear_frames
from typing import Any, ParamSpec, TypeVar

from kas._codecs import outweighs
from kas.meta.errors import ApiError
from kas.meta.fairqueue import FairQueue, whose
from kas.meta.threads import no_thread

P = ParamSpec("P")
T = TypeVar("T")

# Bodies and objects from here on are worked on aside: handing over costs a tenth of a millisecond, and work on less than this keeps the
# loop for some milliseconds at most.
LARGE = 64 << 10
LARGE_YAML = 8 << 10  # of what is read or written as YAML, which takes a millisecond a KiB, and up to three in flow style
THREADS = 2
STACK_BYTES = 16 << 20  # what is nested as deep as allowed is walked recursively
SLICE_S = 0.03  # after which a job gives way
MOST_HELD_UP = 32  # jobs that others go before, each of which keeps its thread; where there are more, each that has begun goes on

LOOP_BUDGET_UNITS = 5000  # of what may take so long on the loop: some milliseconds


class BudgetSpentError(Exception):
    """What was begun on the loop takes long: it is to be begun again beside it."""


class _LoopBudget(threading.local):
    """What is left of this thread's turn, in units of about a microsecond. None: nobody asked for a bound, or the thread is none of the
    loop's."""

    left: int | None = None

    def spend(self, units: int) -> None:
        """Raises BudgetSpentError when a turn is bounded and no more is left of it."""
        if self.left is not None:
            self.left -= units
            if self.left < 0:
                raise BudgetSpentError

    def within(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """``work(*args, **kwargs)`` in one turn. Raises BudgetSpentError: what it had begun must not matter when it begins anew."""
        self.left = LOOP_BUDGET_UNITS
        try:
            return work(*args, **kwargs)
        finally:
            self.left = None


TURN = _LoopBudget()


class _Job:
    """Some work, the future of the loop that waits for it, whose it is, and how it ended."""

    __slots__ = ("aside", "error", "future", "loop", "result", "since", "whose", "work")

    def __init__(self, work: Callable[[], Any], aside: OffloadPool) -> None:
        self.aside, self.since = aside, 0.0
        self.work, self.loop = work, asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self.loop.create_future()
        self.whose = whose()
        self.result: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        """Does the work, in this thread."""
        if not self.future.cancelled():
            _DOING.job = self
            self.since = time.monotonic()
            try:
                self.result = self.work()
            except BaseException as e:  # the root of the job: whoever waits for it gets the error
                self.error = e
                if isinstance(e, ApiError):
                    _let_go(e)
            finally:
                _DOING.job = None

    def tell(self) -> None:
        """Wakes up who waits, in the loop, and forgets everything: the frames of an error lead here."""
        future, result, error = self.future, self.result, self.error
        del self.future, self.result, self.error, self.work
        if future.done():  # cancelled
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)


def _let_go(refusal: BaseException) -> None:
    """Lets go of what is held by the frames that an answer came through, and the errors it was made of: else large objects go in the loop,
    in one step."""
    error: BaseException | None = refusal
    while error is not None:
        clear_frames(error.__traceback__)
        error = error.__context__


class _Doing(threading.local):
    """What this thread does; None in one that is none of a pool's."""

    job: _Job | None = None


_DOING = _Doing()


def abandoned() -> bool:
    """Whether nobody waits any more for what this thread does: work that may take seconds ends then. Who asks holds no lock: others may
    go before it."""
    job = _DOING.job
    if job is None:
        return False
    if time.monotonic() - job.since >= SLICE_S and not job.future.cancelled():
        job.aside.give_way(job)
    return job.future.cancelled()


class OffloadPool:
    """The threads, started with the first job. As many jobs wait as there are requests in flight.

    Nothing here refers back to itself, because what a job has made must go with its request and not with the next collection of garbage,
    which is rare: futures of ``concurrent.futures`` keep their callbacks, which keep them, and an error keeps the frames it came through.
    """

    def __init__(self, threads: int = THREADS) -> None:
        self._threads = threads
        self.reset()

    def reset(self) -> None:
        """As new: a process that was forked has none of the threads."""
        # For a thread that waits: what to do, or which of those that others went before goes on, in its place.
        self._jobs: SimpleQueue[_Job | threading.Event] = SimpleQueue()
        self._held_up = 0
        self._wanted = self._threads
        self._lock = threading.Lock()
        self._rota = FairQueue[_Job | threading.Event](self._threads)
        self.done = 0

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """``work(*args, **kwargs)`` in one of the threads. Cancelled, it is not begun, or its outcome is dropped; see ``abandoned``."""
        future: asyncio.Future[T] = self._begin(lambda: work(*args, **kwargs))
        try:
            return await future
        finally:
            del future  # the traceback of its error leads here

    def soon(self, work: Callable[[], object]) -> None:
        """Does ``work`` in one of the threads, though nobody waits for it. It is left undone where there is no thread: what it would make
        is made when it is asked for."""
        with contextlib.suppress(ApiError):
            self._begin(work)

    def _begin(self, work: Callable[[], Any]) -> asyncio.Future[Any]:
        job = _Job(work, self)
        with self._lock:
            if self._wanted:
                try:
                    self._start()
                except RuntimeError:  # the system gives no thread more: the others do it, where there are any
                    if self._wanted >= self._threads:
                        raise no_thread() from None
            self._rota.wait(*job.whose, job)
            self._hand_out()
        return job.future

    def _hand_out(self) -> None:
        """Gives idle threads their next jobs. With the lock."""
        while (found := self._rota.next()) is not None:
            self._jobs.put(found[1])

    def give_way(self, job: _Job) -> None:
        """Lets clients that have no thread go before a job, in its thread, which does nothing else meanwhile."""
        goes_on = threading.Event()
        with self._lock:
            if self._held_up >= MOST_HELD_UP or not self._rota.others_wait(job.whose[0]):
                return
            self._wanted += 1
            try:
                self._start()
            except RuntimeError:  # the system gives no thread more
                self._wanted -= 1
                return
            self._held_up += 1
            self._rota.rest(job.whose[0])
            self._rota.wait(*job.whose, goes_on, again=True)
            self._hand_out()
        goes_on.wait()
        job.since = time.monotonic()

    def _start(self) -> None:
        """Starts the threads that are wanted. With the lock. RuntimeError where the system does not give them: those stay wanted."""
        before = threading.stack_size(STACK_BYTES)
        try:
            while self._wanted:
                threading.Thread(target=self._serve, name="kas-aside", daemon=True).start()
                self._wanted -= 1
        finally:
            threading.stack_size(before)

    def _rest(self, job: _Job) -> None:
        """A thread is done with a job."""
        with self._lock:
            self._rota.rest(job.whose[0])
            self._hand_out()

    def _ended(self, job: _Job) -> None:
        self.done += 1
        job.tell()

    def _serve(self) -> None:
        while True:
            job = self._jobs.get()
            if isinstance(job, threading.Event):
                with self._lock:
                    self._held_up -= 1
                job.set()
                return
            job.run()
            self._rest(job)
            with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits any more
                job.loop.call_soon_threadsafe(self._ended, job)
            del job  # an idle thread holds nothing


POOL = OffloadPool()
os.register_at_fork(after_in_child=POOL.reset)


def is_large(value: Any) -> bool:
    """Whether decoded JSON has about ``LARGE`` bytes once written, or more. It is looked at no further than that takes."""
    return outweighs(value, LARGE)


async def in_turn(large: bool, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """``work(*args, **kwargs)``: aside when it is ``large``, else here, and once more from the beginning aside where that takes longer than
    a turn of the loop. It comes to the same the second time."""
    if not large:
        with contextlib.suppress(BudgetSpentError):
            return TURN.within(work, *args, **kwargs)
    return await POOL.run(work, *args, **kwargs)


async def step(large: bool, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """``work(*args, **kwargs)``: aside when it is ``large``, else here. Where every write passes, the choice is written out instead: a
    coroutine more costs what a small step does."""
    return await POOL.run(work, *args, **kwargs) if large else work(*args, **kwargs)
