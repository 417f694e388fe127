"""Offloads long CPU-bound work from the event loop to a few threads, so that the loop keeps serving other requests.

Offloaded work decodes, validates, patches, converts or encodes the objects of one request. It may read the store (which any thread may) and
fill caches whose entries are found by a single lookup. It must not touch futures, the watch hub, informer indexes or another request's
objects. Writes stay on the loop.

There are two threads. They compete with the loop for the GIL, which a worker process gets after a millisecond at the latest
(``observe/process.py``), or after the longest stretch of compiled code that holds it (measured in docs/threat-model.md). More threads would
not be faster and would make that wait longer.

``meta/fairqueue.py`` decides whose job is next, so that a client that sends one large object does not wait for everything another client
has sent. Within a client the oldest request goes first: what it decoded is released before the next request is decoded. A job that may take
many seconds yields to clients that have no thread; otherwise two clients with such work would hold both threads until it ends, and one
client may act as any number of users.
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

# Bodies and objects of this size or more are offloaded. The handover costs a tenth of a millisecond; work on anything smaller holds the
# loop for a few milliseconds at most.
LARGE = 64 << 10
LARGE_YAML = 8 << 10  # the same for YAML, which takes a millisecond per KiB, and up to three in flow style
THREADS = 2
STACK_BYTES = 16 << 20  # the deepest allowed nesting is walked recursively
SLICE_S = 0.03  # after which a job yields
# jobs that may be suspended in favour of others, each of which keeps its thread; beyond that, running jobs are not suspended
MAX_SUSPENDED = 32

LOOP_BUDGET_UNITS = 5000  # budget of work that runs on the loop: some milliseconds


class BudgetSpentError(Exception):
    """Work on the loop exceeded its budget and has to be restarted in a thread."""


class _LoopBudget(threading.local):
    """The remaining budget of this thread's current work, in units of about a microsecond. None: no limit was set, or this is not the
    loop's thread.
    """

    left: int | None = None

    def spend(self, units: int) -> None:
        """Deducts ``units``. Raises BudgetSpentError when a budget is set and used up."""
        if self.left is not None:
            self.left -= units
            if self.left < 0:
                raise BudgetSpentError

    def within(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs ``work(*args, **kwargs)`` within one budget. Raises BudgetSpentError; ``work`` must then be safe to restart from the
        beginning.
        """
        self.left = LOOP_BUDGET_UNITS
        try:
            return work(*args, **kwargs)
        finally:
            self.left = None


LOOP_BUDGET = _LoopBudget()


class _Job:
    """One job: the work, the future that waits for it and its loop, the client it belongs to, and its outcome."""

    __slots__ = ("error", "future", "loop", "pool", "result", "since", "whose", "work")

    def __init__(self, work: Callable[[], Any], pool: OffloadPool) -> None:
        self.pool, self.since = pool, 0.0
        self.work, self.loop = work, asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self.loop.create_future()
        self.whose = whose()
        self.result: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        """Runs the work in this thread."""
        if not self.future.cancelled():
            _CURRENT.job = self
            self.since = time.monotonic()
            try:
                self.result = self.work()
            except BaseException as e:  # the job's root: the error is passed to the waiting future
                self.error = e
                if isinstance(e, ApiError):
                    _clear_error_frames(e)
            finally:
                _CURRENT.job = None

    def resolve(self) -> None:
        """Resolves the future, on the loop's thread, and drops all references: the frames of an error lead here."""
        future, result, error = self.future, self.result, self.error
        del self.future, self.result, self.error, self.work
        if future.done():  # cancelled
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)


def _clear_error_frames(refusal: BaseException) -> None:
    """Clears the frames of an error and of its contexts, so that large objects are not freed on the loop in one step."""
    error: BaseException | None = refusal
    while error is not None:
        clear_frames(error.__traceback__)
        error = error.__context__


class _Current(threading.local):
    """The job that this thread runs; None in threads outside a pool."""

    job: _Job | None = None


_CURRENT = _Current()


def abandoned() -> bool:
    """Whether the job of this thread was cancelled; work that may take seconds should then stop.

    Callers must hold no lock: the job may be suspended here in favour of other clients once it has run for ``SLICE_S``.
    """
    job = _CURRENT.job
    if job is None:
        return False
    if time.monotonic() - job.since >= SLICE_S and not job.future.cancelled():
        job.pool.suspend(job)
    return job.future.cancelled()


