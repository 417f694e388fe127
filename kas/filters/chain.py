"""The handler chain: upstream's ``DefaultBuildHandlerChain`` as one flat list.

A filter is up to three plain functions over the request: ``before`` may refuse (return a Response or raise ApiError) and
runs outermost first; ``after`` sees every answer, also one of a filter outside of it, and runs innermost first; ``release``
gives back what ``before`` took, once the answer has been given to the last byte or the client is gone. What ``before`` marked
on the request tells the others whether there is anything to undo. No filter awaits; only endpoints do.

The order, outermost first, and why each stands where it does:

    panic_recovery      outside of everything, so that nothing escapes unanswered (it is the try in ``Chain``)
    audit_id            before anything that logs or answers, so that every answer carries the id
    mux_complete        503 while starting: a 404 now would be a lie about a path that is about to exist
    request_info        everything below asks what the request is about
    latency, tracing, http_logging   measure all that is below them, refusals too
    shutdown_retry      late arrivals while shutting down get 429 before they cost anything
    hsts, cache_control  headers of every answer, also of refusals
    goaway              before the work is done, because it asks the client to go elsewhere
    wait_group          shutting down waits for what passed here
    deadline, timeout   the clock starts before authentication, which may ask somebody else
    cors                a preflight carries no credentials, so it must be answered before authentication
    authentication      who asks; a failure is audited (audit stands behind it and sees the 401)
    audit               from here on every step is on record
    impersonation       after audit, so that the record shows who really asked
    max_in_flight       after impersonation, before the costly part; long-running requests are exempt
    authorization       last: it needs the final user and the request
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import NamedTuple

from kas.api.errors import ApiError
from kas.edge.http import Handler, Request, Response, Result

Before = Callable[[Request], Response | None]
After = Callable[[Request, Response], None]
Release = Callable[[Request], None]


class Filter(NamedTuple):
    name: str
    before: Before | None = None
    after: After | None = None
    release: Release | None = None


class Deadlines:
    """Cancels tasks whose time is up. One timer for all of them: nearly every request ends long before its deadline, so
    ``asyncio.timeout``, which arms and takes back a timer of its own each time, would cost more than some filters together.
    """

    def __init__(self) -> None:
        self._due: dict[asyncio.Task, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._fires = 0.0

    def add(self, task: asyncio.Task, deadline: float) -> None:
        """Cancels ``task`` at ``deadline`` (``time.monotonic``) unless ``drop`` comes first."""
        self._due[task] = deadline
        if self._timer is None or deadline < self._fires:
            self._arm(deadline)

    def drop(self, task: asyncio.Task) -> bool:
        """Whether the task's time was up, in which case the cancellation was this one's and is taken back."""
        if self._due.pop(task, None) is not None:
            return False
        return task.uncancel() == 0

    def _arm(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._fires = deadline
        self._timer = asyncio.get_running_loop().call_later(max(0.0, deadline - monotonic()), self._sweep)

    def _sweep(self) -> None:
        self._timer = None
        now = monotonic()
        late = [task for task, deadline in self._due.items() if deadline <= now]
        for task in late:
            del self._due[task]
            task.cancel()
        if self._due:
            self._arm(min(self._due.values()))


class Chain:
    """Runs a request through ``filters`` to ``endpoint``.

    ``refuse(req, ApiError)`` renders an error in the form the client asked for; ``translate`` knows which other exceptions
    are refusals too (the store's); ``panic(req, exc)`` answers a bug. ``deadlines`` ends what takes longer than ``req.deadline``.
    """

    def __init__(
        self,
        filters: list[Filter],
        endpoint: Handler,
        refuse: Callable[[Request, ApiError], Response],
        translate: Callable[[Exception], ApiError | None],
        panic: Callable[[Request, BaseException], Response],
        deadlines: Deadlines,
        timed_out: Callable[[Request], Response],
    ) -> None:
        self.names = [f.name for f in filters]
        self._before = tuple(f.before for f in filters if f.before)
        self._after = tuple(f.after for f in reversed(filters) if f.after)
        self._release = tuple(f.release for f in reversed(filters) if f.release)
        self._endpoint, self._refuse, self._translate, self._panic = endpoint, refuse, translate, panic
        self._deadlines, self._timed_out = deadlines, timed_out

    def __call__(self, req: Request) -> Result:
        try:
            for before in self._before:
                result: Result | None = before(req)
                if result is not None:
                    break
            else:
                result = self._endpoint(req)
        except ApiError as e:
            result = self._refuse(req, e)
        except Exception as e:
            result = self._failed(req, e)
        return self._answered(req, result) if isinstance(result, Response) else self._later(req, result)

    def _answered(self, req: Request, resp: Response) -> Response:
        for after in self._after:
            after(req, resp)
        if resp.stream is None or req.long_running:
            for release in self._release:
                release(req)
        else:
            resp.finish = lambda: self._released(req)
        return resp

    def _released(self, req: Request) -> None:
        for release in self._release:
            release(req)

    def _failed(self, req: Request, e: Exception) -> Response:
        known = self._translate(e)
        return self._refuse(req, known) if known is not None else self._panic(req, e)

    async def _later(self, req: Request, pending: Awaitable[Response]) -> Response:
        deadlines, late = self._deadlines, False
        task = asyncio.current_task()
        assert task is not None
        try:
            if req.long_running:
                resp = await pending
            else:
                deadlines.add(task, req.deadline)
                try:
                    resp = await pending
                finally:
                    late = deadlines.drop(task)
        except ApiError as e:
            resp = self._refuse(req, e)
        except asyncio.CancelledError:
            if not late:
                # The client is gone; what before() took must still be given back.
                self._answered(req, Response(499, []))
                raise
            resp = self._timed_out(req)
        except Exception as e:
            resp = self._failed(req, e)
        return self._answered(req, resp)
