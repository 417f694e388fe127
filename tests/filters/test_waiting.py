"""Filters, authenticators and authorizers that wait, in the whole chain behind a real listener."""

from __future__ import annotations

import asyncio

import pytest

from kas.auth.authn import AuthenticationError
from kas.meta.errors import too_many_requests
from tests.filters.serving import Harness, answer, head, listening, until

PARTS = ("filter", "authenticator", "authorizer")
BODY = b'{"a":1}'
POST = ("POST", "/api/v1/namespaces/a/configmaps", f"Content-Length: {len(BODY)}")


@pytest.mark.parametrize("part", PARTS)
def test_the_rest_of_the_chain_runs_after_the_wait(part, tmp_path):
    async def go():
        h = Harness(part)
        async with listening(h.chain, tmp_path) as connect:
            reader, writer = await connect()
            writer.write(head(*POST) + BODY)
            await h.began.wait()
            assert h.seen == [] and len(h.waiting.serving) == 1
            h.gate.set()
            assert await answer(reader) == (200, b"done")
            assert h.seen == [BODY] and h.nothing_held()
            writer.write(head())
            assert await answer(reader) == (200, b"done")
            writer.close()

    asyncio.run(go())


@pytest.mark.parametrize("path", ["/api/v1/namespaces/a/configmaps/b", "/api/v1/pods?watch=true"])
@pytest.mark.parametrize("part", PARTS)
def test_a_too_long_wait_is_504_and_releases_everything(part, path, tmp_path):
    """Also of a long-running request: only its endpoint is exempt."""

    async def go():
        h = Harness(part, request_timeout_s=0.05)
        async with listening(h.chain, tmp_path) as connect:
            reader, writer = await connect()
            writer.write(head("GET", path))
            status, _ = await answer(reader)
            assert (status, h.cancelled, h.seen) == (504, 1, []) and h.nothing_held()
            writer.close()

    asyncio.run(go())


@pytest.mark.parametrize("request_head", [head(), head(*POST) + BODY, head("GET", "/api/v1/pods?watch=true")], ids=["get", "post", "watch"])
@pytest.mark.parametrize("part", PARTS)
def test_a_disconnect_ends_the_wait(part, request_head, tmp_path):
    async def go():
        h = Harness(part)
        async with listening(h.chain, tmp_path) as connect:
            _, writer = await connect()
            writer.write(request_head)
            await h.began.wait()
            if part != "authenticator" and b"watch" not in request_head:
                assert h.in_flight.now == 1
            writer.close()
            await until(lambda: h.cancelled == 1)
            await until(h.nothing_held)
            assert h.seen == []

    asyncio.run(go())


@pytest.mark.parametrize("part", PARTS)
def test_an_error_during_the_wait_releases_everything(part, tmp_path):
    async def go():
        h = Harness(part)
        h.gate.set()
        async with listening(h.chain, tmp_path) as connect:
            reader, writer = await connect()
            for error, status in ((too_many_requests("later", 1), 429), (KeyError("bug"), 500)):
                h.fails = error
                writer.write(head())
                assert (await answer(reader))[0] == status
                assert h.nothing_held() and h.seen == []
            if part == "authenticator":
                h.fails = AuthenticationError("no")
                writer.write(head())
                assert (await answer(reader))[0] == 401 and h.nothing_held()
            writer.close()

    asyncio.run(go())


def test_without_waiting_there_is_no_task():
    """``begin`` returns nothing to run."""
    from kas.edge.asgi import TAKEN, App

    sent = []
    taken = type(TAKEN, (), {})()

    def send(message):
        sent.append(message)
        return taken

    async def receive():
        raise AssertionError("nobody asked for the body")

    scope = {
        "type": "http", "method": "GET", "path": "/api/v1/namespaces/a/configmaps/b", "raw_path": b"/api/v1/namespaces/a/configmaps/b",
        "query_string": b"", "headers": [], "client": ("::1", 1), "scheme": "https", "http_version": "2",
    }  # fmt: skip

    async def build() -> Harness:
        return Harness()

    h = asyncio.run(build())
    assert App(h.chain).begin(scope, receive, send) is None and sent[0]["status"] == 200
