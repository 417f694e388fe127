"""Flow control of a running server: its answers, when changes apply, and its cost for other requests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from kas.flowcontrol import controller
from kas.flowcontrol.metrics import FlowMetrics
from kas.meta.offload import LARGE
from kas.observe.metrics import Registry
from kas.request.http import Request, Response
from tests.endpoints.inprocess import Stream
from tests.server.whole import EVERYBODY, World

GROUP = "/apis/flowcontrol.apiserver.k8s.io/v1"
PODS = "/api/v1/namespaces/default/pods"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
RESOURCES = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": True}


class Server:
    """Sends requests through the whole chain; no user is in system:masters, so that flow control applies."""

    def __init__(self, world: World) -> None:
        self.world, self.control = world, world.server.flow_control

    def begin(self, method: str, path: str, body: Any = None, admin: bool = False) -> Any:
        path, _, query = path.partition("?")
        headers = [(b"content-type", b"application/json")]
        if admin:
            headers.append((b"authorization", b"Bearer " + self.world.token.encode()))
        return self.world.server.chain(Request(method, path, query, headers, b"" if body is None else json.dumps(body).encode()))

    async def ask(self, method: str, path: str, body: Any = None, admin: bool = False) -> Response:
        result = self.begin(method, path, body, admin)
        return result if isinstance(result, Response) else await result

    async def make(self, name: str, *, queuing: dict[str, int] | None = None, level: str | None = None, precedence: int = 50) -> None:
        limited: dict[str, Any] = {"nominalConcurrencyShares": 1, "lendablePercent": 0, "borrowingLimitPercent": 0}
        limited["limitResponse"] = {"type": "Queue", "queuing": queuing} if queuing else {"type": "Reject"}
        if level is None:
            await self._made("prioritylevelconfigurations", {"metadata": {"name": name}, "spec": {"type": "Limited", "limited": limited}})
        rule = {"subjects": [{"kind": "User", "user": {"name": "system:anonymous"}}], "resourceRules": [RESOURCES]}
        spec = {"priorityLevelConfiguration": {"name": level or name}, "matchingPrecedence": precedence, "rules": [rule]}
        await self._made("flowschemas", {"metadata": {"name": name}, "spec": spec})

    async def _made(self, resource: str, obj: dict[str, Any]) -> None:
        made = await self.ask("POST", f"{GROUP}/{resource}", obj, admin=True)
        assert made.status == 201, made.body

    async def put_where(self, path: str = PODS) -> str:
        """Returns the FlowSchema that an answer names."""
        resp = await self.ask("GET", path)
        uid = dict(resp.headers)[b"x-kubernetes-pf-flowschema-uid"].decode()
        items = json.loads((await self.ask("GET", f"{GROUP}/flowschemas", admin=True)).body)["items"]
        return next(o["metadata"]["name"] for o in items if o["metadata"]["uid"] == uid)

    @property
    def seats(self) -> tuple[int, ...]:
        assert self.control is not None
        return self.control.levels["one"].totals()[:3]


def served(work: Callable[[Server], Awaitable[None]], tmp_path: Path, **flags: Any) -> None:
    async def go() -> None:
        given = {"max_requests_inflight": 8, "max_mutating_requests_inflight": 4, **EVERYBODY, **flags}
        world = World(tmp_path, loop=asyncio.get_running_loop(), **given)
        try:
            await work(Server(world))
        finally:
            world.close()

    asyncio.run(go())


def test_a_schema_applies_from_the_next_request_on(tmp_path):
    async def work(s: Server) -> None:
        assert await s.put_where() == "global-default"
        await s.make("one")
        assert await s.put_where() == "one"
        await s.make("other", level="one", precedence=40)
        assert await s.put_where() == "other"
        await s.make("dangling", level="none", precedence=30)
        assert await s.put_where() == "other"
        for name in ("other", "one"):
            assert (await s.ask("DELETE", f"{GROUP}/flowschemas/{name}", admin=True)).status == 200
        assert await s.put_where() == "global-default"
        assert (await s.ask("DELETE", f"{GROUP}/flowschemas/catch-all", admin=True)).status == 200
        assert await s.put_where() == "global-default"

    served(work, tmp_path)


def test_a_request_that_waits_too_long_is_refused(tmp_path):
    """A quarter of its deadline, which has passed at once here."""
    async def work(s: Server) -> None:
        loop, waits = asyncio.get_running_loop(), list[float]()
        call_later = loop.call_later

        def sooner(seconds: float, call: Callable[..., None], *args: Any) -> asyncio.TimerHandle:
            if call is controller._time_out:
                waits.append(seconds)
                seconds = 0.0
            return call_later(seconds, call, *args)

        loop.call_later = sooner  # type: ignore[assignment, method-assign]
        await s.make("one", queuing={"queues": 1, "handSize": 1, "queueLengthLimit": 9})
        running = s.begin("POST", CONFIG_MAPS, {"metadata": {"name": "a"}})
        refused = await s.ask("GET", f"{PODS}?timeout=60s")
        assert len(waits) == 1 and 7.5 < waits[0] <= 15.0
        assert refused.status == 429 and refused.body == b"Too many requests, please try again later.\n"
        assert dict(refused.headers)[b"retry-after"] == b"1" and b"x-kubernetes-pf-prioritylevel-uid" in dict(refused.headers)
        assert s.seats == (1, 1, 0)
        assert (await running).status == 201
        await asyncio.sleep(0)
        assert s.seats == (0, 0, 0)

    served(work, tmp_path)


def test_a_disconnected_client_waits_no_longer(tmp_path):
    async def work(s: Server) -> None:
        await s.make("one", queuing={"queues": 1, "handSize": 1, "queueLengthLimit": 9})
        running = s.begin("POST", CONFIG_MAPS, {"metadata": {"name": "a"}})
        waiting = [asyncio.ensure_future(s.begin("GET", PODS)) for _ in range(3)]
        await asyncio.sleep(0)
        assert s.seats == (1, 1, 3)
        waiting[0].cancel()
        await asyncio.gather(waiting[0], return_exceptions=True)
        assert s.seats == (1, 1, 2)
        assert (await running).status == 201
        assert [(await w).status for w in waiting[1:]] == [200, 200]
        await asyncio.sleep(0)
        assert s.seats == (0, 0, 0)

    served(work, tmp_path)


def test_a_disconnect_in_the_iteration_of_the_timeout(tmp_path):
    """It was taken for a running request, and returned seats that it never had."""

    async def work(s: Server) -> None:
        await s.make("one", queuing={"queues": 1, "handSize": 1, "queueLengthLimit": 9})
        running = s.begin("POST", CONFIG_MAPS, {"metadata": {"name": "a"}})
        leaving, other = (asyncio.ensure_future(s.begin("GET", PODS)) for _ in range(2))
        await asyncio.sleep(0)
        ticket = next(ticket for *_, waiting in s.control.levels["one"].dump() for ticket in waiting)
        leaving.cancel()
        controller._time_out(ticket)
        assert isinstance((await asyncio.gather(leaving, return_exceptions=True))[0], asyncio.CancelledError)
        assert s.seats == (1, 1, 1)
        assert (await running).status == 201 and (await other).status == 200
        await asyncio.sleep(0)
        assert s.seats == (0, 0, 0) and (await s.ask("GET", PODS)).status == 200

    served(work, tmp_path)


def test_a_watch_holds_its_seat_until_it_has_begun(tmp_path):
    async def work(s: Server) -> None:
        await s.make("one")
        assert (await s.ask("POST", CONFIG_MAPS, {"metadata": {"name": "a"}}, admin=True)).status == 201
        answer = await s.ask("GET", f"{CONFIG_MAPS}?watch=true")
        assert s.seats[:2] == (1, 1)
        assert (await s.ask("GET", PODS)).status == 429
        stream = Stream(answer)
        await stream.next()
        for _ in range(1000):
            if s.seats == (0, 0, 0):
                break
            await asyncio.sleep(0.01)
        assert s.seats == (0, 0, 0) and not stream.ended.done()
        assert (await s.ask("GET", PODS)).status == 200
        stream.ended.cancel()
        refused = await s.ask("GET", f"{CONFIG_MAPS}?watch=true&fieldSelector=x")
        assert refused.status == 400 and s.seats == (0, 0, 0)

    served(work, tmp_path)


def test_a_watch_that_is_not_read_returns_its_seat(tmp_path):
    async def work(s: Server) -> None:
        await s.make("one")
        answer = await s.ask("GET", f"{CONFIG_MAPS}?watch=true")
        assert s.seats[0] == 1 and answer.finish is not None
        answer.finish()
        assert s.seats == (0, 0, 0)

    served(work, tmp_path)


def test_a_large_answer_holds_its_seat_until_it_is_sent(tmp_path):
    """So a flood has no more answers to encrypt than it has seats."""

    async def work(s: Server) -> None:
        await s.make("one")
        data = {"a": "x" * (LARGE + 1)}
        assert (await s.ask("POST", CONFIG_MAPS, {"metadata": {"name": "a"}, "data": data}, admin=True)).status == 201
        answer = await s.ask("GET", f"{CONFIG_MAPS}/a")
        assert answer.status == 200 and s.seats[:2] == (1, 1)
        assert (await s.ask("GET", PODS)).status == 429
        answer.finish()
        assert s.seats == (0, 0, 0)
        answer.finish()  # once is enough
        small = await s.ask("GET", PODS)
        assert small.status == 200 and small.finish is None and s.seats == (0, 0, 0)

    served(work, tmp_path)


BUCKETS = {
    "demand_seats": "0.2 0.4 0.6 0.8 1 1.2 1.4 1.7 2 2.8 4 6 +Inf",
    "priority_level_request_utilization": "0 0.001 0.003 0.01 0.03 0.1 0.25 0.5 0.75 1 +Inf",
    "priority_level_seat_utilization": "0 0.1 0.2 0.3 0.4 0.5 0.6 0.7 0.8 0.9 0.95 0.99 1 +Inf",
    "read_vs_write_current_requests": "0 0.001 0.01 0.1 0.2 0.3 0.4 0.5 0.6 0.7 0.8 0.9 0.95 0.99 1 +Inf",
}


@pytest.mark.parametrize("name", BUCKETS)
def test_sampled_histograms_have_upstreams_buckets(name):
    registry = Registry()
    FlowMetrics(registry, None)
    registry.collectors.clear()  # nothing was counted yet
    metric = registry.metrics[f"apiserver_flowcontrol_{name}"]
    metric.observe(("x",) * len(metric.labels), 0.5)
    lines = [line for line in registry.expose().decode().splitlines() if line.startswith(f"{metric.name}_bucket")]
    assert " ".join(line.partition('le="')[2].partition('"')[0] for line in lines) == BUCKETS[name]


def test_dumps_show_running_and_waiting_requests(tmp_path):
    async def work(s: Server) -> None:
        async def dump(page: str) -> list[list[str]]:
            resp = await s.ask("GET", f"/debug/api_priority_and_fairness/dump_{page}", admin=True)
            assert resp.status == 200
            rows = [[cell.strip() for cell in line.split(",")] for line in resp.body.decode().splitlines()]
            assert len({len(row) for row in rows}) == 1
            return [row for row in rows if row[0] == "one"]

        await s.make("one", queuing={"queues": 1, "handSize": 1, "queueLengthLimit": 9})
        running = s.begin("POST", CONFIG_MAPS, {"metadata": {"name": "a"}})
        waiting = s.begin("GET", f"{PODS}/x")
        assert [row[1:6] for row in await dump("priority_levels")] == [["1", "false", "false", "1", "1"]]
        assert [row[1:5] for row in await dump("queues")] == [["0", "1", "1", "1"]]
        rows = await dump("requests?includeRequestDetails=1")
        assert [row[1:4] for row in rows] == [["one", "0", "-1"], ["one", "0", "0"]]
        assert rows[1][10:] == ["system:anonymous", "get", f"{PODS}/x", "default", "x", "v1", "pods", ""]
        assert (await running).status == 201 and (await waiting).status == 404
        await asyncio.sleep(0)
        assert [row[1:5] for row in await dump("queues")] == [["0", "0", "0", "0"]]  # also levels without requests
        assert (await dump("priority_levels"))[0][2] == "true"

    served(work, tmp_path)


def test_exempt_requests_are_never_refused(tmp_path):
    async def work(s: Server) -> None:
        writes = [s.begin("POST", CONFIG_MAPS, {"metadata": {"name": f"a{i}"}}, admin=True) for i in range(40)]
        assert {(await w).status for w in writes} == {201}
        assert {(await s.ask("GET", "/healthz")).status for _ in range(40)} == {200}

    served(work, tmp_path)


def test_the_cache_of_classified_requests_is_bounded(tmp_path):
    async def work(s: Server) -> None:
        assert s.control is not None
        room = s.control._flows_budget
        for i in range(12_000):
            await s.ask("GET", f"/made/up/{i}/{'x' * 200}")
            assert room.size <= room.budget
        kept = sum(len(flows) for _, flows in s.control._flows.values())
        await s.ask("GET", "/" + "x" * 5000)
        assert 0 < kept < 12_000 and sum(len(flows) for _, flows in s.control._flows.values()) == kept

    served(work, tmp_path)


def test_requests_of_one_user_and_schema_share_a_flow_object_until_a_resource_is_removed(tmp_path):
    """What is remembered of each verb, resource and namespace is a word of memory, so to say. It goes with any definition: left between
    what that one took, it would keep the memory from being given back."""
    async def work(s: Server) -> None:
        for path in (PODS, CONFIG_MAPS, "/api/v1/nodes", "/apis/apps/v1/deployments"):
            await s.ask("GET", path)
        (kept,) = (flows for _, flows in s.control._flows.values() if len(flows) > 3)
        assert len({id(flow) for flow in kept.values()}) == 1
        s.world.server._forget("example.com", "widgets")
        assert s.control._flows == {} and s.control._flows_budget.size == 0
        assert (await s.ask("GET", PODS)).status == 200

    served(work, tmp_path)


def test_it_can_be_switched_off(tmp_path):
    async def work(s: Server) -> None:
        assert s.control is None
        s.world.shared.memory.enter(False)
        refused = await s.ask("GET", PODS)
        assert refused.status == 429 and not [h for h in refused.headers if b"pf" in h[0]]
        assert refused.body == b"Too many requests, please try again later.\n"
        assert (await s.ask("GET", "/debug/api_priority_and_fairness/dump_queues", admin=True)).status == 404

    served(work, tmp_path, enable_priority_and_fairness=False, max_requests_inflight=1)


def test_a_server_without_seats_does_not_start(kas_server):
    with pytest.raises(RuntimeError, match="MaxRequestsInFlight=0 and MaxMutatingRequestsInFlight=0; they must add up"):
        kas_server("--max-requests-inflight=0", "--max-mutating-requests-inflight=0")
