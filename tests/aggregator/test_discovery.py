"""Discovery of group versions that another server serves."""

from __future__ import annotations

import asyncio
import json
import random
import threading
from collections import Counter
from typing import Any

import pytest

from kas.aggregator import discovery
from kas.aggregator.apiservices import APIService, APIServices, ServiceReference, by_group
from kas.aggregator.discovery import Discovery, read_groups
from kas.meta.offload import LARGE
from tests.aggregator.backend import Reply
from tests.aggregator.conftest import PATIENCE_S, SERVICES
from tests.controllers.waiting import until

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


def shown(call, group: str) -> dict[str, Any]:
    """Returns the group's first version in aggregated discovery, {} if it is missing."""
    items = call("GET", "/apis", Accept=AGGREGATED)[1]["items"]
    return next((i["versions"][0] for i in items if i["metadata"]["name"] == group), {})


def everywhere(call, group: str, freshness: str) -> dict[str, Any]:
    """Returns the version once every worker shows it so; each asks the backend itself."""

    def look() -> dict[str, Any]:
        call.session.close()  # the next connection may go to another worker
        found = shown(call, group)
        return found if found.get("freshness") == freshness else {}

    return [until(look, PATIENCE_S) for _ in range(8)][-1]


def test_groups_are_sorted_by_priority_and_name_of_the_api_service():
    def made(version: str, group: str, minimum: int, priority: int) -> APIService:
        return APIService(f"{version}.{group}", group, version, minimum, priority)

    services = [
        made("v1", "b.test", 10, 1), made("v1beta1", "a.test", 10, 1), made("v2", "c.test", 20, 1), made("v1", "c.test", 5, 1),
        made("v1", "a.test", 1, 9), made("v10", "c.test", 5, 1),
    ]  # fmt: skip
    assert [[s.name for s in group] for group in by_group(services)] == [
        ["v10.c.test", "v2.c.test", "v1.c.test"], ["v1.b.test"], ["v1.a.test", "v1beta1.a.test"]
    ]  # fmt: skip


class Slow:
    """A connection to a backend that answers when ``gate`` is set. ``asked`` has the paths in order, ``most`` how many at a time."""

    def __init__(self) -> None:
        self.gate, self.asked, self.now, self.most = asyncio.Event(), list[str](), 0, 0

    async def ask(self, service: APIService, method: str, path: str, *_: Any) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
        self.asked.append(f"{service.name}{path}")
        self.now += 1
        self.most = max(self.most, self.now)
        await self.gate.wait()
        self.now -= 1
        said = [(b"content-type", AGGREGATED.encode())]
        return 200, said, b'{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[]}'


def remote(name: str, service: str) -> APIService:
    version, _, group = name.partition(".")
    return APIService(name, group, version, 10, 10, ServiceReference("ns", service, 443), available=True)


def test_each_service_is_asked_once_and_few_at_a_time():
    async def run() -> None:
        services, slow, changes = APIServices(), Slow(), list[int]()
        found = Discovery(services, slow, lambda: changes.append(1))  # type: ignore[arg-type]
        names = [f"v{n}.{group}.test" for group in "abc" for n in (1, 2)]
        for name in names:
            services.put(name, remote(name, name[3]))
        found.touch(names)
        idle = asyncio.ensure_future(found.idle())
        for _ in range(100):  # loop iterations: only the gate is waited for
            await asyncio.sleep(0)
        assert len(slow.asked) == slow.most == 2 and not idle.done()
        assert [v.freshness for v in found.versions()] == ["Stale"] * 6
        slow.gate.set()
        await asyncio.wait_for(idle, PATIENCE_S)
        assert len(slow.asked) == 3 and slow.most == 2
        assert [v.freshness for v in found.versions()] == ["Current"] * 6 and len(changes) == 3
        found.refresh()
        await found.idle()
        assert len(slow.asked) == 6 and len(changes) == 3, "nothing new was said"

    asyncio.run(run())


