"""What the quota controller counts while writes are between their charge and their commit."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from kas.admission.quota_usage import matches
from kas.controllers import resourcequota
from kas.controllers.quotacounts import Counts, QuotaCount
from kas.controllers.resourcequota import AGAIN_S, MOST_TRIES, QUIET_S, ResourceQuotas
from kas.meta.quantity import Quantity
from kas.registry.etcdvalues import custom
from kas.store import Op
from tests.growth.serving import InProcess, Sent

NS = "/api/v1/namespaces/default"
QUOTA = f"{NS}/resourcequotas/q"


class Quota:
    """A server with a quota on config maps, and its controller, which runs when a test says so."""

    def __init__(self, server: InProcess) -> None:
        self.server, self.now = server, 0.0
        self.controller = ResourceQuotas(server.server.registries)
        self.controller.clock = lambda: self.now
        self.ask("POST", f"{NS}/resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": {"count/configmaps": "5"}}})
        assert self.count() == AGAIN_S and self.used == "0"

    def ask(self, method: str, path: str, body: Any = None, ctype: str = "application/json") -> Any:
        status, answer = self.server.ask(Sent(method, path, body, ctype))
        assert status < 300, answer
        return answer

    def count(self) -> float | None:
        return self.server.loop.run_until_complete(self.controller._sync("default"))

    def charge(self, used: int) -> None:
        """Charges as admission does before a write."""
        status = {"status": {"used": {"count/configmaps": str(used)}}}
        self.ask("PATCH", f"{QUOTA}/status", status, "application/merge-patch+json")

    @property
    def used(self) -> str:
        used: str = self.ask("GET", QUOTA)["status"]["used"]["count/configmaps"]
        return used


@pytest.fixture
def quota(tmp_path: Path):
    server = InProcess(tmp_path)
    asyncio.set_event_loop(server.loop)
    try:
        yield Quota(server)
    finally:
        asyncio.set_event_loop(None)
        server.close()


def test_a_recent_charge_is_kept(quota: Quota) -> None:
    quota.charge(2)
    assert quota.count() == QUIET_S and quota.used == "2"
    quota.now += QUIET_S / 2
    assert quota.count() == QUIET_S and quota.used == "2"
    # Charged again: half a second from now on.
    quota.charge(3)
    quota.now += QUIET_S
    assert quota.count() == QUIET_S and quota.used == "3"
    quota.now += QUIET_S
    assert quota.count() == AGAIN_S and quota.used == "0"
    assert quota.count() is None and not quota.controller.unconfirmed


def test_a_quota_without_a_name_does_not_stop_others(quota: Quota) -> None:
    """Another client of etcd may have written it."""
    store = quota.server.server.store
    value = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {}, "spec": {"hard": {"count/configmaps": "1"}}}
    store.commit_now(Op("/registry/resourcequotas/default/a", custom(orjson.dumps(value), ())))
    quota.ask("POST", f"{NS}/configmaps", {"metadata": {"name": "made"}})
    quota.charge(0)
    quota.now += 10 * QUIET_S
    quota.count()
    assert quota.used == "1"


def test_increased_usage_is_written_at_once(quota: Quota) -> None:
    hard = {"spec": {"hard": {"count/configmaps": "5", "count/secrets": "7"}}}
    quota.charge(2)
    quota.ask("PATCH", QUOTA, hard, "application/merge-patch+json")
    assert quota.count() == QUIET_S
    status = quota.controller.client.get("", "resourcequotas", "default", "q")["status"]
    assert status == {"hard": hard["spec"]["hard"], "used": {"count/configmaps": "2", "count/secrets": "0"}}


def test_a_quota_that_is_always_charged_is_counted_nevertheless(quota: Quota) -> None:
    for i in range(MOST_TRIES):
        quota.charge(i % 2 + 2)
        assert quota.count() == QUIET_S
    quota.charge(5)
    assert quota.count() == AGAIN_S and quota.used == "0"


def test_counting_quotas_yields_the_loop(quota: Quota, monkeypatch: pytest.MonkeyPatch) -> None:
    """A count of numbers alone waits for nothing, however many there are."""
    paused = []

    class Over:
        over = True

        async def pause(self) -> None:
            paused.append(1)

    monkeypatch.setattr("kas.controllers.resourcequota.TimeSlice", Over)
    for i in range(5):
        quota.ask("POST", f"{NS}/resourcequotas", {"metadata": {"name": f"m{i}"}, "spec": {"hard": {"count/configmaps": "5"}}})
    quota.count()
    assert len(paused) == 6


def test_a_new_quota_is_counted_alone(quota: Quota, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each used to count for all quotas of its namespace: 1,200 of them, one after the other, took 110 s."""
    counted = []
    whole = ResourceQuotas._count

    async def count(self: ResourceQuotas, namespace: str, found: Any, hard: Any) -> Any:
        counted.append(found["metadata"]["name"])
        return await whole(self, namespace, found, hard)

    monkeypatch.setattr(ResourceQuotas, "_count", count)
    loop = quota.server.loop
    running = loop.create_task(quota.controller.run())

    async def settled() -> None:
        await asyncio.sleep(0)
        while len(quota.controller.queue):  # noqa: ASYNC110
            await asyncio.sleep(0.001)

    loop.run_until_complete(settled())
    counted.clear()
    quota.ask("POST", f"{NS}/configmaps", {"metadata": {"name": "a"}})
    for n in range(10):
        quota.ask("POST", f"{NS}/resourcequotas", {"metadata": {"name": f"q{n}"}, "spec": {"hard": {"count/configmaps": "5"}}})
        loop.run_until_complete(settled())
    assert sorted(set(counted)) == sorted(f"q{n}" for n in range(10)) and len(counted) <= 20
    assert [quota.ask("GET", f"{NS}/resourcequotas/q{n}")["status"]["used"] for n in range(10)] == [{"count/configmaps": "1"}] * 10
    running.cancel()
    loop.run_until_complete(asyncio.gather(running, return_exceptions=True))


