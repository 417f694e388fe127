"""Connections that stay open."""

from __future__ import annotations

import asyncio
from itertools import count
from types import SimpleNamespace

import pytest

from kas.client import pool as pools
from kas.client.exchange import exchange
from kas.client.http import BackendError, Target, request_head
from kas.client.pool import IDLE_S, LARGE, MAX_IDLE, Pool
from kas.meta.waiting import Throttle

KEPT = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Type: text/x\r\nRetry-After: 7\r\n\r\nok"


class Backend:
    """Answers each request with the next of ``answers``, and repeats the last one."""

    def __init__(self, *answers: bytes) -> None:
        self.answers, self.connections, self.requests = list(answers), 0, 0
        self.open: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open.append(writer)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length"))
                await reader.readexactly(length)
                self.requests += 1
                writer.write(self.answers.pop(0) if len(self.answers) > 1 else self.answers[0])
                await writer.drain()
        except (asyncio.IncompleteReadError, OSError):
            writer.close()


def post(pool, target, body, limit):
    return pool.post(target, request_head("POST", target, []), body, limit)


async def until(true):
    """Waits for something that the other end does."""
    async with asyncio.timeout(60):
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


def play(story, *answers, pool=None):
    """Runs ``story(backend, pool, target)`` with a backend with these answers."""

    async def run():
        backend = Backend(*answers)
        server = await asyncio.start_server(backend.serve, "127.0.0.1", 0)
        mine = pool or Pool()
        try:
            return await story(backend, mine, Target("http", "127.0.0.1", str(server.sockets[0].getsockname()[1]), "/x"))
        finally:
            mine.close()
            for writer in backend.open:
                writer.close()
            server.close()
            await server.wait_closed()

    return asyncio.run(run())


def test_one_connection_for_many_requests():
    async def story(backend, pool, target):
        for _ in range(5):
            answer = await post(pool, target, b"body", 10)
            assert answer == (200, "text/x", "7", b"ok", "")
        assert backend.connections == 1

    play(story, KEPT)


def test_concurrent_requests_have_their_own_connections_and_some_are_kept():
    async def story(backend, pool, target):
        await asyncio.gather(*(post(pool, target, b"", 10) for _ in range(MAX_IDLE + 5)))
        assert 1 < backend.connections <= MAX_IDLE + 5
        assert len(pool._idle) <= MAX_IDLE

    play(story, KEPT)


@pytest.mark.parametrize("answer", [
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok", b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
])  # fmt: skip
def test_a_connection_that_closes_is_not_reused(answer):
    async def story(backend, pool, target):
        for _ in range(2):
            assert (await post(pool, target, b"", 10)).body == b"ok"
        assert backend.connections == 2

    play(story, answer)


def test_a_too_long_answer_is_cut_off_and_its_connection_closed():
    async def story(backend, pool, target):
        assert len((await post(pool, target, b"", 10)).body) == 11
        assert not pool._idle

    play(story, b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + b"x" * 1000)


def test_chunks_keep_the_connection():
    async def story(backend, pool, target):
        for _ in range(2):
            assert (await post(pool, target, b"", 10)).body == b"ok"
        assert backend.connections == 1

    play(story, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n")


def test_a_connection_closed_by_the_peer_is_not_used():
    async def story(backend, pool, target):
        await post(pool, target, b"", 10)
        (_, connection), = pool._idle
        backend.open[0].close()
        await until(lambda: not connection.quiet)
        assert (await post(pool, target, b"", 10)).body == b"ok"
        assert backend.connections == 2

    play(story, KEPT)


def test_unrequested_data_are_no_answer_to_the_next_request():
    async def story(backend, pool, target):
        assert (await post(pool, target, b"", 10)).body == b"ok"
        for _, connection in pool._idle:
            await until(lambda connection=connection: not connection.quiet)
        assert (await post(pool, target, b"", 10)).body == b"ok"
        assert backend.connections == 2

    play(story, KEPT + b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nbad", KEPT)


def test_idle_connections_are_closed_after_a_while():
    now = 0.0
    pool = Pool(clock=lambda: now)

    async def story(backend, pool, target):
        nonlocal now
        await post(pool, target, b"", 10)
        now = IDLE_S / 2
        pool._sweep()
        assert len(pool._idle) == 1
        now = IDLE_S
        pool._sweep()
        assert not pool._idle and pool._timer is None

    play(story, KEPT, pool=pool)


def test_a_closed_pool_keeps_nothing():
    async def story(backend, pool, target):
        pool.close()
        await post(pool, target, b"", 10)
        assert not pool._idle

    play(story, KEPT)


def test_a_cancelled_request_closes_its_connection():
    async def story(backend, pool, target):
        task = asyncio.create_task(post(pool, target, b"", 10))
        await until(lambda: backend.requests)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not pool._idle

    play(story, b"")


def test_another_dial_address():
    async def story(backend, pool, target):
        port = int(target.port)

        async def dial():
            return "127.0.0.1", port

        mine = Pool(dial)
        assert (await post(mine, target._replace(host="name.of.a.service", port="443"), b"", 10)).body == b"ok"
        mine.close()

        async def fail():
            raise BackendError("nowhere")

        with pytest.raises(BackendError, match="nowhere"):
            await post(Pool(fail), target, b"", 10)

    play(story, KEPT)


@pytest.fixture
def one_a_turn(monkeypatch):
    """Each request takes up its whole loop iteration; returns the iterations in which requests were sent."""
    now, turns = count(), []
    monkeypatch.setattr(pools, "sending", SimpleNamespace(throttle=Throttle(lambda: next(now))))

    class Noted:
        def __init__(self, connection) -> None:
            self._connection = connection

        def __getattr__(self, name):
            return getattr(self._connection, name)

        def post(self, *args):
            turns.append(asyncio.get_running_loop().turn)
            return self._connection.post(*args)

    async def noted(*args, **more):
        return Noted(await exchange(*args, **more))

    monkeypatch.setattr(pools, "exchange", noted)
    return turns


class Ways(Pool):
    """A dialer whose connections are ``ways`` while there are some."""

    ways = ()

    def take(self):
        return self.ways.pop() if self.ways else None


def counts_turns():
    """The running loop has the number of its iteration in ``turn``."""
    loop = asyncio.get_running_loop()

    def turn():
        loop.turn += 1
        loop.call_soon(turn)

    loop.turn = 0
    turn()


@pytest.mark.parametrize("kept", [False, True])
def test_large_requests_begin_in_loop_iterations_of_their_own(one_a_turn, kept):
    """Audit events of 256 MiB are sent in parts of 4 MiB: one after another in the same iteration held the loop for 0.2 s."""

    async def story(backend, pool, target):
        counts_turns()
        if kept:
            pool.ways = [await pools.exchange(target) for _ in range(5)]
        await asyncio.gather(*(post(pool, target, bytes(LARGE), 1) for _ in range(5)))
        assert len(set(one_a_turn)) == 5

    play(story, KEPT, pool=Ways())
