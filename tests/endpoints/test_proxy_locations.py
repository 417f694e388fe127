"""Where a proxy to a service finds its pod."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kas.endpoints import proxy_locations
from kas.endpoints.proxy_locations import Locations
from kas.meta.errors import ApiError
from kas.meta.stored import object_of
from tests.growth.serving import InProcess, Sent

NS = "/api/v1/namespaces/default"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[InProcess]:
    one = InProcess(tmp_path)
    asyncio.set_event_loop(one.loop)
    made(one, f"{NS}/serviceaccounts", {"metadata": {"name": "default"}})
    made(one, f"{NS}/services", {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}})
    yield one
    asyncio.set_event_loop(None)
    one.close()


def made(server: InProcess, path: str, obj: dict[str, Any]) -> None:
    status, answer = server.ask(Sent("POST", path, obj))
    assert status == 201, answer


def slice_(name: str, of: str, *addresses: str) -> dict[str, Any]:
    ends = [{"addresses": [a], "targetRef": {"kind": "Pod", "namespace": "default", "name": f"p-{a}"}} for a in addresses]
    labels = {"kubernetes.io/service-name": of}
    return {"metadata": {"name": name, "labels": labels}, "addressType": "IPv4", "endpoints": ends, "ports": [{"port": 8080}]}


def located(server: InProcess) -> str:
    access: Any = SimpleNamespace(via=None)
    found = server.loop.run_until_complete(Locations(server.server.registries, access).service("default", "s"))
    return f"{found.host}:{found.port}"


def test_slices_of_other_services_are_not_read(server: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each request to a service read all that there were in its namespace."""
    for i in range(5):
        made(server, SLICES, slice_(f"other{i}", "other", f"10.1.0.{i + 1}"))
    made(server, SLICES, slice_("own", "s", "10.1.1.1"))
    made(server, f"{NS}/pods", {"metadata": {"name": "p-10.1.1.1"}, "spec": {"containers": [{"name": "c", "image": "x"}]}})
    status = {"status": {"podIP": "10.1.1.1", "podIPs": [{"ip": "10.1.1.1"}]}}
    assert server.ask(Sent("PATCH", f"{NS}/pods/p-10.1.1.1/status", status, "application/merge-patch+json"))[0] == 200
    read: list[str] = []
    monkeypatch.setattr(proxy_locations, "object_of", lambda rec: read.append(rec.key.rpartition("/")[2]) or object_of(rec))
    assert located(server) == "10.1.1.1:8080"
    assert read == ["own"]


def test_others_have_their_turn_while_a_pod_is_looked_for(server: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service may have thousands of addresses that are no pod's."""
    paused: list[int] = []

    class Over:
        over = True

        async def pause(self) -> None:
            paused.append(1)

    monkeypatch.setattr(proxy_locations, "Stint", Over)
    made(server, SLICES, slice_("own", "s", *(f"10.1.1.{i + 1}" for i in range(20))))
    with pytest.raises(ApiError, match="no endpoints available"):
        located(server)
    assert len(paused) == 20
