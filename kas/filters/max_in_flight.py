"""Max-in-flight: bounds the reads and the writes in progress over all workers (upstream's ``WithMaxInFlightLimit``).

The counters are atomics in the workers' shared memory. Long-running requests are exempt, and so is system:masters:
an administrator must be able to repair an overloaded server, and when the limit is reached such a request takes no
place that others wait for.
"""

from __future__ import annotations

from typing import Protocol

from kas.auth.user import MASTERS
from kas.endpoints.respond import too_many_requests
from kas.filters.handler import Filter
from kas.observe.metrics import Registry
from kas.request.http import Request, Response

READ, WRITE = 1, 2
READ_VERBS = frozenset(("get", "list", "watch"))


class InFlight(Protocol):
    """The workers' shared counters."""

    def enter(self, mutating: bool) -> int:
        """Adds one; returns the new count."""

    def leave(self, mutating: bool) -> None:
        """Subtracts one."""


def max_in_flight(memory: InFlight, read_limit: int, write_limit: int, registry: Registry) -> Filter:
    """Refuses requests beyond the limits with 429; a limit of 0 is none."""
    inflight = registry.gauge(
        "apiserver_current_inflight_requests",
        "Maximal number of currently used inflight request limit of this apiserver per request kind in last second.",
        ("request_kind",),
    )
    serving = {READ: 0, WRITE: 0}

    def collect() -> None:
        inflight.set(("readOnly",), serving[READ])
        inflight.set(("mutating",), serving[WRITE])

    registry.collectors.append(collect)

    def before(req: Request) -> Response | None:
        if req.long_running:
            return None
        mutating = req.info.verb not in READ_VERBS
        limit = write_limit if mutating else read_limit
        now = memory.enter(mutating)
        if limit and now > limit:
            memory.leave(mutating)
            if MASTERS in req.user.groups:
                return None
            return too_many_requests(1)
        req.in_flight = kind = WRITE if mutating else READ
        serving[kind] += 1
        return None

    def release(req: Request) -> None:
        kind = req.in_flight
        if kind:
            req.in_flight = 0
            serving[kind] -= 1
            memory.leave(kind == WRITE)

    return Filter("max_in_flight", before, None, release)
