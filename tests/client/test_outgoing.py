"""Connections that the server holds for clients: shared fairly, and released however they end."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path

import pytest
import uvloop

from kas.auth.user import UserInfo
from kas.client import outgoing
from kas.client.http import BackendError, Connection, Target, insecure_tls
from kas.client.outgoing import connect_for, hold
from kas.endpoints import proxy
from kas.meta.errors import ApiError
from kas.observe.process import outgoing_descriptors, spare_descriptors
from tests import ports
from tests.endpoints.fakekubelet import make_certificate
from tests.filters.requests import request

ROOM = 8


@pytest.fixture(autouse=True)
def shared() -> Iterator[None]:
    outgoing.share_out(ROOM)
    yield
    outgoing.share_out(None)


async def _silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while await reader.read(65536):
            pass
    writer.close()


def run(
    story: Callable[[Target], Coroutine[object, object, None]], tmp_path: Path | None = None,
    loop: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop,
) -> None:  # fmt: skip
    """Runs ``story(target)`` with a backend that reads and never answers, with TLS if there is a path for its certificate."""

    async def all_of_it() -> None:
        tls = None
        if tmp_path is not None:
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            tls.load_cert_chain(*make_certificate(tmp_path, "127.0.0.1"))
        server = await asyncio.start_server(_silent, "127.0.0.1", 0, ssl=tls)
        async with server, asyncio.timeout(60):
            port = str(server.sockets[0].getsockname()[1])
            await story(Target("https" if tls else "http", "127.0.0.1", port, tls=insecure_tls() if tls else None))

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(all_of_it())


async def taken(client: str, target: Target) -> list[Connection]:
    """Opens as many as a client gets."""
    found: list[Connection] = []
    with pytest.raises(ApiError) as refused:
        while len(found) < 2 * ROOM:
            found.append(await connect_for(client, target))
    assert refused.value.code == 429 and refused.value.headers == {"retry-after": "1"}
    return found


async def given_back(client: str, n: int) -> None:
    assert outgoing._shares is not None
    while outgoing._shares.running(client) != n:  # noqa: ASYNC110
        await asyncio.sleep(0.001)


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("sealed", [False, True])
def test_a_user_with_many_connections_leaves_some_to_others(tmp_path, sealed, loop):
    """One user with a pod that never answers had all descriptors of a worker: no new client was accepted, and no webhook could be called.
    """

    async def story(target: Target) -> None:
        mine = await taken("a", target)
        assert len(mine) == ROOM * 3 // 4
        others = [await connect_for("b", target), await connect_for("c", target)]
        for one in (*mine, *others):
            one.close()
        await given_back("a", 0)
        await given_back("b", 0)
        for one in await taken("a", target):
            one.close()
        await given_back("a", 0)

    run(story, tmp_path if sealed else None, loop)


def test_connections_are_released_however_they_end():
    """A connection that breaks, a peer that is missing, and a connection that stays open for later calls."""

    async def story(target: Target) -> None:
        mine = await taken("a", target)
        mine[0].writer.transport.abort()
        await given_back("a", len(mine) - 1)
        mine[1].let_go()
        await given_back("a", len(mine) - 2)
        hold("b", mine[1])
        await given_back("b", 1)
        mine[1].close()
        await given_back("b", 0)
        await given_back("a", len(mine) - 2)
        for one in mine:
            one.close()
        await given_back("a", 0)
        port = str(ports.reserve())
        for _ in range(2 * ROOM):
            with pytest.raises(BackendError):
                await connect_for("a", target._replace(port=port))
        await given_back("a", 0)

    run(story)


def test_a_connection_beyond_the_limit_is_closed():
    async def story(target: Target) -> None:
        mine = await taken("a", target)
        mine[0].let_go()
        again = await connect_for("a", target)
        with pytest.raises(ApiError):
            hold("a", mine[0])
        assert mine[0].writer.is_closing()
        for one in (*mine, again):
            one.close()
        await given_back("a", 0)

    run(story)


def test_proxies_count_by_user_and_service_accounts_by_namespace():
    def asked(user: str):
        req = request("GET", "/api/v1/namespaces/a/pods/p/proxy/")
        req.user = UserInfo(user, ())
        return req

    async def story(target: Target) -> None:
        accounts = [f"system:serviceaccount:a:s{i}" for i in range(2 * ROOM)]
        waiting = [asyncio.ensure_future(proxy.forward(asked(name), target, "/")) for name in accounts]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        assert outgoing._shares is not None
        while outgoing._shares.running("system:serviceaccount:a:") + sum(one.done() for one in waiting) < 2 * ROOM:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        refused = [one.exception() for one in waiting if one.done()]
        assert len(refused) == 2 * ROOM - ROOM * 3 // 4 and all(isinstance(e, ApiError) and e.code == 429 for e in refused)
        other = asyncio.ensure_future(proxy.forward(asked("system:serviceaccount:b:s"), target, "/"))
        await given_back("system:serviceaccount:b:", 1)
        for one in (*waiting, other):
            one.cancel()
        await given_back("system:serviceaccount:a:", 0)
        await given_back("system:serviceaccount:b:", 0)

    run(story)


@pytest.mark.parametrize(("limit", "room"), [(256, 32), (600, 86), (4096, 960)])
def test_reserved_connections_are_not_given_to_proxies(limit, room, monkeypatch):
    monkeypatch.setattr("resource.getrlimit", lambda _: (limit, limit))
    assert outgoing_descriptors() == room and spare_descriptors() + room + 32 <= limit
