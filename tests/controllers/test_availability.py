"""The condition Available of APIServices of other servers."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from kas.aggregator.apiservices import GROUP, APIServices, parse
from kas.controllers.availability import RemoteAPIServices
from kas.controllers.client import Client
from kas.testing.server import KasServer
from tests.aggregator.backend import Reply
from tests.aggregator.conftest import PATIENCE_S, SERVICES, authority, front, register  # noqa: F401 — fixtures
from tests.controllers import test_garbage_start as beside
from tests.controllers.stored import stored
from tests.controllers.waiting import until

SERVICE = "/api/v1/namespaces/default/services"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
MERGE = "application/merge-patch+json"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with KasServer(tmp_path_factory.mktemp("kas"), "--unsafe-no-fsync", "--controllers=none", workers=2) as running:
        yield running


def said(found, reason: str) -> dict:
    """Returns the condition once it has this reason."""

    def look() -> dict:
        condition = found.condition()
        return condition if condition.get("reason") == reason else {}

    return until(look, PATIENCE_S)


def test_missing_objects_are_named(register):  # noqa: F811
    found = register("missing")
    call, port = found.call, found.backend.port
    assert call("DELETE", f"{SERVICE}/missing")[0] == 200
    assert said(found, "ServiceNotFound")["message"] == 'service/missing in "default" is not present'
    assert found("GET", "/things") == (503, "service unavailable\n")
    body = {"metadata": {"name": "missing"}, "spec": {"ports": [{"name": "other", "port": 1}]}}
    assert call("POST", SERVICE, body)[0] == 201
    assert said(found, "ServicePortError")["message"] == f'service/missing in "default" is not listening on port {port}'
    ports = [{"name": "https", "port": port, "protocol": "TCP"}]
    assert call("PATCH", f"{SERVICE}/missing", {"spec": {"ports": ports}}, MERGE)[0] == 200
    assert said(found, "EndpointsNotFound")["message"] == 'cannot find endpointslices for service/missing in "default"'
    meta = {"name": "missing-1", "labels": {"kubernetes.io/service-name": "missing"}}
    endpoints = [{"addresses": ["10.1.2.3"], "conditions": {"ready": False}}]
    slice_ = {"metadata": meta, "addressType": "IPv4", "endpoints": endpoints, "ports": [{"name": "https", "port": 8443}]}
    assert call("POST", SLICES, slice_)[0] == 201
    want = 'endpointslices for service/missing in "default" have no addresses with port name "https"'
    assert said(found, "MissingEndpoints")["message"] == want
    since = found.condition()["lastTransitionTime"]
    assert call("DELETE", f"{SLICES}/missing-1")[0] == 200
    assert said(found, "EndpointsNotFound")["lastTransitionTime"] == since  # it was unavailable all the time


def test_the_condition_is_managed_by_the_server(register):  # noqa: F811
    found = register("owner")
    obj = found.call("GET", f"{SERVICES}/{found.name}")[1]
    assert obj["status"]["conditions"][0]["message"] == "all checks passed"
    fields = {(f["manager"], f.get("subresource", "")) for f in obj["metadata"]["managedFields"]}
    assert ("kube-apiserver", "status") in fields
    call = found.backend.seen(found.backend.base)[0]
    assert call.all("x-remote-user") == ["system:kube-aggregator"] and call.all("x-remote-group") == ["system:masters"]


def test_a_backend_that_stops_and_starts_again(register):  # noqa: F811
    found = register("flapping")
    url = f"https://localhost:{found.backend.port}{found.backend.base}"
    refused = f'failing or missing response from {url}: Get "{url}": dial tcp '
    for _ in range(2):
        found.backend.stop()
        found.call("PATCH", f"{SERVICE}/flapping", {"metadata": {"labels": {"touched": "yes"}}}, MERGE)
        condition = found.is_available(False)
        assert condition["reason"] == "FailedDiscoveryCheck"
        until(lambda: found.condition()["message"].startswith(refused), PATIENCE_S)  # a busy machine may take too long at first
        assert found("GET", "/things") == (503, "service unavailable\n")
        found.backend.start()
        found.is_available()  # nothing was changed: the server checks again by itself
        until(lambda: found("GET", "/things")[0] == 200, PATIENCE_S)
        found.call("PATCH", f"{SERVICE}/flapping", {"metadata": {"labels": {"touched": None}}}, MERGE)


def test_an_invalid_answer(register):  # noqa: F811
    found = register("refusing")
    found.backend.replies[found.backend.base] = Reply(403, b"")
    found.call("PATCH", f"{SERVICE}/refusing", {"metadata": {"labels": {"touched": "yes"}}}, MERGE)
    condition = said(found, "FailedDiscoveryCheck")
    url = f"https://localhost:{found.backend.port}{found.backend.base}"
    assert condition["message"] == f"failing or missing response from {url}: bad status from {url}: 403"

    def counted() -> bool:
        metrics = found.call.raw("GET", "/metrics").text
        gauge, counter = "aggregator_unavailable_apiservice", "aggregator_unavailable_apiservice_total"
        wanted = [f'{gauge}{{name="{found.name}"}} 1', f'{counter}{{name="{found.name}",reason="FailedDiscoveryCheck"}} ']
        return all(text in metrics for text in wanted)

    for _ in range(4):  # whichever worker is asked
        found.call.session.close()
        until(counted, PATIENCE_S)


def test_an_api_service_that_becomes_local_is_available(register):  # noqa: F811
    found = register("local")
    spec = {"service": None, "caBundle": None}
    assert found.call("PATCH", f"{SERVICES}/{found.name}", {"spec": spec}, MERGE)[0] == 200
    assert said(found, "Local")["message"] == "Local APIServices are always available"
    assert found("GET", "/things") == (404, "404 page not found\n")


def test_an_unknown_api_service_is_checked_again():
    """The controller may see a new APIService before the aggregator does; it is notified once, and would otherwise never set the
    condition."""
    stored: dict[str, Any] = {"v1.batch": {"spec": {"service": {"name": "a", "namespace": "b"}}}, "v1.apps": {"spec": {}}}
    controller: Any = RemoteAPIServices.__new__(RemoteAPIServices)
    controller.client = SimpleNamespace(get=lambda group, resource, namespace, name: stored.get(name))
    controller._aggregator = SimpleNamespace(services=SimpleNamespace(by_name={}), unavailable=SimpleNamespace(values={}))
    controller._failures = {}
    pauses = [asyncio.run(controller._sync("v1.batch")) for _ in range(3)]
    assert 0 < pauses[0] < pauses[1] < pauses[2]
    assert asyncio.run(controller._sync("v1.apps")) is asyncio.run(controller._sync("v1.gone")) is None
    del stored["v1.batch"]
    assert asyncio.run(controller._sync("v1.batch")) is None and not controller._failures


def test_a_listed_api_service_is_checked_though_unknown_to_the_aggregator(tmp_path):
    """The aggregator may see what was written before the controller started later; the controller's list has it, and no event will come."""

    async def probe(_: Any) -> str:
        return ""

    async def story() -> None:
        async with stored(tmp_path) as registries, asyncio.timeout(60):
            client, services, unavailable = Client(registries, "test"), APIServices(), SimpleNamespace(set=lambda *_: None)
            spec = {"group": "a.test", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1}
            spec |= {"service": {"namespace": "default", "name": "a", "port": 443}, "insecureSkipTLSVerify": True}
            found = {"kind": "APIService", "apiVersion": f"{GROUP}/v1", "metadata": {"name": "v1.a.test"}, "spec": spec}
            made = await client.create(GROUP, "apiservices", found)
            service = {"kind": "Service", "apiVersion": "v1", "metadata": {"name": "a", "namespace": "default"}}
            assert made and await client.create("", "services", {**service, "spec": {"type": "ExternalName", "externalName": "a"}})
            aggregator: Any = SimpleNamespace(services=services, active=False, unavailable=unavailable, proxy=SimpleNamespace(probe=probe))
            controller = RemoteAPIServices(registries, aggregator)

            def condition() -> dict[str, Any]:
                stands = (client.get(GROUP, "apiservices", "", "v1.a.test") or {}).get("status") or {}
                return next((c for c in stands.get("conditions") or () if c["type"] == "Available"), {})

            async with beside.running(controller):
                await beside.until(lambda: controller._failures)
                services.put("v1.a.test", parse(made))
                await beside.until(lambda: condition().get("status") == "True")

    asyncio.run(story())
