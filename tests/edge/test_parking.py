"""Parked reads: those that continue soon are answered without a task, others get one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from kas.edge.largeresponses import LARGE_BYTES
from kas.filters.consistent_read import consistent_read
from kas.meta.errors import not_found, timeout
from kas.request.http import Request, Response
from kas.request.parking import Parked
from tests.filters.serving import Harness, answer, head, listening, until


class World(Harness):
    """A replica that becomes fresh when a test says so. ``fails`` is what the endpoint raises, ``size`` an answer's size."""

    revision = 7

    def __init__(self, **options: Any) -> None:
        super().__init__(last=consistent_read(lambda info: self), **options)
        self.parked, self.joined, self.size = list[Parked](), list[asyncio.Future[None]](), 4

    def fresh(self) -> Awaitable[None]:
        self.joined.append(asyncio.get_running_loop().create_future())
        return self.joined[-1]

    def park(self, parked: Parked) -> None:
        self.parked.append(parked)

    def endpoint(self, req: Request) -> Response:
        if self.fails is not None:
            raise self.fails
        return Response(200, [], b"x" * self.size)


def served(tmp_path: Path, world: World, check: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        async with listening(world.chain, tmp_path) as connect:
            reader, writer = await connect()
            try:
                await check(reader, writer)
            finally:
                writer.close()
            await until(world.nothing_held)

    asyncio.run(run())


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_read_that_continues_soon_has_no_task(tmp_path: Path, method: str) -> None:
    world = World()

    async def check(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(2):  # the connection still works
            writer.write(head(method))
            await until(lambda: len(world.parked) == 1)
            await asyncio.sleep(0)
            assert world.in_flight.now == 1 and len(asyncio.all_tasks()) == 1
            world.parked.pop().go_on()
            assert world.nothing_held() and len(asyncio.all_tasks()) == 1
            if method == "HEAD":
                assert b"content-length: 4" in await reader.readuntil(b"\r\n\r\n")
            else:
                assert await answer(reader) == (200, b"xxxx")

    served(tmp_path, world, check)


@pytest.mark.parametrize("size", [LARGE_BYTES + 1, 3 * LARGE_BYTES])
def test_a_large_answer_is_sent_as_fast_as_its_client_reads(tmp_path: Path, size: int) -> None:
    world = World()
    world.size = size

    async def check(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(head())
        await until(lambda: bool(world.parked))
        world.parked.pop().go_on()
        assert await answer(reader) == (200, b"x" * size)

    served(tmp_path, world, check)


def test_refusals_and_bugs_are_answered(tmp_path: Path) -> None:
    world = World()

    async def check(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for world.fails, status in ((not_found("", "configmaps", "b"), 404), (KeyError("x"), 500)):
            writer.write(head())
            await until(lambda: bool(world.parked))
            world.parked.pop().go_on()
            assert (await answer(reader))[0] == status

    served(tmp_path, world, check)


def test_long_waits_and_failures_get_a_task(tmp_path: Path) -> None:
    world = World()

    async def check(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for error, status in ((None, 200), (timeout("no", 0), 504)):
            writer.write(head())
            await until(lambda: bool(world.parked))
            world.parked.pop().wait(world.fresh())
            passed = world.joined.pop()
            if error is None:
                passed.set_result(None)
            else:
                passed.set_exception(error)
            assert (await answer(reader))[0] == status

    served(tmp_path, world, check)


def test_a_disconnect_during_a_long_wait_releases_everything(tmp_path: Path) -> None:
    world = World()

    async def check(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(head())
        await until(lambda: bool(world.parked))
        world.parked.pop().wait(world.fresh())
        writer.close()
        await until(world.nothing_held)
        assert world.joined[0].cancelled()

    served(tmp_path, world, check)


def test_a_disconnect_before_continuing_releases_everything(tmp_path: Path) -> None:
    world = World()

    async def check(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(head())
        await until(lambda: bool(world.parked))
        writer.close()
        await writer.wait_closed()
        world.parked.pop().go_on()
        assert world.nothing_held()

    served(tmp_path, world, check)


def test_requests_with_a_near_deadline_or_a_body_are_not_parked(tmp_path: Path) -> None:
    near, path = World(request_timeout_s=0.01), "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"

    async def late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(head())
        assert (await answer(reader))[0] == 504 and not near.parked

    served(tmp_path, near, late)
    world = World()

    async def review(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(head("POST", path, "Content-Length: 2") + b"{}")
        await until(lambda: bool(world.joined))
        world.joined.pop().set_result(None)
        assert (await answer(reader))[0] == 200 and not world.parked

    (tmp_path / "s").unlink(missing_ok=True)
    served(tmp_path, world, review)
