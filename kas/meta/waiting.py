"""Code that may have to wait and mostly has not."""

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
WOKEN = 32  # of those who wait at a throttle, in a turn of the loop: those for whom there is no time wait again


class TimeSlice:
    """Bounds how long a coroutine that does many small steps keeps the event loop: after each step,
    ``if time_slice.over: await time_slice.pause()`` lets others run every ``TIME_SLICE_S``. Each turn of the loop resumes one of the paused
    coroutines, clients in turn, so that a turn stays short however many of them there are."""

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self._until = perf_counter() + TIME_SLICE_S

    @property
    def over(self) -> bool:
        """Whether it has been long enough."""
        return perf_counter() >= self._until

    async def pause(self) -> None:
        """Goes on once others had their turn."""
        await _pause()
        await _LINE.turn()
        self._until = perf_counter() + TIME_SLICE_S


class _Line:
    """Who paused and wants to go on. There is one loop at a time; what another left behind is forgotten."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._rota = FairQueue[asyncio.Future[None]](1)
        self._moves = False

    def turn(self) -> asyncio.Future[None]:
        """To be awaited."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self._rota, self._moves = loop, FairQueue(1), False
        mine = loop.create_future()
        self._rota.wait(whose()[0], 0, mine)  # of one client who came first: it does not end with its request's work
        if not self._moves:
            self._moves = True
            loop.call_soon(self._move)
        return mine

    def _move(self) -> None:
        while (found := self._rota.next()) is not None:
            self._rota.rest(found[0])
            if not found[1].done():  # else who paused has left
                found[1].set_result(None)
                assert self._loop is not None
                self._loop.call_soon(self._move)  # behind what that one does now
                return
        self._moves = False


_LINE = _Line()


class Throttle:
    """Where many come at once, each of whom then keeps the loop for as long as it needs: ``if throttle.exhausted: await throttle.wait()`` lets
    them go on for ``TIME_SLICE_S`` of a turn of the loop together, and one of them at least. Who waits goes on by turns of clients, of one
    client who came first. One loop's."""

    __slots__ = ("_clock", "_due", "_order", "_until", "_waiting", "_woken")

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        self._clock = clock
        self._due = False  # whether the end of this turn will be noted
        self._until = 0.0  # when this turn is full, 0 while nobody went on in it
        # By client, who is next first; a heap each, of request and order.
        self._waiting: OrderedDict[Hashable, list[tuple[int, int, asyncio.Future[None]]]] = OrderedDict()
        self._woken: list[Hashable] = []  # clients of those who may go on in this turn
        self._order = count()

    @property
    def exhausted(self) -> bool:
        """Whether this turn has no time left; where it has, who asks goes on in it."""
        now = self._clock()
        if not self._due:
            self._note_its_end()
        elif self._until:
            return now >= self._until
        self._until = now + TIME_SLICE_S
        return False

    async def wait(self) -> None:
        """Goes on in a later turn. To be awaited when this one is ``exhausted``, before anything else is."""
        (client, request), loop, waits = whose(), asyncio.get_running_loop(), True
        while waits:
            mine = loop.create_future()
            heappush(self._waiting.setdefault(client, []), (request, next(self._order), mine))
            await mine
            waits = self.exhausted
        if client in self._waiting:
            self._waiting.move_to_end(client)

    def _note_its_end(self) -> None:
        self._due = True
        asyncio.get_running_loop().call_soon(self._over)

    def _over(self) -> None:
        """One of each client is woken, then another, up to ``WOKEN``. Those for whom there is no time wait again, at their place."""
        self._due, self._until = False, 0.0
        for client in self._woken:
            if not self._waiting.get(client, True):
                del self._waiting[client]  # whoever it had went on, or has left
        self._woken = clients = list(islice(self._waiting, WOKEN))
        left = WOKEN
        while left and clients:
            for client in clients[:left]:
                left -= self._wakes(self._waiting[client])
            clients = [client for client in clients if self._waiting[client]]
        if self._waiting:
            self._note_its_end()

    @staticmethod
    def _wakes(waiting: list[tuple[int, int, asyncio.Future[None]]]) -> bool:
        while waiting:
            mine = heappop(waiting)[2]
            if not mine.done():  # else who waited has left
                mine.set_result(None)
                return True
        return False


class LoopThrottle:
    """A ``Throttle`` of whichever loop runs. There is one at a time."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._throttle = Throttle()

    @property
    def throttle(self) -> Throttle:
        """The running loop's."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self._throttle = loop, Throttle()
        return self._throttle


@types.coroutine
def _pause() -> Generator[None, None, None]:
    yield


async def awaited(value: T | Awaitable[T]) -> T:
    """``value``, or what comes of it when it is awaitable.

    Inside of what ``at_once`` runs, nothing that waits begins before there is a task: it may want to know which one runs it.
    """
    if isinstance(value, Awaitable):
        await _pause()
        return await value
    return value


def at_once(work: Coroutine[Any, Any, T]) -> T | Awaitable[T]:
    """What ``work`` comes to when it need not wait, without a task; else the rest of it, to be awaited. ``work`` waits for nothing but
    ``awaited`` values."""
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    return _rest(work)


def eager(work: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T | Awaitable[T]]:
    """A coroutine function that is run ``at_once`` when it is called."""

    @functools.wraps(work)
    def run(*args: P.args, **kwargs: P.kwargs) -> T | Awaitable[T]:
        return at_once(work(*args, **kwargs))

    return run


async def _rest(work: Coroutine[Any, Any, T]) -> T:
    return await _resumed(work)


@types.coroutine
def _resumed(work: Coroutine[Any, Any, T]) -> Generator[Any, Any, T]:
    """``work`` from its first pause on."""
    try:
        # What is waited for is not kept here: its error keeps this frame.
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
