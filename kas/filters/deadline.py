"""How long a request may take: ``--request-timeout``, or less when ``?timeout=`` says so. Long-running ones are exempt."""

from __future__ import annotations

import asyncio
from time import monotonic

from kas.api.errors import ApiError, bad_request, timeout
from kas.edge.http import Request
from kas.filters.chain import Filter
from kas.options import OptionError, parse_duration


def deadline(request_timeout_s: float) -> Filter:
    def before(req: Request) -> None:
        if req.long_running:
            return
        limit = request_timeout_s
        if "timeout" in req.query:
            given = req.params.get("timeout")
            if given:
                try:
                    if given.isdigit():
                        raise OptionError(given)
                    asked = parse_duration(given)
                except OptionError:
                    raise bad_request(
                        f'invalid timeout specified in the request URL - time: missing unit in duration "{given}"'
                        if given.isdigit()
                        else f'invalid timeout specified in the request URL - time: invalid duration "{given}"'
                    ) from None
                if asked > 0:
                    limit = min(limit, asked)
        req.deadline = req.started + limit

    return Filter("deadline", before)


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


def timed_out() -> ApiError:
    """504: the answer when the deadline passes first."""
    return timeout("request did not complete within the allotted timeout")