@pytest.mark.parametrize("legacy", [False, True])
def test_long_lists_of_backends_are_read_off_the_loop(monkeypatch, legacy):
    """9,000 resources, 3 MB of the allowed 4: up to 100 ms of the loop of each worker, each time a backend is asked."""
    read: list[tuple[int, int]] = []

    def counted(name: str) -> None:
        original = getattr(discovery, name)

        def reading(body: bytes) -> Any:
            read.append((len(body), threading.get_ident()))
            return original(body)

        monkeypatch.setattr(discovery, name, reading)

    class Long(Slow):
        async def ask(self, service, *args):
            listed = {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "items": []}
            what = {"kind": "APIResourceList", "apiVersion": "v1", "resources": [], "groupVersion": "g/v1"} if legacy else listed
            said = [(b"content-type", b"application/json" if legacy else AGGREGATED.encode())]
            return 200, said, json.dumps(what).encode() + b" " * (LARGE if service.name == "v1.long.test" else 0)

    counted("read_resources" if legacy else "read_groups")

    async def run() -> None:
        services = APIServices()
        found = Discovery(services, Long(), lambda: None)  # type: ignore[arg-type]
        for name in ("v1.long.test", "v1.short.test"):
            services.put(name, remote(name, name[3]))
        found.touch(["v1.long.test", "v1.short.test"])
        await found.idle()
        assert [v.freshness for v in found.versions()] == ["Current"] * 2

    asyncio.run(run())
    (short, here), (long, beside) = sorted(read)
    assert short < LARGE < long and here == threading.get_ident() != beside


class Unwalked(dict[Any, Any]):
    """A dict of thousands that may be looked up and not iterated over."""

    def __iter__(self) -> Any:
        raise AssertionError("gone through")

    keys = values = items = __iter__


def test_an_update_of_one_service_does_not_scan_the_others():
    """Neither asking its backend nor its events iterate over the others."""

    async def run() -> None:
        services, slow = APIServices(), Slow()
        found = Discovery(services, slow, lambda: None)  # type: ignore[arg-type]
        slow.gate.set()
        names = [f"v1.{group}.test" for group in "abcdef"]
        for name in names:
            services.put(name, remote(name, name[3]))
        found.touch(names)
        await found.idle()
        for index in ("by_name", "remote", "by_service", "by_place"):
            setattr(services, index, Unwalked(getattr(services, index)))
        found._responses, found._shown = Unwalked(found._responses), Unwalked(found._shown)
        services.put(names[0], remote(names[0], "other"))
        services.put(names[1], None)
        found.touch(names[:2])
        await found.idle()
        assert slow.asked[6:] == ["v1.a.test/apis"] and len(found._responses) == 5
        assert ("ns", "b") not in services.by_place and ServiceReference("ns", "other", 443) in found._responses

    asyncio.run(run())


def test_services_are_found_by_address():
    rng, services = random.Random(5), APIServices()
    for _ in range(300):
        name = f"v1.{rng.choice('abcd')}.test"
        own = remote(name, rng.choice("xy"))
        found = rng.choice([None, own, own._replace(insecure=True), own._replace(service=None)])
        services.put(name, found)
        there = services.remote
        assert there == {k: v for k, v in services.by_name.items() if v.service is not None}
        assert sorted(n for at in services.by_service.values() for n in at) == sorted(there)
        for name, s in there.items():
            assert services.by_service[s.service][name] is services.by_place[s.service[:2]][name] is s
        assert services.trusted == Counter((s.ca_bundle, s.insecure) for s in there.values())
    services.replace([])
    assert not services.by_service and not services.by_place and not services.trusted


def test_fields_missing_in_a_backends_resources_are_empty():
    resources = [
        {"resource": "a", "subresources": [{"subresource": "status"}]},
        {"resource": "b", "scope": "Cluster", "singularResource": "b", "verbs": ["get"], "responseKind": {"kind": "B"}},
    ]
    group = {"metadata": {"name": "odd.test"}, "versions": [{"version": "v1", "resources": resources}]}
    listed = {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "items": [group]}
    nothing = {"group": "", "version": "", "kind": ""}
    a, b = read_groups(json.dumps(listed).encode())["odd.test", "v1"]
    assert a == {
        "resource": "a", "responseKind": nothing, "scope": "", "singularResource": "", "verbs": None,
        "subresources": [{"subresource": "status", "responseKind": nothing, "verbs": None}],
    }  # fmt: skip
    assert b == {"resource": "b", "scope": "Cluster", "singularResource": "b", "verbs": ["get"], "responseKind": nothing | {"kind": "B"}}


def test_both_discoveries_have_the_group(register):
    found = register("both", groupPriorityMinimum=19999)
    call, group = found.call, found.backend.group
    version = {"groupVersion": f"{group}/v1", "version": "v1"}
    groups = call("GET", "/apis")[1]["groups"]
    assert [g["name"] for g in groups[:2]] == ["apiregistration.k8s.io", group]
    assert groups[1] == {"name": group, "versions": [version], "preferredVersion": version}
    assert call("GET", f"/apis/{group}")[1]["preferredVersion"] == version
    assert call("GET", f"/apis/{group}/v1")[1]["resources"][0]["name"] == "things"
    current = everywhere(call, group, "Current")
    assert current == {
        "version": "v1", "freshness": "Current",
        "resources": [{
            "resource": "things", "responseKind": {"group": group, "version": "v1", "kind": "Thing"}, "scope": "Namespaced",
            "singularResource": "thing", "verbs": ["get", "list"],
        }],
    }  # fmt: skip
    order = [i["metadata"]["name"] for i in call("GET", "/apis", Accept=AGGREGATED)[1]["items"]]
    assert order[:2] == ["apiregistration.k8s.io", group]
    call("DELETE", f"{SERVICES}/{found.name}")
    until(lambda: group not in json.dumps(call("GET", "/apis")[1]), PATIENCE_S)
    assert call("GET", f"/apis/{group}/v1") == (404, "404 page not found\n")


