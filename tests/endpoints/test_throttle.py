"""--max-connection-bytes-per-sec."""

from __future__ import annotations

import asyncio

import pytest

from kas.endpoints.throttle import throttled
from kas.request.websocket import CLOSE_NORMAL
from tests.endpoints.fakekubelet import FakeKubelet, make_certificate
from tests.endpoints.test_subresources_streams import V5, handshake, make_pod


class Client:
    def __init__(self, messages: list[bytes]) -> None:
        self.messages, self.sent = messages, []

    async def receive(self) -> bytes | None:
        return self.messages.pop(0) if self.messages else None

    async def send(self, message: bytes) -> None:
        self.sent.append(message)


def test_each_direction_is_throttled(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    async def echo(client) -> int:
        while (message := await client.receive()) is not None:
            await client.send(message)
        return CLOSE_NORMAL

    monkeypatch.setattr("kas.endpoints.throttle.asyncio.sleep", sleep)
    client = Client([b"x" * 1000] * 3)
    assert asyncio.run(throttled(echo, 100)(client)) == CLOSE_NORMAL
    assert len(client.sent) == 3
    # The first passes at once, the others when those before have had 10 s each; time does not really pass.
    assert [round(s) for s in waited] == [10, 10, 20, 20]


def test_streams_are_throttled_by_the_flag(kas_server, connect, tmp_path) -> None:
    client = connect(kas_server("--max-connection-bytes-per-sec=500"))
    with FakeKubelet(certificate=make_certificate(tmp_path, "127.0.0.1")) as k:
        client("POST", "/api/v1/nodes", {"metadata": {"name": "n"}})
        status = {
            "addresses": [{"type": "InternalIP", "address": k.host}], "daemonEndpoints": {"kubeletEndpoint": {"Port": k.port}},
            "declaredFeatures": ["ExtendWebSocketsToKubelet"],
        }  # fmt: skip
        client("PATCH", "/api/v1/nodes/n/status", {"status": status}, "application/merge-patch+json")
        client("POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}})
        make_pod(client, "default", "p", "n")
        _, ws, loop = handshake(client, "/api/v1/namespaces/default/pods/p/exec", "command=cat&stdin=true&stdout=true", [V5])
        loop.run_until_complete(ws.send(b"\x00hello"))
        assert loop.run_until_complete(ws.receive()) == b"\x01HELLO"
        started = loop.time()
        for _ in range(4):
            loop.run_until_complete(ws.send(b"\x00" + b"a" * 99))
            assert len(loop.run_until_complete(ws.receive())) == 100
        assert loop.time() - started >= 3 * 100 / 500, "no sooner than the bound allows"
        loop.run_until_complete(ws.close())
