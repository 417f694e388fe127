"""Tools for coroutines: running them without a task until they first suspend, and bounding how long they hold the event loop."""

from __future__ import annotations

import asyncio
import functools
import types
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Generator, Hashable
from heapq import heappop, heappush
from itertools import count, islice
from time import perf_counter
from typing import Any, ParamSpec, TypeVar

from kas.meta.fairqueue import FairQueue, whose

T = TypeVar("T")
P = ParamSpec("P")


TIME_SLICE_S = 0.005
MAX_WOKEN = 32  # waiters that a throttle wakes per loop iteration; those for which no time is left wait again


class TimeSlice:
    """Bounds how long a coroutine made of many small steps holds the event loop.

    After each step, ``if time_slice.over: await time_slice.pause()`` yields to other callbacks every ``TIME_SLICE_S``. Each loop iteration
    resumes one of the paused coroutines, round-robin by client, so that an iteration stays short however many coroutines are paused.
    """

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self._until = perf_counter() + TIME_SLICE_S

    @property
    def over(self) -> bool:
        """Whether the time slice is used up."""
        return perf_counter() >= self._until

    async def pause(self) -> None:
        """Suspends until it is this coroutine's turn, then starts a new time slice."""
        await _pause()
        await _PAUSED.turn()
        self._until = perf_counter() + TIME_SLICE_S


class _PauseQueue:
    """The queue of paused coroutines. It serves one running loop at a time; waiters of a previous loop are dropped."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._queue = FairQueue[asyncio.Future[None]](1)
        self._scheduled = False

    def turn(self) -> asyncio.Future[None]:
        """A future that is resolved when it is the caller's turn to continue."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self._queue, self._scheduled = loop, FairQueue(1), False
        future = loop.create_future()
        self._queue.wait(whose()[0], 0, future)  # FIFO within a client: a turn does not end with the work of a request
        if not self._scheduled:
            self._scheduled = True
            loop.call_soon(self._resume_next)
        return future

    def _resume_next(self) -> None:
        while (found := self._queue.next()) is not None:
            self._queue.rest(found[0])
            if not found[1].done():  # otherwise the waiter was cancelled
                found[1].set_result(None)
                assert self._loop is not None
                self._loop.call_soon(self._resume_next)  # runs after the coroutine that was just resumed
                return
        self._scheduled = False


_PAUSED = _PauseQueue()


def in_turn(callback: Callable[[], object]) -> None:
    """Calls ``callback`` when it is its turn among the paused coroutines: for steps of a protocol, which has no coroutine."""
    _PAUSED.turn().add_done_callback(lambda _: callback())


class Throttle:
    """Limits how much work starts per loop iteration, where many tasks arrive at once and each then holds the loop until it is done.

    ``if throttle.exhausted: await throttle.wait()`` admits tasks for ``TIME_SLICE_S`` of one loop iteration in total, and at least one task
    per iteration. Waiters are admitted round-robin by client, and in order of arrival within a client. An instance belongs to one event
    loop.
    """

    __slots__ = ("_clock", "_end_scheduled", "_order", "_until", "_waiting", "_woken")

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        self._clock = clock
        self._end_scheduled = False  # whether _next_iteration is scheduled for the end of this iteration
        self._until = 0.0  # when this iteration's time is used up; 0 while nothing was admitted in it
        # Client -> heap of (request, order, future). The client whose turn is next comes first.
        self._waiting: OrderedDict[Hashable, list[tuple[int, int, asyncio.Future[None]]]] = OrderedDict()
        self._woken: list[Hashable] = []  # clients whose waiters may continue in this iteration
        self._order = count()

    @property
    def exhausted(self) -> bool:
        """Whether this iteration has no time left. If False, the caller is admitted and is expected to start its work now."""
        now = self._clock()
        if not self._end_scheduled:
            self._schedule_end()
        elif self._until:
            return now >= self._until
        self._until = now + TIME_SLICE_S
        return False

    async def wait(self) -> None:
        """Waits until the caller is admitted in a later iteration. Call it when the throttle is ``exhausted``, before awaiting anything
        else.
        """
        (client, request), loop, waits = whose(), asyncio.get_running_loop(), True
        while waits:
            future = loop.create_future()
            heappush(self._waiting.setdefault(client, []), (request, next(self._order), future))
            await future
            waits = self.exhausted
        if client in self._waiting:
            self._waiting.move_to_end(client)

    def _schedule_end(self) -> None:
        self._end_scheduled = True
        asyncio.get_running_loop().call_soon(self._next_iteration)

    def _next_iteration(self) -> None:
        """Starts a new iteration: wakes one waiter of each client, then another of each, up to ``MAX_WOKEN``. Those for which no time is
        left wait again and keep their place.
        """
        self._end_scheduled, self._until = False, 0.0
        for client in self._woken:
            if not self._waiting.get(client, True):
                del self._waiting[client]  # all of its waiters were admitted or cancelled
        self._woken = clients = list(islice(self._waiting, MAX_WOKEN))
        left = MAX_WOKEN
        while left and clients:
            for client in clients[:left]:
                left -= self._wake_one(self._waiting[client])
            clients = [client for client in clients if self._waiting[client]]
        if self._waiting:
            self._schedule_end()

    @staticmethod
    def _wake_one(waiting: list[tuple[int, int, asyncio.Future[None]]]) -> bool:
        while waiting:
            future = heappop(waiting)[2]
            if not future.done():  # otherwise the waiter was cancelled
                future.set_result(None)
                return True
        return False


class LoopThrottle:
    """The ``Throttle`` of the running event loop, for module-level use. It serves one running loop at a time."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._throttle = Throttle()

    @property
    def throttle(self) -> Throttle:
        """The running loop's throttle; a new one when the loop has changed."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self._throttle = loop, Throttle()
        return self._throttle


@types.coroutine
def _pause() -> Generator[None, None, None]:
    yield


async def awaited(value: T | Awaitable[T]) -> T:
    """Returns ``value``, or its result when it is awaitable.

    Inside a coroutine run by ``at_once``, the awaitable starts only once there is a task, because it may need to know the current task.
    """
    if isinstance(value, Awaitable):
        await _pause()
        return await value
    return value


def at_once(work: Coroutine[Any, Any, T]) -> T | Awaitable[T]:
    """Runs ``work`` without a task as far as it does not suspend: returns its result, or an awaitable of the rest.

    ``work`` may first suspend only on ``awaited(...)`` or ``TimeSlice.pause()``.
    """
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    return _rest(work)


def eager(work: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T | Awaitable[T]]:
    """Decorator: a call of the coroutine function runs it ``at_once``."""

    @functools.wraps(work)
    def run(*args: P.args, **kwargs: P.kwargs) -> T | Awaitable[T]:
        return at_once(work(*args, **kwargs))

    return run


async def _rest(work: Coroutine[Any, Any, T]) -> T:
    return await _resumed(work)


@types.coroutine
def _resumed(work: Coroutine[Any, Any, T]) -> Generator[Any, Any, T]:
    """Drives ``work`` from its first suspension on."""
    try:
        # Popped from a list rather than held in a local: the exception of the awaited object references this frame.
        waiting = [work.send(None)]
        while True:
            try:
                sent = yield waiting.pop()
            except GeneratorExit:
                work.close()
                raise
            except BaseException as e:
                waiting.append(work.throw(e))
            else:
                waiting.append(work.send(sent))
    except StopIteration as done:
        result: T = done.value
        return result
