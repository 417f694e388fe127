"""The cost of deleting a claim beside many pods, and a class beside many volumes; and what a pod group waits for."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from kas.config import features
from kas.controllers import protection
from kas.controllers.protection import POD_GROUP, PVC, VAC, ClaimProtection, ClassProtection, PodGroupProtection
from kas.meta.waiting import TimeSlice
from tests.controllers.stored import stored


def test_one_scan_of_pods_serves_all_deleted_claims(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(protection, "LONGEST_REST_S", 0.0)
    paused = []

    class Over(TimeSlice):
        over = True

        async def pause(self) -> None:
            paused.append(1)

    async def run() -> None:
        async with stored(tmp_path) as registries:
            control = ClaimProtection(registries)
            control._more()
            client, names = control.client, [f"c{i}" for i in range(6)]
            claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
            for name in names:
                meta = {"name": name, "namespace": "n", "finalizers": [PVC]}
                await client.create("", "persistentvolumeclaims",
                                    {"kind": "PersistentVolumeClaim", "apiVersion": "v1", "metadata": meta, "spec": claim})  # fmt: skip
                await client.delete(control.registry, "n", name)
            for name, node in (("c1", "node"), ("c2", "")):  # the second was never bound to a node
                volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": name}}]
                spec = {"nodeName": node, "containers": [{"name": "c", "image": "i"}], "volumes": volumes}
                pod = {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": name, "namespace": "n"}, "spec": spec}
                await client.create("", "pods", pod)
            looks, real = [0], client.paced

            def paced(prefix: str) -> Any:
                looks[0] += 1
                return real(prefix)

            client.paced = paced  # type: ignore[method-assign]
            monkeypatch.setattr(protection, "TimeSlice", Over)
            for name in names:
                assert await control._sync(f"{control.registry.prefix('n')}{name}") is None
            assert list(control.queue._order) == ["n"]
            await control._sync("n")
            left = [name for name in names if client.get("", "persistentvolumeclaims", "n", name) is not None]
            assert left == ["c1"] and looks == [2]  # once more when everything is known
            assert len(paused) == len(names) + 1  # 20,000 held the loop for 58 ms
            assert list(control.queue._timers) == [f"{control.registry.prefix('n')}c1"] and not control._deleted
            control.queue.clear()

    asyncio.run(run())


def test_one_scan_of_claims_and_volumes_serves_all_deleted_classes(tmp_path: Path, monkeypatch: Any) -> None:
    """Each deleted class used to scan all of them."""
    monkeypatch.setattr(protection, "LONGEST_REST_S", 0.0)

    async def run() -> None:
        async with stored(tmp_path) as registries:
            control = ClassProtection(registries)
            control._more()
            client, names, group = control.client, [f"c{i}" for i in range(6)], "storage.k8s.io"
            for name in names:
                head = {"kind": "VolumeAttributesClass", "apiVersion": "storage.k8s.io/v1", "metadata": {"name": name, "finalizers": [VAC]}}
                assert await client.create(group, "volumeattributesclasses", {**head, "driverName": "a.b", "parameters": {"a": "b"}})
                await client.delete(control.registry, "", name)
            spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "volumeAttributesClassName": "c4"}
            claim = {"kind": "PersistentVolumeClaim", "apiVersion": "v1", "metadata": {"name": "a", "namespace": "n"}, "spec": spec}
            assert await client.create("", "persistentvolumeclaims", claim)
            looks, real = list[str](), client.paced

            def paced(prefix: str) -> Any:
                looks.append(prefix)
                return real(prefix)

            client.paced = paced  # type: ignore[method-assign]
            for name in names:
                assert await control._sync(control.registry.root + name) is None
            assert list(control.queue._order) == [""]
            await control._sync("")
            assert [name for name in names if client.get(group, "volumeattributesclasses", "", name) is not None] == ["c4"]
            assert looks == 2 * [reg.root for reg in control.users]  # once more when everything is known
            assert list(control.queue._timers) == [control.registry.root + "c4"] and not control._deleted
            control.queue.clear()

    asyncio.run(run())


def test_deleted_pod_groups_wait_for_their_unfinished_pods(tmp_path: Path, monkeypatch: Any) -> None:
    """``podgroupprotection``. No other controller removes the finalizer, so they stayed, and their namespaces with them."""
    monkeypatch.setattr(protection, "LONGEST_REST_S", 0.0)

    async def run() -> None:
        async with stored(tmp_path) as registries:
            control = PodGroupProtection(registries)
            control._more()
            client, group, pods = control.client, "scheduling.k8s.io", registries.of("", "pods")
            names = {"free": [POD_GROUP, "a/b"], "runs": [POD_GROUP], "over": [POD_GROUP], "stays": [POD_GROUP], "other": []}
            for name, finalizers in names.items():
                meta = {"name": name, "namespace": "n", "finalizers": finalizers}
                spec = {"schedulingPolicy": {"gang": {"minCount": 2}}}
                head = {"kind": "PodGroup", "apiVersion": "scheduling.k8s.io/v1alpha2"}
                assert await client.create(group, "podgroups", {**head, "metadata": meta, "spec": spec})
            for name, namespace in (("runs", "n"), ("over", "n"), ("free", "elsewhere")):
                spec = {"schedulingGroup": {"podGroupName": name}, "containers": [{"name": "c", "image": "i"}]}
                head = {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": name, "namespace": namespace}}
                with features.DEFAULT.overridden(GenericWorkload=True):
                    assert await client.create("", "pods", {**head, "spec": spec})

            def over(pod: dict[str, Any]) -> bool:
                pod["status"] = {**(pod.get("status") or {}), "phase": "Failed"}
                return True

            async def settle() -> dict[str, list[str]]:
                for key in [f"{control.registry.prefix('n')}{name}" for name in names]:
                    assert await control._sync(key) is None
                await control._sync("n")
                control.queue.clear()
                left = {name: client.get(group, "podgroups", "n", name) for name in names}
                return {name: obj["metadata"].get("finalizers", []) for name, obj in left.items() if obj is not None}

            await client.update(pods, "n", "over", over, "status")
            for name in ("free", "runs", "over"):
                await client.delete(control.registry, "n", name)
            assert await settle() == {"free": ["a/b"], "runs": [POD_GROUP], "stays": [POD_GROUP], "other": []}
            await client.delete(pods, "n", "runs")
            assert "runs" not in await settle()

    asyncio.run(run())
