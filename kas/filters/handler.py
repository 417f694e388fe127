"""What a filter is, and how a request passes through a list of filters to its endpoint."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from kas._fastpath import FilterChain
from kas.meta.deadlines import Deadlines
from kas.meta.errors import ApiError
from kas.meta.offload import LARGE, step
from kas.meta.records import NamedTuple
from kas.request.http import Handler, Request, Response
from kas.request.websocket import Upgrade

Before = Callable[[Request], Response | Awaitable[Response | None] | None]
After = Callable[[Request, Response], None]
Release = Callable[[Request], None]
Recover = Callable[[Request, BaseException], Response]

SOON_S = 1.0  # a deadline that is as near as this applies to parked requests, too


class Filter(NamedTuple):
    """Up to four functions over the request.

    - ``before`` runs outermost filter first. It may refuse the request by returning a Response or raising ApiError.
      To wait, it returns an awaitable of the same, and only then is a task made for the request; or a ``FreshRead``,
      which the edge may park.
    - ``after`` runs innermost filter first. It sees every response, also that of a filter outside of its own.
    - ``release`` frees what ``before`` took, once the last byte of the response has been sent or the client is gone.
      Marks that ``before`` left on the request tell whether there is anything to free.
    - ``recover`` answers an unexpected exception of anything further in.
    """

    name: str
    before: Before | None = None
    after: After | None = None
    release: Release | None = None
    recover: Recover | None = None


class Chain(FilterChain):
    """Passes a request through ``filters`` to ``endpoint``.

    ``refuse(req, ApiError)`` renders an error in the form that the client accepts. ``translate`` maps other
    exceptions that are refusals, such as the store's, to an ApiError. ``deadlines`` ends whatever takes longer than
    ``req.deadline``, be it a filter, the body or the endpoint; the endpoints of long-running requests have no
    deadline. The part of the way on which nothing waits is ``FilterChain``'s (kas/fastpath/filterchain.pxi).
    """

    def __init__(
        self,
        filters: list[Filter],
        endpoint: Handler,
        refuse: Callable[[Request, ApiError], Response],
        translate: Callable[[Exception], ApiError | None],
        deadlines: Deadlines,
        timed_out: Callable[[Request], Response],
    ) -> None:
        super().__init__(
            tuple(f.before for f in filters if f.before), tuple(f.after for f in reversed(filters) if f.after),
            tuple(f.release for f in reversed(filters) if f.release), endpoint, SOON_S,
        )  # fmt: skip
        self.names = [f.name for f in filters]
        self._recover = next((f.recover for f in filters if f.recover), None)
        self._refuse, self._translate = refuse, translate
        self._deadlines, self._timed_out = deadlines, timed_out

    def also(self, after: After) -> None:
        """From now on calls ``after`` for every response, after all others."""
        self._after = (*self._after, after)

    def _failed(self, req: Request, e: Exception) -> Response:
        return self._refuse(req, e) if isinstance(e, ApiError) else self._unmeant(req, e)

    def _unmeant(self, req: Request, e: Exception) -> Response:
        known = self._translate(e)
        if known is not None:
            return self._refuse(req, known)
        if self._recover is None:
            raise e
        return self._recover(req, e)

    def _spoilt(self, req: Request, resp: Response, e: Exception) -> Response:
        """The response in place of one for which an ``after`` raised."""
        if isinstance(resp, Upgrade):
            resp.abandon()
        if resp.finish is not None:
            resp.finish()
        return self._unmeant(req, e)

    async def _later(self, req: Request, waiting: Awaitable[Response | None], at: int) -> Response:
        """Awaits ``waiting`` and passes the request on to the filters from ``at`` on; -1 if it is the endpoint that waits."""
        deadlines, late = self._deadlines, False
        task = asyncio.current_task()
        assert task is not None
        try:
            if at < 0 and req.long_running:
                resp = await waiting
            else:
                deadlines.add(task, req.deadline)
                try:
                    resp = await waiting
                    if resp is None and at >= 0:
                        resp = await self._further(req, at, task)
                except ApiError as e:
                    if len(e.message) < LARGE:
                        raise
                    resp = await step(True, self._refuse, req, e)  # what quotes megabytes takes as long to write as they took to read
                finally:
                    late = deadlines.drop(task)
            assert resp is not None  # an endpoint always answers
        except asyncio.CancelledError:
            if not late:
                # The client is gone. Every after() still sees a response, which is not sent, and whatever they make of
                # it, what before() took is freed.
                unsent = Response(499, [])
                try:
                    for after in self._after:
                        after(req, unsent)
                finally:
                    self._released(req)
                raise
            resp = self._timed_out(req)
        except Exception as e:
            resp = self._failed(req, e)
        return self._answered(req, resp)

    async def _further(self, req: Request, at: int, task: asyncio.Task[Any]) -> Response:
        """Continues after a filter that waited and let the request pass."""
        for before in self._before[at:]:
            result = before(req)
            if result is not None and not isinstance(result, Response):
                result = await result
            if result is not None:
                return result
        answer = self._endpoint(req)
        if isinstance(answer, Response):
            return answer
        if req.long_running:
            self._deadlines.forget(task)
        return await answer
