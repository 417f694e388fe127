"""Code that may have to wait and mostly has not."""

from __future__ import annotations

import asyncio
import functools
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from time import perf_counter
from typing import Any, ParamSpec, TypeVar

from kas.meta.rota import Rota, whose

T = TypeVar("T")
P = ParamSpec("P")


STINT_S = 0.005


class Stint:
    """How long somebody who goes through many small things keeps the loop: after each, ``if stint.over: await stint.pause()`` lets others
    have their turn every ``STINT_S``. Of all who paused one goes on in a turn of the loop, by turns of clients, so that a turn is no longer
    where there are many of them."""

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self._until = perf_counter() + STINT_S

    @property
    def over(self) -> bool:
        """Whether it has been long enough."""
        return perf_counter() >= self._until

    async def pause(self) -> None:
        """Goes on once others had their turn."""
        await _pause()
        await _LINE.turn()
        self._until = perf_counter() + STINT_S


class _Line:
    """Who paused and wants to go on. There is one loop at a time; what another left behind is forgotten."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._rota = Rota[asyncio.Future[None]](1)
        self._moves = False

    def turn(self) -> asyncio.Future[None]:
        """To be awaited."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self._rota, self._moves = loop, Rota(1), False
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
