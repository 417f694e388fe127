"""A filter, an authenticator and an authorizer that wait, in a whole server behind a real listener.

Checked from outside: the answer, what is stored, and that a seat among the requests in flight is free again.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from kas.auth.attributes import ALLOW
from kas.auth.authn.union import Authenticators
from kas.auth.authz.modes import Union
from kas.auth.user import MASTERS, UserInfo
from kas.edge.body import Disconnects
from kas.endpoints import respond, translate
from kas.filters.chain import handler_chain
from kas.filters.deadline import timed_out
from kas.filters.handler import Chain, Filter
from tests.filters.serving import answer, head, listening, until
from tests.server.whole import World

PARTS = ("filter", "authenticator", "authorizer")
BODY = b'{"metadata":{"name":"a"}}'
PATH = "/api/v1/namespaces/default/configmaps"
POST = ("POST", PATH, "Content-Type: application/json", f"Content-Length: {len(BODY)}")
JANE = UserInfo("jane", ("dev",))


class Waits:
    """A part of the server that makes every request wait until ``gate`` is open. ``now`` is how many wait, ``cancelled`` how many were
    cancelled while they did."""

    def __init__(self) -> None:
        self.gate, self.now, self.cancelled = asyncio.Event(), 0, 0

    async def blocked(self, value: Any) -> Any:
        self.now += 1
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.now -= 1
        return value

    def before(self, req: Any) -> Any:
        return self.blocked(None)

    def authenticate(self, get: Any, peer: Any = None) -> Any:
        return self.blocked(JANE)

    def authorize(self, a: Any) -> Any:
        return self.blocked((ALLOW, "", ""))


class Jane:
    def authenticate(self, get: Any, peer: Any = None) -> UserInfo:
        return JANE


class Allows:
    def authorize(self, a: Any) -> tuple[int, str, str]:
        return ALLOW, "", ""


class Waiting:
    """A server with one part that waits. A client without a credential is jane, who may do everything but is not in system:masters, so the
    limit of requests in flight applies to her."""

    def __init__(self, world: World, part: str) -> None:
        self.world, self.waits = world, Waits()
        s = world.server
        who = self.waits if part == "authenticator" else Jane()
        s.credentials.authenticators = Authenticators([s.credentials.bearer, who], anonymous=False)
        may = Union([self.waits if part == "authorizer" else Allows(), s.authorizer], (MASTERS,))
        filters = handler_chain("secure", s.options.raw, s.metrics, s.filter_parts._replace(authorizer=may))
        if part == "filter":
            filters.append(Filter("waits", self.waits.before))
        self.chain = Chain(filters, s.director, respond.status, translate, s.deadlines, lambda req: respond.status(req, timed_out()))

    def taken(self) -> tuple[int, int, int]:
        """Returns (reads in flight, writes in flight, requests that are served)."""
        control, memory = self.world.server.flow_control, self.world.shared.memory
        serving = len(self.world.server.waiting.serving)
        if control is None:
            return memory.in_flight(False), memory.in_flight(True), serving
        return control.gate.reading, control.gate.writing, serving

    def stored(self, name: str = "a") -> bool:
        return self.world.server.registries.get("", "configmaps", "default", name) is not None


@contextlib.asynccontextmanager
async def serving(part: str, tmp_path: Path, **flags: Any) -> AsyncIterator[tuple[Waiting, Callable[[], Any]]]:
    world = World(tmp_path, loop=asyncio.get_running_loop(), **flags)
    try:
        w = Waiting(world, part)
        async with listening(w.chain, tmp_path) as connect:
            yield w, connect
    finally:
        world.close()


@pytest.mark.parametrize("part", PARTS)
def test_a_write_that_waited_is_executed_afterwards(part, tmp_path):
    async def go() -> None:
        async with serving(part, tmp_path) as (w, connect):
            reader, writer = await connect()
            writer.write(head(*POST) + BODY)
            await until(lambda: w.waits.now == 1)
            # The user is known only after authentication, and a seat belongs to a user.
            assert w.taken() == (0, 0 if part == "authenticator" else 1, 1) and not w.stored()
            w.waits.gate.set()
            status, body = await answer(reader)
            assert status == 201 and json.loads(body)["metadata"]["name"] == "a" and w.stored()
            await until(lambda: w.taken() == (0, 0, 0))
            writer.close()

    asyncio.run(go())


@pytest.mark.parametrize("sent", ["with the head", "while it waits", "after the wait", "in halves"])
def test_a_body_arrives_whenever_it_is_sent(sent, tmp_path):
    """A waiting request is watched for a disconnect. Data that arrives meanwhile must reach the reader of the body."""

    async def go() -> None:
        async with serving("filter", tmp_path) as (w, connect):
            for i in range(4):
                w.waits.gate.clear()
                body = b'{"metadata":{"name":"b%d"}}' % i
                request_head = head("POST", PATH, "Content-Type: application/json", f"Content-Length: {len(body)}")
                halves = [len(body)] if sent == "with the head" else [0, 9 if sent == "in halves" else len(body), len(body)]
                reader, writer = await connect()
                writer.write(request_head + body[: halves[0]])
                await until(lambda: w.waits.now == 1)
                await asyncio.sleep(3 * Disconnects.LOOK_S)  # by then the connection is being watched
                if sent == "after the wait":
                    w.waits.gate.set()
                    await until(lambda: w.waits.now == 0)
                for begin, end in itertools.pairwise(halves):
                    writer.write(body[begin:end])
                    await asyncio.sleep(0.05)
                    w.waits.gate.set()
                w.waits.gate.set()
                status, _ = await answer(reader)
                assert status == 201 and w.stored(f"b{i}")
                writer.close()

    asyncio.run(go())


@pytest.mark.parametrize("part", PARTS)
def test_a_write_that_waits_too_long_is_504_and_nothing_is_stored(part, tmp_path):
    async def go() -> None:
        async with serving(part, tmp_path, request_timeout=0.05) as (w, connect):
            reader, writer = await connect()
            writer.write(head(*POST) + BODY)
            status, body = await answer(reader)
            assert status == 504 and json.loads(body)["reason"] == "Timeout"
            assert w.waits.cancelled == 1 and not w.stored()
            await until(lambda: w.taken() == (0, 0, 0))
            writer.close()

    asyncio.run(go())


@pytest.mark.parametrize(
    "request_head", [head("GET", PATH), head(*POST) + BODY, head("GET", PATH + "?watch=true")], ids=["list", "create", "watch"]
)
@pytest.mark.parametrize("part", PARTS)
def test_a_client_that_disconnects_leaves_nothing(part, request_head, tmp_path):
    async def go() -> None:
        async with serving(part, tmp_path) as (w, connect):
            _, writer = await connect()
            writer.write(request_head)
            await until(lambda: w.waits.now == 1)
            writer.close()
            await until(lambda: w.waits.cancelled == 1)
            await until(lambda: w.taken() == (0, 0, 0))
            assert not w.stored() and not w.world.server.watches.open

    asyncio.run(go())


@pytest.mark.parametrize("part", ["filter", "authorizer"])
def test_the_seat_of_a_disconnected_client_is_free_again(part, tmp_path):
    async def go() -> None:
        async with serving(part, tmp_path, enable_priority_and_fairness=False, max_mutating_requests_inflight=1) as (w, connect):
            _, leaves = await connect()
            leaves.write(head(*POST) + BODY)
            await until(lambda: w.waits.now == 1)
            reader, writer = await connect()
            writer.write(head(*POST) + BODY)
            status, _ = await answer(reader)
            assert status == 429 and w.waits.now == 1
            leaves.close()
            await until(lambda: w.taken() == (0, 0, 0))
            w.waits.gate.set()
            writer.write(head(*POST) + BODY)
            status, _ = await answer(reader)
            assert status == 201 and w.stored()
            writer.close()

    asyncio.run(go())


@pytest.mark.parametrize("part", PARTS)
def test_shutdown_waits_for_waiting_requests(part, tmp_path):
    async def go() -> None:
        async with serving(part, tmp_path) as (w, connect):
            reader, writer = await connect()
            writer.write(head(*POST) + BODY)
            await until(lambda: w.waits.now == 1)
            w.world.server.not_accepting = True
            ended = asyncio.ensure_future(w.world.server.waiting.wait(60))
            await asyncio.sleep(0)
            assert not ended.done()
            w.waits.gate.set()
            assert await ended is True
            assert (await answer(reader))[0] == 201
            writer.close()

    asyncio.run(go())