class OffloadPool:
    """A pool of threads, started with the first job. The queue is bounded by the number of requests in flight.

    The pool avoids reference cycles, because what a job has made must be freed with its request and not by a later garbage collection,
    which is rare. The futures of ``concurrent.futures`` form cycles with their callbacks, and an error keeps the frames it came through.
    """

    def __init__(self, threads: int = THREADS) -> None:
        self._threads = threads
        self.reset()

    def reset(self) -> None:
        """Resets the pool; a forked process has none of the threads."""
        # For idle threads: the next job, or the event of a suspended job that continues in place of this thread.
        self._jobs: SimpleQueue[_Job | threading.Event] = SimpleQueue()
        self._suspended = 0
        self._missing = self._threads
        self._lock = threading.Lock()
        self._queue = FairQueue[_Job | threading.Event](self._threads)
        self.done = 0

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs ``work(*args, **kwargs)`` in one of the threads and returns its result.

        When the caller is cancelled, the work is not started, or its outcome is dropped; see ``abandoned``. Raises ``ApiError`` (503) when
        the system gives the server no thread.
        """
        future: asyncio.Future[T] = self._begin(lambda: work(*args, **kwargs))
        try:
            return await future
        finally:
            del future  # the traceback of its error references this frame

    def soon(self, work: Callable[[], object]) -> None:
        """Runs ``work`` in one of the threads in the background. It is skipped when there is no thread: what it would prepare is then made
        on demand.
        """
        with contextlib.suppress(ApiError):
            self._begin(work)

    def _begin(self, work: Callable[[], Any]) -> asyncio.Future[Any]:
        job = _Job(work, self)
        with self._lock:
            if self._missing:
                try:
                    self._start()
                except RuntimeError:  # no more threads from the system: existing ones do the work, if there are any
                    if self._missing >= self._threads:
                        raise no_thread() from None
            self._queue.wait(*job.whose, job)
            self._dispatch()
        return job.future

    def _dispatch(self) -> None:
        """Assigns queued jobs to free threads. The caller holds the lock."""
        while (found := self._queue.next()) is not None:
            self._jobs.put(found[1])

    def suspend(self, job: _Job) -> None:
        """Suspends ``job`` in favour of clients that have no thread. The thread of ``job`` blocks until it may continue."""
        resumed = threading.Event()
        with self._lock:
            if self._suspended >= MAX_SUSPENDED or not self._queue.others_wait(job.whose[0]):
                return
            self._missing += 1
            try:
                self._start()
            except RuntimeError:  # no more threads from the system
                self._missing -= 1
                return
            self._suspended += 1
            self._queue.rest(job.whose[0])
            self._queue.wait(*job.whose, resumed, again=True)
            self._dispatch()
        resumed.wait()
        job.since = time.monotonic()

    def _start(self) -> None:
        """Starts the missing threads. The caller holds the lock. Raises RuntimeError when the system refuses; ``_missing`` still counts
        those.
        """
        before = threading.stack_size(STACK_BYTES)
        try:
            while self._missing:
                threading.Thread(target=self._serve, name="kas-offload", daemon=True).start()
                self._missing -= 1
        finally:
            threading.stack_size(before)

    def _release(self, job: _Job) -> None:
        """Returns the slot of a finished job."""
        with self._lock:
            self._queue.rest(job.whose[0])
            self._dispatch()

    def _ended(self, job: _Job) -> None:
        self.done += 1
        job.resolve()

    def _serve(self) -> None:
        while True:
            job = self._jobs.get()
            if isinstance(job, threading.Event):
                with self._lock:
                    self._suspended -= 1
                job.set()
                return
            job.run()
            self._release(job)
            with contextlib.suppress(RuntimeError):  # the loop is closed: nothing waits for the result
                job.loop.call_soon_threadsafe(self._ended, job)
            del job  # an idle thread keeps no references


POOL = OffloadPool()
os.register_at_fork(after_in_child=POOL.reset)


def is_large(value: Any) -> bool:
    """Whether decoded JSON would take about ``LARGE`` bytes or more when encoded. The walk stops as soon as that is known."""
    return outweighs(value, LARGE)


async def in_turn(large: bool, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Runs ``work(*args, **kwargs)`` on the loop, or in a thread when it is ``large`` or exceeds the loop's budget.

    In the latter case it is started again from the beginning, so it must give the same result the second time.
    """
    if not large:
        with contextlib.suppress(BudgetSpentError):
            return LOOP_BUDGET.within(work, *args, **kwargs)
    return await POOL.run(work, *args, **kwargs)


async def step(large: bool, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Runs ``work(*args, **kwargs)`` in a thread when it is ``large``, else here. Code that every write runs inlines this choice: one more
    coroutine costs as much as a small step.
    """
    return await POOL.run(work, *args, **kwargs) if large else work(*args, **kwargs)