def test_quotas_of_a_namespace_are_read_off_the_loop(quota: Quota, monkeypatch: pytest.MonkeyPatch) -> None:
    """500 of 300 resources each held it for 20 ms and more. The first one, which is created while there is none, is not forgotten."""
    controller, beside, late = quota.controller, list[bool](), list[bool]()
    real = controller.client.list

    def listed(*args: str) -> list[Any]:
        beside.append(threading.current_thread() is not threading.main_thread())
        return [] if late and beside[-1] else real(*args)

    monkeypatch.setattr(controller.client, "list", listed)
    quota.charge(2)
    assert quota.count() == QUIET_S and beside == [True]
    late.append(True)
    quota.now += QUIET_S
    assert quota.count() == AGAIN_S and quota.used == "0" and beside == [True, True, False]
    assert "default" in controller.namespaces


def test_only_freed_resources_are_counted(quota: Quota, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever was deleted in a namespace, its pods were read for each of its quotas: also for events, which expire all the time."""
    controller, read, queued = quota.controller, list[str](), list[Any]()
    pages, number = controller.client.paced_pages, controller.store.count

    def noted(of: Any) -> Any:
        def ask(prefix: str) -> Any:
            read.append(prefix.removesuffix("/default/"))
            return of(prefix)

        return ask

    monkeypatch.setattr(controller.client, "paced_pages", noted(pages))
    monkeypatch.setattr(controller.store, "count", noted(number))
    monkeypatch.setattr(controller.queue, "add_after", lambda item, after: queued.append(item))
    quota.server.store.hub.listen("", controller._events)
    hard = {"pods": "5", "count/configmaps": "5"}
    quota.ask("POST", f"{NS}/serviceaccounts", {"metadata": {"name": "default"}})
    quota.ask("POST", f"{NS}/resourcequotas", {"metadata": {"name": "p"}, "spec": {"hard": hard}, "status": {"hard": hard}})
    for kind, more in {
        "pods": {"spec": {"containers": [{"name": "c", "image": "x"}]}}, "configmaps": {},
        "events": {"involvedObject": {"namespace": "default"}}, "secrets": {},
    }.items():
        quota.ask("POST", f"{NS}/{kind}", {"metadata": {"name": "a"}, **more})
    while quota.count() is not None:
        quota.now += QUIET_S
    controller.namespaces["default"] = 0.0

    def used() -> Any:
        return quota.ask("GET", f"{NS}/resourcequotas/p")["status"]["used"]

    def counted_for(kind: str) -> set[str]:
        read.clear(), queued.clear()
        quota.ask("DELETE", f"{NS}/{kind}/a?gracePeriodSeconds=0")
        while queued and quota.count() is not None:
            quota.now += QUIET_S
        return set(read)

    assert used() == {"pods": "1", "count/configmaps": "1"}
    assert counted_for("events") == counted_for("secrets") == set()
    assert counted_for("configmaps") == {"/registry/configmaps"}
    assert used() == {"pods": "1", "count/configmaps": "0"}
    assert counted_for("pods") == {"/registry/pods"}
    assert used() == {"pods": "0", "count/configmaps": "0"}
    assert not controller.freed
    controller._resync()
    quota.count()
    assert {"/registry/pods", "/registry/configmaps"} <= set(read)


# -- many pods

PODS = f"{NS}/pods"
REQUESTS = [{}, {"cpu": "100m"}, {"cpu": "1", "memory": "1Gi"}, {"memory": "5M", "example.com/gpu": "2"}]
QUOTAS = {
    "all": {"hard": {"pods": "900", "requests.cpu": "900", "memory": "900Gi", "requests.example.com/gpu": "900", "count/pods": "900"}},
    "best": {"hard": {"pods": "900"}, "scopes": ["BestEffort"]},
    "ending": {"hard": {"pods": "900", "limits.cpu": "900"}, "scopes": ["Terminating", "NotBestEffort"]},
    "class": {"hard": {"pods": "900"}, "scopeSelector": {"matchExpressions": [
        {"scopeName": "PriorityClass", "operator": "In", "values": ["system-node-critical"]}]}},
}  # fmt: skip


class Many:
    """Pods in the store, however they got there, and what the controller and a complete count report."""

    def __init__(self, quota: Quota) -> None:
        self.quota, self.server = quota, quota.server
        self.controller, self.registries = quota.controller, quota.server.server.registries
        self.pods = self.registries.of("", "pods")
        self.server.store.hub.listen("", self.controller._events)
        self.controller.namespaces["default"] = 0.0
        self.quotas = [{"metadata": {"name": name, "namespace": "default"}, "spec": spec} for name, spec in QUOTAS.items()]

    def put(self, name: str, i: int, **more: Any) -> None:
        """Stores the ``i``th kind of pod, or replaces an existing one."""
        meta: dict[str, Any] = {"name": name, "namespace": "default", "uid": f"u{name}", **more.pop("metadata", {})}
        container = {"name": "c", "image": "x", "resources": {"requests": REQUESTS[i % 4], "limits": REQUESTS[i // 4 % 2]}}
        spec: dict[str, Any] = {"containers": [container]}
        if i % 3 == 0:
            spec["activeDeadlineSeconds"] = 5
        if i % 5 == 0:
            spec["priorityClassName"] = "system-node-critical"
        key = self.pods.key("default", name)
        there = self.server.store.get(key)
        obj = {"kind": "Pod", "apiVersion": "v1", "metadata": meta, "spec": spec, **more}
        self.commit(self.pods.put(key, obj, there.revision if there is not None else 0))

    def delete(self, name: str) -> None:
        key = self.pods.key("default", name)
        self.commit(Op(key, None, self.server.store.get(key).revision))

    def commit(self, op: Any) -> None:
        async def commit() -> None:
            await self.server.store.commit(op)

        self.server.loop.run_until_complete(commit())

    def used(self, counts: Counts) -> list[dict[str, str]]:
        async def count() -> list[dict[str, str]]:
            census, evaluator, out = QuotaCount(counts, "default", self.quotas), self.controller.evaluators.of("", "pods"), []
            for quota in self.quotas:
                names = evaluator.matching(quota["spec"]["hard"])
                out.append({k: str(v) for k, v in (await (await census.of(self.pods, evaluator)).used(quota, names)).items()})
            return out

        return self.server.loop.run_until_complete(count())

    def one_by_one(self) -> list[dict[str, str]]:
        """Returns what each pod uses, of those in each quota's scope."""
        evaluator, out = self.controller.evaluators.of("", "pods"), []
        for quota in self.quotas:
            as_if = {**quota, "status": {"hard": quota["spec"]["hard"]}}
            total = dict.fromkeys(evaluator.matching(quota["spec"]["hard"]), Quantity(0))
            for pod in self.registries.list("", "pods", "default"):
                if matches(as_if, evaluator, pod):
                    for name, need in evaluator.usage(pod).items():
                        if name in total:
                            total[name] += need
            out.append({k: str(v) for k, v in total.items()})
        return out

    @property
    def kept(self) -> bool:
        return (self.pods.root, "default") in self.controller.counts._kept


@pytest.fixture
def many(quota: Quota, monkeypatch: pytest.MonkeyPatch) -> Many:
    monkeypatch.setattr("kas.controllers.quotacounts.KEPT_FROM", 1)
    return Many(quota)


def test_the_cached_usage_of_many_pods_is_correct(many: Many) -> None:
    for i in range(24):
        many.put(f"p{i}", i)
    read = many.used(many.controller.counts)
    assert read == many.one_by_one() and many.kept
    ended = {"status": {"phase": "Succeeded"}}
    now = datetime.now(UTC)
    past, future = (f"{now + timedelta(seconds=s):%Y-%m-%dT%H:%M:%SZ}" for s in (-60, 60))
    held = {"name": "c", "resources": {"requests": {"cpu": "7"}}, "allocatedResources": {"cpu": "8"}}
    pending = {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
    kept = many.controller.counts._kept[many.pods.root, "default"]
    for change in (
        lambda: many.put("p1", 2), lambda: many.put("p2", 2, **ended), lambda: many.put("p3", 6), lambda: many.delete("p4"),
        lambda: many.put("p99", 5), lambda: many.put("p5", 5, status={"conditions": [{"type": "Ready"}]}),
        lambda: many.put("p6", 6, metadata={"deletionTimestamp": past, "deletionGracePeriodSeconds": 5}),
        lambda: many.put("p7", 7, metadata={"deletionTimestamp": future, "deletionGracePeriodSeconds": 5}),
        lambda: many.put("p9", 9, status={"containerStatuses": [held]}),
        lambda: many.put("p9", 9, status={"containerStatuses": [held], "conditions": [pending]}),
        lambda: many.delete("p7"), lambda: many.delete("p6"), lambda: many.put("p2", 2),
    ):  # fmt: skip
        change()
        many.server.store.hub.catch_up()
        assert many.used(many.controller.counts) == many.one_by_one()
        assert many.controller.counts._kept[many.pods.root, "default"] is kept
    for name in [pod["metadata"]["name"] for pod in many.registries.list("", "pods", "default")]:
        many.delete(name)
    many.server.store.hub.catch_up()
    assert not many.kept  # they are few


def test_pods_are_read_once_for_all_quotas_and_deletions(many: Many, monkeypatch: pytest.MonkeyPatch) -> None:
    """They were read for each of the quotas whenever some were deleted: with 100,000 pods that takes the loop seconds, again and again."""
    read: list[str] = []
    pages = many.controller.client.paced_pages

    def noted(prefix: str, size: int = 256) -> Any:
        read.append(prefix)
        return pages(prefix, size)

    monkeypatch.setattr(many.controller.client, "paced_pages", noted)
    for i in range(20):
        many.put(f"p{i}", i % 2)
    for name, spec in QUOTAS.items():
        many.quota.ask("POST", f"{NS}/resourcequotas", {"metadata": {"name": name}, "spec": spec})
    while many.quota.count() is not None:
        many.quota.now += QUIET_S
    assert read == [f"{many.pods.root}default/"]
    many.delete("p3")
    while many.quota.count() is not None:
        many.quota.now += QUIET_S
    assert len(read) == 1
    used = [many.quota.ask("GET", f"{NS}/resourcequotas/{name}")["status"]["used"]["pods"] for name in QUOTAS]
    assert used == [one["pods"] for one in many.one_by_one()] and used[0] == "19"


def test_writes_while_pods_are_read_are_counted_once(many: Many, monkeypatch: pytest.MonkeyPatch) -> None:
    pages = many.controller.client.paced_pages
    monkeypatch.setattr(many.controller.client, "paced_pages", lambda prefix: pages(prefix, 4))
    for i in range(12):
        many.put(f"p{i:02}", i)
    changes = iter([
        lambda: many.delete("p01"), lambda: many.delete("p00"), lambda: many.put("p00", 3), lambda: many.put("p001", 5),
        lambda: many.put("p02", 9), lambda: many.delete("p10"), lambda: many.put("p11", 4), lambda: many.put("p99", 1),
    ])  # fmt: skip

    class Over:
        over = True

        async def pause(self) -> None:
            change = next(changes, None)
            if change is not None:
                change()
                many.server.store.hub.catch_up()

    monkeypatch.setattr(many, "commit", many.server.store.commit_now)
    monkeypatch.setattr("kas.controllers.quotacounts.TimeSlice", Over)
    assert many.used(many.controller.counts) == many.one_by_one() and many.kept


def stored(spec: dict[str, Any], hard: dict[str, str] | None, used: str, **meta: Any) -> SimpleNamespace:
    status = {} if hard is None else {"hard": hard, "used": {"pods": used}}
    obj = {"kind": "ResourceQuota", "apiVersion": "v1", "metadata": {"name": "q", **meta}, "spec": spec, "status": status}
    return SimpleNamespace(json=orjson.dumps(obj))


FIVE, SIX = {"hard": {"pods": "5"}}, {"hard": {"pods": "6"}}
SCOPED = {**FIVE, "scopes": ["BestEffort"]}
LIKE_SPEC = {"annotations": {"spec": '{"hard":{"pods":"5"}},"status":{"hard":{"pods":"5"},"used":{'}}


@pytest.mark.parametrize(("before", "now", "counts", "read"), [
    (stored(FIVE, FIVE["hard"], "1"), stored(FIVE, FIVE["hard"], "2", labels={"a": "b"}), False, 0),
    (stored(FIVE, FIVE["hard"], "1"), stored(SCOPED, FIVE["hard"], "1"), True, 2),
    (stored(SCOPED, FIVE["hard"], "1"), stored(SCOPED, FIVE["hard"], "2"), False, 0),
    (stored(FIVE, FIVE["hard"], "1"), stored(SIX, FIVE["hard"], "1"), True, 2),
    (stored(SIX, FIVE["hard"], "1"), stored(SIX, FIVE["hard"], "1"), True, 2),
    (stored(SIX, FIVE["hard"], "1"), stored(SIX, SIX["hard"], "1"), False, 2),
    (stored(FIVE, None, ""), stored(FIVE, FIVE["hard"], "1"), False, 2),
    (stored({}, None, ""), stored({}, None, ""), False, 2),
    (stored(FIVE, FIVE["hard"], "1", **LIKE_SPEC), stored(SIX, FIVE["hard"], "1", **LIKE_SPEC), True, 2),
])  # fmt: skip
def test_a_quota_with_raised_usage_is_not_read(
    monkeypatch: pytest.MonkeyPatch, before: SimpleNamespace, now: SimpleNamespace, counts: bool, read: int
) -> None:
    """A pod raises that of all quotas of its namespace: 1,600 held the loop for 60 ms."""
    decoded = []
    monkeypatch.setattr(resourcequota, "object_of", lambda record: decoded.append(1) or orjson.loads(record.json))
    event: Any = SimpleNamespace(record=now, previous=before)
    assert resourcequota._to_count(event) is counts and len(decoded) == read
