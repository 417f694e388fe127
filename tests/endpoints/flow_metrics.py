"""Cases of flow control's metrics: a level with one seat and one place in its queue, and three anonymous requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from tests.server.whole import EVERYBODY

GROUP = "/apis/flowcontrol.apiserver.k8s.io/v1"
PODS = "/api/v1/namespaces/default/pods"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
FLAGS = {"max_requests_inflight": 8, "max_mutating_requests_inflight": 4, **EVERYBODY}
ONE = {"flow_schema": "one", "priority_level": "one"}
PREFIX = "apiserver_flowcontrol_"
QUEUING = {"queues": 1, "handSize": 1, "queueLengthLimit": 1}
RESOURCES = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": True}


async def narrow(m: Any) -> None:
    """Gives clients without a credential one seat."""
    limited = {"nominalConcurrencyShares": 1, "lendablePercent": 0, "borrowingLimitPercent": 0,
               "limitResponse": {"type": "Queue", "queuing": QUEUING}}  # fmt: skip
    level = {"metadata": {"name": "one"}, "spec": {"type": "Limited", "limited": limited}}
    rule = {"subjects": [{"kind": "User", "user": {"name": "system:anonymous"}}], "resourceRules": [RESOURCES]}
    spec = {"priorityLevelConfiguration": {"name": "one"}, "matchingPrecedence": 50, "rules": [rule]}
    for resource, obj in (("prioritylevelconfigurations", level), ("flowschemas", {"metadata": {"name": "one"}, "spec": spec})):
        assert (await m("POST", f"{GROUP}/{resource}", obj)).status in (201, 409)


@asynccontextmanager
async def crowded(m: Any, write: bool = False) -> AsyncIterator[None]:
    """One write runs, one read (or ``write``) waits, one more was refused; at the end the first two are served."""
    await narrow(m)
    running = m.begin("POST", CONFIG_MAPS, {"metadata": {"generateName": "a"}}, token="")
    waiting = m.begin("POST", CONFIG_MAPS, {"metadata": {"generateName": "a"}}, token="") if write else m.begin("GET", PODS, token="")
    refused = m.begin("GET", PODS, token="")
    assert refused.status == 429 and refused.body == b"Too many requests, please try again later.\n"
    yield
    assert (await asyncio.ensure_future(running)).status == 201
    assert (await asyncio.ensure_future(waiting)).status == (201 if write else 200)


def register(of: Callable[..., Any]) -> None:
    """Gives each metric family its case."""

    @of("apiserver_current_inqueue_requests", **FLAGS)
    async def in_queue(m: Any) -> None:
        for write, kind, other in ((False, "readOnly", "mutating"), (True, "mutating", "readOnly")):
            async with crowded(m, write):
                assert m.value("apiserver_current_inqueue_requests", request_kind=kind) == 1
                assert m.value("apiserver_current_inqueue_requests", request_kind=other) == 0
            await asyncio.sleep(0)
            assert m.value("apiserver_current_inqueue_requests") == 0

    def inside(family: str, expected: float, **labels: str) -> None:
        """A sample's value while the level is full, and that it falls to zero afterwards."""

        @of(family, **FLAGS)
        async def case(m: Any) -> None:
            async with crowded(m):
                assert m.value(family, **labels) == expected
            await asyncio.sleep(0)
            assert m.value(family, **labels) == 0

    def counted(family: str, expected: float, sample: str = "", **labels: str) -> None:
        """A sample's value when all were served."""

        @of(family, **FLAGS)
        async def case(m: Any) -> None:
            assert m.value(sample or family, **labels) == 0
            async with crowded(m):
                pass
            assert m.value(sample or family, **labels) == expected

    def level(family: str, expected: Callable[[float], bool], sample: str = "", **labels: str) -> None:
        """A level's value after an adjustment while it is full."""

        @of(family, **FLAGS)
        async def case(m: Any) -> None:
            async with crowded(m):
                m.server.flow_control.adjust()
                found = m.value(sample or family, **labels)
                assert expected(found), found

    for name in ("executing_requests", "executing_seats", "inqueue_requests", "inqueue_seats"):
        inside(f"{PREFIX}current_{name}", 1, **ONE)
    counted(f"{PREFIX}dispatched_requests_total", 2, **ONE)
    counted(f"{PREFIX}rejected_requests_total", 1, **ONE, reason="queue-full")
    counted(f"{PREFIX}request_execution_seconds", 2, f"{PREFIX}request_execution_seconds_count", **ONE, type="regular")
    counted(f"{PREFIX}request_wait_duration_seconds", 2, f"{PREFIX}request_wait_duration_seconds_count", **ONE, execute="true")
    counted(f"{PREFIX}work_estimated_seats", 3, f"{PREFIX}work_estimated_seats_sum", **ONE)
    counted(f"{PREFIX}request_queue_length_after_enqueue", 1, f"{PREFIX}request_queue_length_after_enqueue_sum", **ONE)
    for name in ("nominal", "lower", "upper", "current"):
        level(f"{PREFIX}{name}_limit_seats", lambda v: v == 1, priority_level="one")
    level(f"{PREFIX}demand_seats_high_watermark", lambda v: v == 2, priority_level="one")
    for name in ("average", "stdev", "smoothed"):
        level(f"{PREFIX}demand_seats_{name}", lambda v: 0 < v <= 4, priority_level="one")
    level(f"{PREFIX}target_seats", lambda v: v >= 1, priority_level="one")
    level(f"{PREFIX}seat_fair_frac", lambda v: v > 0)
    level(f"{PREFIX}demand_seats", lambda v: v == 2, f"{PREFIX}demand_seats_sum", priority_level="one")
    level(f"{PREFIX}priority_level_seat_utilization", lambda v: v == 1, f"{PREFIX}priority_level_seat_utilization_sum",
          priority_level="one")  # fmt: skip
    level(f"{PREFIX}priority_level_request_utilization", lambda v: v == 1, f"{PREFIX}priority_level_request_utilization_sum",
          priority_level="one", phase="waiting")  # fmt: skip
    level(f"{PREFIX}read_vs_write_current_requests", lambda v: 0 < v < 1, f"{PREFIX}read_vs_write_current_requests_sum",
          phase="waiting", request_kind="readOnly")  # fmt: skip
