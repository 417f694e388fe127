"""Flags whose value is handed on to a part that has tests of its own: it arrives there."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from kas.client.services import ResolveError
from kas.request.http import Request
from tests.server.whole import World


@pytest.fixture
def world(tmp_path) -> Iterator[Any]:
    """``world(**flags)`` is a whole server in this process."""
    made: list[World] = []

    def make(**flags: Any) -> World:
        made.append(World(tmp_path / str(len(made)), **flags))
        return made[-1]

    yield make
    for w in made:
        w.close()


def test_health_and_readiness_have_limits_of_their_own(world):
    w, limits = world(etcd_healthcheck_timeout=1.5, etcd_readycheck_timeout=0.5), []
    w.server.checks._remote = lambda limit_s: limits.append(limit_s) or ""
    for path in ("/healthz/etcd", "/livez/etcd", "/readyz/etcd"):
        assert w.ask(path)[0] == 200
    assert limits == [1.5, 1.5, 0.5]


@pytest.mark.parametrize(("routing", "says"), [(False, ""), (True, 'no endpoints available for service "svc"')])
def test_aggregated_servers_are_reached_at_endpoints(routing, says, tmp_path):
    async def go() -> None:
        w = World(tmp_path, loop=asyncio.get_running_loop(), enable_aggregator_routing=routing)
        body = json.dumps({"metadata": {"name": "svc"}, "spec": {"ports": [{"port": 443}]}}).encode()
        headers = [(b"authorization", f"Bearer {w.token}".encode()), (b"content-type", b"application/json")]
        made = await w.server.chain(Request("POST", "/api/v1/namespaces/default/services", "", headers, body))
        assert made.status == 201
        try:
            address = w.server.services.resolve("default", "svc", 443)
            assert not says and address == (json.loads(made.body)["spec"]["clusterIP"], 443)
        except ResolveError as e:
            assert str(e) == says
        w.close()

    asyncio.run(go())


def test_a_pods_token_lives_longer_only_where_that_is_wanted(world):
    assert world(service_account_extend_token_expiration=False).server._issuer().extend_expiration is False
    assert world().server._issuer().extend_expiration is True


def test_audiences_are_the_issuers_unless_named(world):
    assert world(api_audiences=["a", "b"]).server._issuer().audiences == ["a", "b"]
    assert world(service_account_issuer=["https://i"]).server._issuer().audiences == ["https://i"]


def test_a_watch_that_names_no_time_ends(kas_server, connect):
    client = connect(kas_server("--min-request-timeout=1", "--controllers=none"))
    url = f"{client.server.url}/api/v1/namespaces/default/configmaps?watch=1&resourceVersion=0"
    with client.session.get(url, stream=True, timeout=60) as r:
        assert r.status_code == 200 and [*r.iter_lines()] == []
