"""StorageVersions report what every server of the cluster writes and understands."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from kas.controllers import storageversions
from kas.controllers.client import Client
from kas.controllers.storageversions import Registration, StorageVersions, reports
from kas.meta.errors import ApiError, service_unavailable
from kas.registry import bootstrap
from kas.registry.registries import Registries
from kas.store import Op
from kas.testing.server import KasServer
from kas.types.scheme import BUILTIN, Scheme
from tests.conftest import Client as HTTP
from tests.controllers.stored import stored
from tests.controllers.waiting import until

NOW, MICRO = "2024-01-02T03:04:05Z", "2024-01-02T03:04:05.000000Z"
SERVED = [BUILTIN.resource(*at) for at in (
    ("", "v1", "configmaps"), ("events.k8s.io", "v1", "events"), ("", "v1", "events"),
    ("autoscaling", "v1", "horizontalpodautoscalers"), ("autoscaling", "v2", "horizontalpodautoscalers"),
    ("authentication.k8s.io", "v1", "tokenreviews"),
)]  # fmt: skip


def test_each_cluster_is_reported_once() -> None:
    found = {r.name: (r.encoding, r.decodable, r.served) for r in reports(Scheme(), SERVED)}  # type: ignore[arg-type]
    assert found == {
        "core.configmaps": ("v1", ["v1"], ["v1"]),
        "core.events": ("v1", ["v1", "events.k8s.io/v1"], ["v1"]),
        "autoscaling.horizontalpodautoscalers": (
            "autoscaling/v2", ["autoscaling/v2", "autoscaling/v1"], ["autoscaling/v2", "autoscaling/v1"],
        ),
    }  # fmt: skip


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    monkeypatch.setattr(storageversions, "EVERY_S", 0.01)
    monkeypatch.setattr(storageversions, "LEASE_EVERY_S", 0.01)

    def play(story: Callable[[Registries, Callable[[], dict[str, Any]]], Awaitable[None]]) -> None:
        async def run() -> None:
            async with stored(tmp_path) as registries, asyncio.timeout(60):
                client = Client(registries, "test")
                await story(registries, lambda: client.get(storageversions.GROUP, "storageversions", "", "core.configmaps") or {})

        asyncio.run(run())

    return play


async def lease(registries: Registries, host: str) -> str:
    entry = bootstrap.identity_lease(NOW, MICRO, host)
    registry = registries.of(entry.group, entry.resource)
    name: str = entry.obj["metadata"]["name"]
    await registries.store.commit(Op(registry.key("kube-system", name), registry.draft(entry.obj), 0))
    return name


async def seen(look: Callable[[], Any]) -> Any:
    while True:
        if found := look():
            return found
        await asyncio.sleep(0.005)


def test_servers_that_agree_and_one_that_is_gone(play) -> None:
    async def story(registries: Registries, now: Callable[[], dict[str, Any]]) -> None:
        mine, other, gone = bootstrap.server_name("one"), await lease(registries, "two"), "apiserver-gone"
        registration = Registration(registries, mine, Scheme(), SERVED[:1])  # type: ignore[arg-type]
        task = asyncio.create_task(StorageVersions(registration).run())
        await asyncio.sleep(0.05)
        assert not now()  # reports of a server without a Lease would be dropped by others
        assert registration.awaited("", "configmaps") == "<nil>"
        await lease(registries, "one")
        status = await seen(lambda: now().get("status"))
        assert status["storageVersions"] == [
            {"apiServerID": mine, "encodingVersion": "v1", "decodableVersions": ["v1"], "servedVersions": ["v1"]}
        ]
        (condition,) = status["conditions"]
        assert (status["commonEncodingVersion"], condition.pop("lastTransitionTime") != "") == ("v1", True)
        assert condition == {
            "type": "AllEncodingVersionsEqual", "status": "True", "reason": "CommonEncodingVersionSet",
            "message": "Common encoding version set",
        }  # fmt: skip
        revision = now()["metadata"]["resourceVersion"]
        await asyncio.sleep(0.05)
        assert now()["metadata"]["resourceVersion"] == revision  # nothing has changed, so nothing is written

        registry = registries.of(storageversions.GROUP, "storageversions")

        def disagree(obj: dict[str, Any]) -> bool:
            obj["status"]["storageVersions"] += [
                {"apiServerID": id, "encodingVersion": "v2", "decodableVersions": ["v1", "v2"]} for id in (gone, other)
            ]
            del obj["status"]["commonEncodingVersion"]
            return True

        await Client(registries, "test").update(registry, "", "core.configmaps", disagree, "status")
        status = await seen(lambda: len(now()["status"]["storageVersions"]) == 2 and now()["status"])
        assert [s["apiServerID"] for s in status["storageVersions"]] == [mine, other] and "commonEncodingVersion" not in status
        assert (status["conditions"][0]["status"], status["conditions"][0]["reason"]) == ("False", "CommonEncodingVersionUnset")
        leases = registries.of("coordination.k8s.io", "leases")
        await registries.store.commit(Op(leases.key("kube-system", other), None))
        status = await seen(lambda: len(now()["status"]["storageVersions"]) == 1 and now()["status"])
        assert (status["commonEncodingVersion"], status["conditions"][0]["status"]) == ("v1", "True")
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    play(story)


def test_writes_wait_until_their_storage_version_is_reported(play, monkeypatch) -> None:
    async def story(registries: Registries, now: Callable[[], dict[str, Any]]) -> None:
        mine, completed = await lease(registries, "one"), []
        registration = Registration(registries, mine, Scheme(), SERVED)  # type: ignore[arg-type]
        _, _, look = registration.periodic(lambda: completed.append(True))
        stored_, shared = ("", "configmaps"), [("", "events"), ("events.k8s.io", "events")]
        assert [registration.awaited(*at) for at in (stored_, *shared)] == ["<nil>"] * 3
        assert registration.awaited("authentication.k8s.io", "tokenreviews") is None  # nothing of it is stored
        assert registration.awaited("example.com", "widgets") is None

        tell, refuse = StorageVersions._tell, True

        async def some(self: StorageVersions, report: storageversions.Report, living: set[str]) -> None:
            if refuse and report.name == "core.configmaps":
                raise service_unavailable("not now")
            await tell(self, report, living)

        monkeypatch.setattr(StorageVersions, "_tell", some)
        with pytest.raises(ApiError, match="not now"):  # a failing one does not prevent others from being reported
            await StorageVersions(registration).run()
        look()
        assert [registration.awaited(*at) for at in (stored_, *shared)] == ["not now", None, None] and not completed
        other_worker = Registration(registries, mine, Scheme(), SERVED)  # type: ignore[arg-type]
        assert [other_worker.awaited(*at) for at in (stored_, *shared)] == ["<nil>", None, None]
        other_server = Registration(registries, bootstrap.server_name("two"), Scheme(), SERVED)  # type: ignore[arg-type]
        assert other_server.awaited(*shared[0]) == "<nil>"

        refuse = False
        task = asyncio.create_task(StorageVersions(registration).run())
        await seen(lambda: registration.awaited(*stored_) is None)
        await seen(lambda: other_worker.awaited(*stored_) is None)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await seen(lambda: (look(), completed)[1])
        registry = registries.of(storageversions.GROUP, "storageversions")
        await registries.store.commit(Op(registry.key("", "core.configmaps"), None))
        assert registration.awaited(*stored_) is None  # a version is reported once; a server that starts reports again
        assert Registration(registries, mine, Scheme(), SERVED).awaited(*stored_) == "<nil>"  # type: ignore[arg-type]

    play(story)


def test_reports_do_not_wait_for_one_another(play, monkeypatch) -> None:
    async def story(registries: Registries, now: Callable[[], dict[str, Any]]) -> None:
        registration = Registration(registries, await lease(registries, "one"), Scheme(), list(BUILTIN.resources))  # type: ignore[arg-type]
        told: list[str] = []
        under_way, room = 0, asyncio.Event()

        async def tell(self: StorageVersions, report: storageversions.Report, living: set[str]) -> None:
            nonlocal under_way
            under_way += 1
            assert under_way <= storageversions.AT_ONCE
            if under_way == storageversions.AT_ONCE:
                room.set()
            await room.wait()
            under_way -= 1
            told.append(report.name)

        monkeypatch.setattr(StorageVersions, "_tell", tell)
        task = asyncio.create_task(StorageVersions(registration).run())
        await seen(lambda: len(told) >= len(registration.reports))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert len(registration.reports) > storageversions.AT_ONCE and set(told) == {r.name for r in registration.reports}

    play(story)


def test_a_server_reports_only_with_its_gate(tmp_path: Path) -> None:
    flags = ("--feature-gates=StorageVersionAPI=true", "--runtime-config=internal.apiserver.k8s.io/v1alpha1=true")
    with KasServer(tmp_path, *flags) as server:
        client = HTTP(server)
        entry = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "early"}}
        status, answer = client("POST", "/api/v1/namespaces/default/configmaps", entry)
        if status != 201:  # the server has just started
            assert (status, answer["reason"]) == (503, "ServiceUnavailable")
            assert answer["message"].startswith("wait for storage version registration to complete for resource: configmaps, ")
        path = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions"
        found = until(lambda: (told := client("GET", f"{path}/storage.k8s.io.volumeattachments"))[0] == 200 and told[1].get("status"))
        assert found["commonEncodingVersion"] == "storage.k8s.io/v1"
        names = [item["metadata"]["name"] for item in client("GET", path)[1]["items"]]
        assert "core.pods" in names and "apps.deployments" in names and len(names) == len(set(names)) > 50
        hook = "[+]poststarthook/built-in-resources-storage-version-updater ok"
        until(lambda: hook in client.raw("GET", "/readyz?verbose").text)
        entry["metadata"] = {"name": "late"}
        assert client("POST", "/api/v1/namespaces/default/configmaps", entry)[0] == 201