def test_the_tag_of_aggregated_discovery_changes_with_it(register):
    found = register("tag")
    everywhere(found.call, found.backend.group, "Current")
    one = found.call.raw("GET", "/apis", Accept=AGGREGATED).headers["ETag"]
    until(lambda: found.call.raw("GET", "/apis", Accept=AGGREGATED, If_None_Match=one).status_code == 304, PATIENCE_S)
    found.call("DELETE", f"{SERVICES}/{found.name}")
    until(lambda: found.call.raw("GET", "/apis", Accept=AGGREGATED, If_None_Match=one).status_code == 200, PATIENCE_S)


@pytest.mark.parametrize(
    ("name", "reply"),
    [
        ("unacceptable", Reply(406, b"")), ("missing", Reply(404, b"404 page not found")), ("refused", Reply(403, b"")),
        ("broken", Reply(500, b"")), ("groups", Reply(200, b'{"kind":"APIGroupList","apiVersion":"v1","groups":[]}')),
        ("unnamed", Reply(200, b'{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[]}')),
    ],
)  # fmt: skip
def test_a_backend_without_aggregated_discovery_is_asked_for_its_list(register, name, reply):
    found = register(f"legacy-{name}", available=False)
    found.backend.replies["/apis"] = reply
    found.is_available()
    current = everywhere(found.call, found.backend.group, "Current")
    assert [(r["resource"], [s["subresource"] for s in r["subresources"]]) for r in current["resources"]] == [("things", ["status"])]


@pytest.mark.parametrize(
    ("name", "status", "body"),
    [
        ("garbage", 200, b"{{{"), ("other-kind", 200, b'{"kind":"Status","apiVersion":"v1"}'), ("error", 503, b""),
        ("huge", 200, b"[" + b" " * (5 << 20) + b"]"),
        ("shape", 200, b'{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":7}'),
    ],
)  # fmt: skip
def test_an_unreadable_answer_is_stale(register, name, status, body):
    found = register(f"stale-{name}", available=False)
    found.backend.replies["/apis"] = Reply(status, body, [("Content-Type", AGGREGATED)])
    found.is_available()
    until(lambda: len(found.backend.seen("/apis")) >= 2, PATIENCE_S)  # both workers have asked
    assert everywhere(found.call, found.backend.group, "Stale") == {"version": "v1", "freshness": "Stale"}
    assert found.call("GET", f"/apis/{found.backend.group}")[0] == 200
    assert found("GET", "/things")[0] == 200
    assert "panic" not in found.call.server.output


def test_a_missing_backend_is_stale_and_all_others_are_there(register):
    found = register("gone")
    everywhere(found.call, found.backend.group, "Current")
    found.backend.stop()
    found.call("PATCH", f"{SERVICES}/{found.name}", {"spec": {"versionPriority": 16}}, "application/merge-patch+json")
    found.is_available(False)
    assert everywhere(found.call, found.backend.group, "Stale") == {"version": "v1", "freshness": "Stale"}
    assert shown(found.call, "apps")["freshness"] == "Current"
    assert found.call("GET", f"/apis/{found.backend.group}/v1") == (503, "service unavailable\n")
    assert found.call("GET", f"/apis/{found.backend.group}")[0] == 200


def test_a_local_version_that_is_not_served_is_listed_and_not_found(call):
    name = "v1.nobody.test"
    spec = {"group": "nobody.test", "version": "v1", "groupPriorityMinimum": 10, "versionPriority": 10}
    assert call("POST", SERVICES, {"metadata": {"name": name}, "spec": spec})[0] == 201
    assert call("GET", "/apis/nobody.test")[1]["name"] == "nobody.test"
    assert call("GET", "/apis/nobody.test/v1") == (404, "404 page not found\n")
    assert call("GET", "/apis/nobody.test/v1/things") == (404, "404 page not found\n")
    assert shown(call, "nobody.test") == {}
    call("DELETE", f"{SERVICES}/{name}")
    assert call("GET", "/apis/nobody.test")[0] == 404
