"""The ResourceQuota plug-in alone."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from kas.admission.configuration import Section
from kas.admission.plugins import resource_quota
from kas.meta.errors import ApiError
from kas.store import Conflict
from tests.admission.admission_fakes import FakeServer, Request, pod, refused


def section(api_version: str, kind: str, **fields: Any) -> Section:
    return Section("x", embedded={"apiVersion": api_version, "kind": kind, **fields})


def limited(server: FakeServer, *rules: dict[str, Any]) -> resource_quota.Plugin:
    server.store.commit_many = _commit
    return server.plugin(resource_quota, section("apiserver.config.k8s.io/v1", "ResourceQuotaConfiguration", limitedResources=list(rules)))


async def _commit(ops: Any) -> Any:
    return SimpleNamespace()


def quota(server: FakeServer, name: str, hard: dict[str, str], **spec: Any) -> None:
    status = {"hard": hard, "used": dict.fromkeys(hard, "0")}
    server.add("", "resourcequotas", {"metadata": {"name": name, "namespace": "ns1"}, "spec": {"hard": hard, **spec}, "status": status})


def claim(storage_class: str = "gold") -> dict[str, Any]:
    spec = {"storageClassName": storage_class, "resources": {"requests": {"storage": "1Gi"}}}
    return {"metadata": {"name": "c", "namespace": "ns1", "uid": "u"}, "spec": spec}


def test_a_limited_resource_needs_a_quota(server):
    part = ".storageclass.storage.k8s.io/requests.storage"
    plugin = limited(server, {"resource": "persistentvolumeclaims", "matchContains": [part]})
    request = Request(plugin, resource="persistentvolumeclaims", kind="PersistentVolumeClaim", obj=claim())
    assert refused(request).message == f'persistentvolumeclaims "c" is forbidden: insufficient quota to consume: gold{part}'
    quota(server, "other", {f"silver{part}": "5Gi"})
    refused(request)
    Request(plugin, obj=pod()).run()
    quota(server, "right", {f"gold{part}": "5Gi"})
    request.run()
    Request(plugin, resource="persistentvolumeclaims", operation="UPDATE", obj=claim("silver"), old=claim("silver")).run()


def test_custom_resources_named_namespaces_are_counted(server):
    plugin = limited(server, {"apiGroup": "x.io", "resource": "namespaces", "matchContains": ["count/"]})
    request = Request(plugin, group="x.io", resource="namespaces", obj={"metadata": {"name": "x"}})
    assert "insufficient quota to consume: count/namespaces.x.io" in refused(request).message
    Request(plugin, resource="namespaces", obj={"metadata": {"name": "ns1"}}).run()


def test_limited_resources_have_one_group(server):
    plugin = limited(server, {"apiGroup": "apps", "resource": "deployments", "matchContains": ["count/"]})
    assert "insufficient quota to consume: count/deployments.apps" in refused(
        Request(plugin, group="apps", resource="deployments", obj={"metadata": {"name": "d"}})
    ).message  # fmt: skip
    Request(plugin, resource="services", kind="Service", obj={"metadata": {"name": "s"}, "spec": {}}).run()


def test_scopes_need_a_quota(server):
    rule = {"scopeName": "PriorityClass", "operator": "In", "values": ["high", "higher"]}
    plugin = limited(server, {"resource": "pods", "matchScopes": [rule]})
    request = Request(plugin, obj=pod(priorityClassName="high"))
    e = refused(request)
    assert (e.code, e.reason) == (500, "")
    assert e.message == "insufficient quota to match these scopes: [{PriorityClass In [high higher]}]"
    Request(plugin, obj=pod(priorityClassName="low")).run()
    quota(server, "low", {"pods": "5"}, scopeSelector={"matchExpressions": [{**rule, "values": ["low"]}]})
    refused(request)
    quota(server, "high", {"pods": "5"}, scopeSelector={"matchExpressions": [{**rule, "values": ["high"]}]})
    request.run()


@pytest.mark.parametrize("version", ["v1alpha1", "v1beta1"])
def test_old_versions_of_the_quota_configuration(server, version):
    told = section(f"resourcequota.admission.k8s.io/{version}", "Configuration", limitedResources=[{"resource": "pods"}])
    Request(server.plugin(resource_quota, told), obj=pod()).run()


def quota_with(server: FakeServer, hard: dict[str, str], used: dict[str, str], scopes: list[str]) -> None:
    meta, spec = {"name": "q", "namespace": "ns1"}, {"hard": hard, "scopes": scopes}
    server.add("", "resourcequotas", {"metadata": meta, "spec": spec, "status": {"hard": hard, "used": used}})


def test_an_update_that_moves_a_pod_into_a_quotas_scope_is_charged_in_full(server):
    quota_with(server, {"pods": "1"}, {"pods": "1"}, ["Terminating"])
    plugin = server.plugin(resource_quota)
    Request(plugin, operation="UPDATE", obj=pod(), old=pod()).run()
    with pytest.raises(ApiError) as e:
        Request(plugin, operation="UPDATE", obj=pod(activeDeadlineSeconds=5), old=pod()).run()
    assert e.value.message == 'pods "a" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1'


def test_a_claims_status_is_counted_and_never_refused(server):
    quota_with(server, {"requests.storage": "5Gi"}, {"requests.storage": "5Gi"}, [])
    old = {"metadata": {"name": "c", "namespace": "ns1"}, "spec": {"resources": {"requests": {"storage": "5Gi"}}}}
    new = {**old, "status": {"allocatedResources": {"storage": "9Gi"}}}
    ops: list[Any] = []

    async def commit_many(found: list[Any]) -> None:
        ops.extend(found)

    server.store.commit_many = commit_many
    claims: dict[str, Any] = {"resource": "persistentvolumeclaims", "operation": "UPDATE"}
    Request(server.plugin(resource_quota), subresource="status", obj=new, old=old, **claims).run()
    assert len(ops) == 1 and b'"requests.storage":"9Gi"' in ops[0].draft.head + ops[0].draft.tail
    with pytest.raises(ApiError, match="exceeded quota"):
        Request(server.plugin(resource_quota), obj=new, old=old, **claims).run()


def test_quotas_of_other_kinds_are_not_read(server, monkeypatch):
    """An index knows what the hundreds of quotas of a namespace limit; one that it does not know, or that limits much, is read."""
    for i in range(50):
        quota(server, f"q{i}", {"pods": "1", "requests.cpu": "1"})
    quota(server, "much", {f"count/r{i}.example.com": "1" for i in range(resource_quota.MOST_KEPT + 1)})
    read: list[str] = []
    monkeypatch.setattr(resource_quota, "object_of", lambda rec: read.append(rec.key.rpartition("/")[2]) or orjson.loads(rec.json))
    plugin = server.plugin(resource_quota)
    a_map = {"resource": "configmaps", "obj": {"metadata": {"name": "m", "namespace": "ns1"}}}
    Request(plugin, **a_map).run()
    assert read == ["much"]
    # Writes of another worker count, also if this one has not been told yet.
    key = server.registries.of("", "resourcequotas").key("ns1", "q7")
    obj = orjson.loads(server.store.get(key).json)
    obj["spec"]["hard"] = obj["status"]["hard"] = {"configmaps": "1"}
    obj["status"]["used"] = {"configmaps": "1"}
    server.store.put(key, obj)
    with pytest.raises(ApiError, match="exceeded quota: q7, requested: configmaps=1"):
        Request(plugin, **a_map).run()
    assert sorted(read) == ["much", "much", "q7"]


def used(server: FakeServer) -> str:
    registry = server.registries.of("", "resourcequotas")
    return orjson.loads(server.store.get(registry.key("ns1", "q")).json)["status"]["used"]["pods"]


def test_more_quotas_than_one_transaction_may_write(server):
    """If a later group conflicts, what was charged to earlier ones is refunded, and charged again with it."""
    names, sizes, raced = [f"q{i}" for i in range(5)], list[int](), [Conflict(None, "q4")]
    for name in names:
        quota(server, name, {"pods": "1"})
    server.store.most_ops = 2

    def pods() -> list[str]:
        key = server.registries.of("", "resourcequotas").key
        return [orjson.loads(server.store.get(key("ns1", name)).json)["status"]["used"]["pods"] for name in names]

    async def commit_many(ops: list[Any]) -> None:
        sizes.append(len(ops))
        if len(ops) == 1 and raced:
            raise raced.pop()
        for op in ops:
            comma = b"" if op.draft.tail.startswith(b"}") else b","
            server.store.put(op.key, orjson.loads(op.draft.head.rstrip(b",") + comma + op.draft.tail))

    server.store.commit_many = commit_many
    plugin = server.plugin(resource_quota)

    async def run() -> None:
        await Request(plugin, obj=pod()).steps()
        assert pods() == ["1"] * 5 and sizes == [2, 2, 1, 2, 2, 2, 2, 1]

    asyncio.run(asyncio.wait_for(run(), 60))


@pytest.mark.parametrize("at", ["taking", "giving back"])
def test_a_request_that_ends_while_it_charges_leaves_no_charge(server, at):
    """With ``at``, the same write is retried, and first refunds what it had charged."""
    quota_with(server, {"pods": "9"}, {"pods": "1"}, [])
    gate, waiting, stored = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def commit_many(ops: list[Any]) -> None:
        waiting.set()
        await asyncio.shield(asyncio.ensure_future(committed(ops)))  # continues, whoever waits

    async def committed(ops: list[Any]) -> None:
        await gate.wait()
        for op in ops:
            stored.set()
            comma = b"" if op.draft.tail.startswith(b"}") else b","
            server.store.put(op.key, orjson.loads(op.draft.head.rstrip(b",") + comma + op.draft.tail))

    server.store.commit_many = commit_many
    plugin = server.plugin(resource_quota)

    async def run() -> None:
        request = Request(plugin, obj=pod())

        async def attempts() -> None:
            for _ in range(2):
                await request.steps()
                gate.clear()
                waiting.clear()

        if at == "giving back":
            gate.set()
        task = asyncio.create_task(attempts())
        await waiting.wait()
        if at == "giving back":
            while gate.is_set():  # noqa: ASYNC110 the first attempt is over
                await asyncio.sleep(0)
            await waiting.wait()
            assert used(server) == "2"
        stored.clear()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        gate.set()
        await stored.wait()
        while plugin._refunds:
            await asyncio.wait(plugin._refunds)
        assert used(server) == "1"

    asyncio.run(asyncio.wait_for(run(), 60))


def scope(name: str, operator: str = "Exists", *values: str) -> dict[str, Any]:
    return {"scopeName": name, "operator": operator, **({"values": list(values)} if values else {})}


EXISTS, BEST_EFFORT = scope("PriorityClass"), scope("BestEffort")
SERVICES, OTHER, BOTH = (scope("PriorityClass", "In", *names) for names in (("services",), ("other",), ("other", "services")))
TWO = [BEST_EFFORT, SERVICES]
CPU, NOTHING = {"cpu": "3", "memory": "2Gi"}, dict[str, str]()
# Scopes of limited resources (each a rule); scopes of quotas; the pod's class and requests; missing scopes.
SCOPES: list[tuple[list[Any], list[Any], str, dict[str, str], str]] = [
    ([EXISTS], [EXISTS], "fake", CPU, ""), ([EXISTS], [], "fake", CPU, "{PriorityClass Exists []}"),
    ([BEST_EFFORT], [], "fake", NOTHING, "{BestEffort Exists []}"), ([BEST_EFFORT], [BEST_EFFORT], "fake", NOTHING, ""),
    (TWO, [], "fake", CPU, ""), (TWO, [], "fake", NOTHING, "{BestEffort Exists []}"),
    (TWO, [], "services", CPU, "{PriorityClass In [services]}"),
    (TWO, [], "services", NOTHING, "{BestEffort Exists []} {PriorityClass In [services]}"),
    (TWO, [BEST_EFFORT], "services", NOTHING, "{PriorityClass In [services]}"),
    (TWO, [SERVICES], "services", NOTHING, "{BestEffort Exists []}"), (TWO, TWO, "services", NOTHING, ""), ([], [], "fake", CPU, ""),
    ([SERVICES], [SERVICES], "fake", CPU, ""), ([BOTH], [SERVICES], "services", CPU, ""), ([BOTH], [OTHER], "other", CPU, ""),
    ([BOTH], [OTHER], "services", CPU, "{PriorityClass In [other services]}"),
    ([BOTH], [], "services", CPU, "{PriorityClass In [other services]}"), ([BOTH], [EXISTS], "services", CPU, ""),
]  # fmt: skip


@pytest.mark.parametrize(("limits", "scopes", "priority", "requests", "lacks"), SCOPES)
def test_limited_scopes(server, limits, scopes, priority, requests, lacks):
    """Upstream's table. A quota's scope counts even if it has no limit."""
    plugin = limited(server, *({"resource": "pods", "matchScopes": [one]} for one in limits))
    for i, one in enumerate(scopes):
        quota(server, f"q{i}", {}, scopeSelector={"matchExpressions": [one]})
    containers = [{"name": "c", "image": "i", "resources": {"requests": requests} if requests else {}}]
    request = Request(plugin, obj=pod(containers=containers, priorityClassName=priority))
    if lacks:
        assert refused(request).message == f"insufficient quota to match these scopes: [{lacks}]"
    else:
        request.run()


def test_a_limited_resource_needs_a_quota_if_its_use_grows(server):
    plugin = limited(server, {"resource": "services", "matchContains": ["services.loadbalancers"]})
    balanced, plain = ({"metadata": {"name": "s"}, "spec": {"type": sort, "ports": []}} for sort in ("LoadBalancer", "NodePort"))
    for new, old in ((balanced, balanced), (plain, balanced)):
        Request(plugin, operation="UPDATE", resource="services", kind="Service", obj=new, old=old).run()
    e = refused(Request(plugin, operation="UPDATE", resource="services", kind="Service", obj=balanced, old=plain))
    assert e.message == 'services "s" is forbidden: insufficient quota to consume: services.loadbalancers'
    both = limited(server, {"resource": "pods", "matchScopes": [EXISTS], "matchContains": ["requests.cpu"]})
    quota(server, "q", {}, scopeSelector={"matchExpressions": [EXISTS]})
    needy = pod(containers=[{"name": "c", "image": "i", "resources": {"requests": CPU}}], priorityClassName="fake")
    assert refused(Request(both, obj=needy)).message == 'pods "a" is forbidden: insufficient quota to consume: requests.cpu'


def test_many_quotas_are_read_off_the_loop(server, monkeypatch):
    """10,000 in a namespace held it for 33 ms at each write there."""
    monkeypatch.setattr(resource_quota, "PAGE", 4)
    for i in range(11):
        quota(server, f"q{i:02}", {"pods": "0" if i == 10 else "9"})
    read, real = [], server.store.range

    def read_page(prefix: str, *args: Any, **more: Any) -> Any:
        page = real(prefix, *args, **more)
        if prefix.endswith("/ns1/"):
            read.append((threading.current_thread() is threading.main_thread(), len(page.records)))
        return page

    monkeypatch.setattr(server.store, "range", read_page)
    assert "exceeded quota: q10" in refused(Request(server.plugin(resource_quota), obj=pod())).message
    assert read == [(True, 4), (False, 4), (False, 3)]
