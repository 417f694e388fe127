"""``/debug/api_priority_and_fairness/``: waiting and executing requests (apiserver's ``apf_controller_debug.go``).

The counts of levels are those of all workers; queues and requests are those of the worker that answers.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from kas.endpoints.respond import plain
from kas.flowcontrol._engine import Level, Stats, Ticket
from kas.meta.offload import POOL
from kas.meta.waiting import TimeSlice
from kas.request.http import Request, Response
from kas.request.mux import Mux

if TYPE_CHECKING:
    from kas.flowcontrol.controller import FlowControl

ROOT = "/debug/api_priority_and_fairness/"
LEVEL_COLUMNS = (
    "PriorityLevelName", "ActiveQueues", "IsIdle", "IsQuiescing", "WaitingRequests", "ExecutingRequests", "DispatchedRequests",
    "RejectedRequests", "TimedoutRequests", "CancelledRequests",
)  # fmt: skip
QUEUE_COLUMNS = (
    "PriorityLevelName", "Index", "PendingRequests", "ExecutingRequests", "SeatsInUse", "NextDispatchR", "InitialSeatsSum", "MaxSeatsSum",
    "TotalWorkSum",
)  # fmt: skip
REQUEST_COLUMNS = (
    "PriorityLevelName", "FlowSchemaName", "QueueIndex", "RequestIndexInQueue", "FlowDistingsher", "ArriveTime", "InitialSeats",
    "FinalSeats", "AdditionalLatency", "StartTime",
)  # fmt: skip
DETAIL_COLUMNS = ("UserName", "Verb", "APIPath", "Namespace", "Name", "APIVersion", "Resource", "SubResource")
# The minimum column width, and the space between two columns, as in upstream's tabwriter.
WIDTH, PADDING = 8, 1
MOST_QUEUES = 10_000  # rows, beyond which only queues in use are listed


class Dumps:
    """The debugging pages of a worker's flow control."""

    def __init__(self, control: FlowControl) -> None:
        self._control = control

    def install(self, mux: Mux) -> None:
        """Serves the three pages."""
        mux.exact(ROOT + "dump_priority_levels", self.priority_levels)
        mux.exact(ROOT + "dump_queues", self.queues)
        mux.exact(ROOT + "dump_requests", self.requests)

    def _levels(self) -> list[Level]:
        self._control.configure()
        return sorted((*self._control.levels.values(), *self._control.leaving), key=lambda level: level.name)

    async def priority_levels(self, req: Request) -> Response:
        """A row for each level. Dispatched and rejected requests are counted by the worker that answers."""
        rows, by_level, time_slice = [], dict[str, list[Stats]](), TimeSlice()
        for one in self._control.stats.values():
            by_level.setdefault(one.level, []).append(one)
        for level in self._levels():
            if time_slice.over:
                await time_slice.pause()
            seats, executing, waiting, _, queues = level.totals()
            stats = by_level.get(level.name, [])
            late, left = (sum(s.rejected.get(reason, 0) for s in stats) for reason in ("time-out", "cancelled"))
            refused = sum(sum(s.rejected.values()) for s in stats) - late - left
            rows.append((
                level.name, queues, _bool(seats == waiting == executing == 0), _bool(level.quiescing), waiting, executing,
                sum(s.dispatched for s in stats), refused, late, left,
            ))  # fmt: skip
        return await POOL.run(_page, LEVEL_COLUMNS, rows)

    async def queues(self, req: Request) -> Response:
        """A row for each queue, including those that have no requests and do not exist yet; none of these beyond
        ``MOST_QUEUES`` rows, because a level may have ten million."""
        rows: list[Sequence[object]] = []
        time_slice = TimeSlice()
        for level in self._levels():
            if time_slice.over:
                await time_slice.pause()
            made = {queue[0]: queue for queue in level.dump()}
            room = max(0, MOST_QUEUES - len(rows))
            for index in sorted({*made, *range(min(level.queues, room) if level.queued else 0)}):
                _, next_r, seats, initial, most, work, running, waiting = made.get(index) or (index, 0.0, 0, 0, 0, 0.0, (), ())
                rows.append((
                    level.name, index, len(waiting), len(running), seats, _seat_seconds(next_r), initial, most, _seat_seconds(work),
                ))  # fmt: skip
        return await POOL.run(_page, QUEUE_COLUMNS, rows)

    async def requests(self, req: Request) -> Response:
        """A row for each request of a level with queues that executes (index -1) or waits."""
        details = bool(req.params.get("includeRequestDetails"))
        rows: list[Sequence[object]] = []
        time_slice = TimeSlice()
        for level in self._levels():
            if time_slice.over:
                await time_slice.pause()
            for index, *_, running, waiting in level.dump():
                for position, ticket in (*((-1, t) for t in running), *enumerate(waiting)):
                    row = (level.name, ticket.flow.schema, index, position, ticket.flow.distinguisher, *_times(ticket))
                    rows.append(row + _details(ticket) if details else row)
        return await POOL.run(_page, REQUEST_COLUMNS + DETAIL_COLUMNS if details else REQUEST_COLUMNS, rows)


def _times(t: Ticket) -> tuple[object, ...]:
    began = _moment(t.began) if t.began else "0001-01-01T00:00:00Z"
    return _moment(t.arrived), t.initial, t.final, f"{t.latency:g}s", began


def _details(t: Ticket) -> tuple[object, ...]:
    if t.request is None:
        return ("",) * len(DETAIL_COLUMNS)
    info = t.request.info
    version = f"{info.api_group}/{info.api_version}" if info.api_group else info.api_version
    return t.request.user.name, info.verb, info.path, info.namespace, info.name, version, info.resource, info.subresource


def _moment(monotonic: float) -> str:
    at = datetime.datetime.fromtimestamp(time.time() - time.monotonic() + monotonic, datetime.UTC)
    return at.isoformat().replace("+00:00", "Z")


def _seat_seconds(value: float) -> str:
    return f"{value:.8f}ss"


def _bool(value: bool) -> str:
    return "true" if value else "false"


def _page(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Response:
    """A table, with each cell but the last of a row followed by a comma. Line breaks in clients' texts become spaces."""
    table = [[str(cell).replace("\n", " ").replace("\r", " ") for cell in row] for row in (columns, *rows)]
    widths = [max(WIDTH, *(len(row[i]) + 1 + PADDING for row in table)) for i in range(len(columns) - 1)]
    lines = ["".join((cell + ",").ljust(width) for cell, width in zip(row, widths, strict=False)) + row[-1] for row in table]
    return plain(200, "\n".join(lines) + "\n")
