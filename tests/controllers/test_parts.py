"""Controllers on several etcd clusters, one of which is read late: unknown objects are not taken for absent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kas import kinds
from kas.admission import Chain
from kas.auth.credentials import ServiceAccountKeys
from kas.controllers.client import Client
from kas.controllers.garbage import GarbageCollector
from kas.controllers.namespace import NamespaceController
from kas.controllers.protection import PVC, ClaimProtection
from kas.controllers.service_repair import ServiceRepair
from kas.controllers.serviceaccounttokens import TYPE, Tokens
from kas.kinds.core.service.allocation import ServiceAllocator, port_op, ports
from kas.meta import clock
from kas.registry.registries import Registries
from kas.store import Op, Unavailable, build_record, open_store
from kas.store.etcd.partitioned import Partitioned
from kas.store.lmdb import LMDBStore
from kas.types.scheme import BUILTIN
from tests.controllers.test_garbage_start import NAMESPACE, running, there, until

LATE = ("/registry/services/specs/", "/registry/pods/", "/registry/serviceaccounts/")
ALONE: Any = SimpleNamespace(services=SimpleNamespace(remote={}), active=False)  # an aggregator without backends


class Late(LMDBStore):
    """A store that seems empty until a fresh read is requested, which fails at first."""

    late, refusals, asked = False, 1, 0

    async def fresh(self) -> None:
        self.asked += 1
        if self.asked <= self.refusals:
            raise Unavailable("etcdserver: request timed out")
        self.late = False

    def get(self, key: str, revision: int = 0) -> Any:
        return None if self.late else super().get(key, revision)

    def range(self, prefix: str, *args: Any, **more: Any) -> Any:
        return super().range("/nothing/" if self.late else prefix, *args, **more)


Story = Callable[[Client, Late, Callable[[type], Any]], Awaitable[None]]


@pytest.fixture
def play(tmp_path: Path) -> Callable[[Story], None]:
    """Runs ``story(client, services, make)``: Services are in the second of two stores, ``make`` creates a controller."""

    def play(story: Story) -> None:
        async def run() -> None:
            kinds.install()
            main, services = open_store(str(tmp_path / "main"), sync=False), Late(str(tmp_path / "other"), max_size=1 << 30, sync=False)
            services.commit_now(*(Op(f"/registry/x/{n}", build_record(b"{", b'"n":1}')) for n in range(50)))  # its revisions are its own
            store: Any = Partitioned(main, [(services, LATE)])  # type: ignore[arg-type, list-item]
            store.start(asyncio.get_running_loop())
            registries = Registries(store, clock.now)
            registries.add_stored(BUILTIN.resources, BUILTIN.resource, 3600, {})
            try:
                async with asyncio.timeout(60):
                    await story(Client(registries, "test"), services, lambda controller: controller(registries, ALONE, Chain([])))
            finally:
                store.close()

        asyncio.run(run())

    return play


async def make(
    client: Client, kind: str, name: str, owner: dict[str, Any] | None = None, spec: dict[str, Any] | None = None, type: str = "",
    **meta: Any,
) -> dict[str, Any]:  # fmt: skip
    obj: dict[str, Any] = {"kind": kind, "apiVersion": "v1", "metadata": {"name": name, "namespace": NAMESPACE, **meta}}
    obj |= {key: value for key, value in (("spec", spec), ("type", type)) if value}
    if owner is not None:
        at = owner["metadata"]
        obj["metadata"]["ownerReferences"] = [{"apiVersion": "v1", "kind": owner["kind"], "name": at["name"], "uid": at["uid"]}]
    if kind == "Service":
        obj["spec"] = {"type": "ExternalName", "externalName": "example.com"}
    made = await client.create("", f"{kind.lower()}s", obj)
    assert made is not None
    return made


def test_an_unknown_owner_is_not_taken_for_deleted(play):
    async def story(client: Client, services: Late, made: Callable[[type], Any]) -> None:
        owner = await make(client, "Service", "owner")
        await make(client, "ConfigMap", "owned", owner)
        services.late = True
        async with running(made(GarbageCollector)):
            await until(lambda: services.asked > services.refusals)
            # It has been read since, and what really has no owner is deleted.
            await make(client, "Secret", "alone", {**owner, "metadata": {"name": "owner", "uid": "another"}})
            await until(lambda: there(client, "secrets", "alone") is None)
        assert there(client, "configmaps", "owned") is not None

    play(story)


def test_an_orphaning_owner_waits_for_unknown_dependents(play):
    async def story(client: Client, services: Late, made: Callable[[type], Any]) -> None:
        await make(client, "ConfigMap", "owner", finalizers=["orphan"])
        await client.delete(client.registries.of("", "configmaps"), NAMESPACE, "owner", propagationPolicy="Orphan")
        services.refusals = 3
        async with running(made(GarbageCollector)):
            await until(lambda: services.asked == services.refusals)
            assert there(client, "configmaps", "owner") is not None
            await until(lambda: there(client, "configmaps", "owner") is None)
        assert services.asked > services.refusals

    play(story)


def test_each_cluster_is_reported_separately(play):
    async def story(client: Client, services: Late, made: Callable[[type], Any]) -> None:
        collector = made(GarbageCollector)
        async with running(collector):
            await until(collector._whole.is_set)
            for first, then in (("Service", "ConfigMap"), ("ConfigMap", "Service")):
                owner = await make(client, first, "owner")
                await make(client, then, "owned", owner)
                await client.delete(client.registries.of("", f"{first.lower()}s"), NAMESPACE, "owner")
                await until(lambda then=then: there(client, f"{then.lower()}s", "owned") is None)

    play(story)


def test_a_namespace_is_not_empty_before_everything_is_known(play):
    async def story(client: Client, services: Late, made: Callable[[type], Any]) -> None:
        meta = {"name": NAMESPACE, "finalizers": ["example.com/held"]}  # to see when the controller has processed it
        space = {"kind": "Namespace", "apiVersion": "v1", "metadata": meta, "spec": {"finalizers": ["kubernetes"]}}
        assert await client.create("", "namespaces", space) is not None
        await make(client, "Service", "left")
        await client.delete(client.registries.of("", "namespaces"), "", NAMESPACE)
        services.late = True

        def finalized() -> bool:
            found = client.get("", "namespaces", "", NAMESPACE)
            return found is not None and not found["spec"].get("finalizers")

        async with running(made(NamespaceController)):
            await until(finalized)
        services.late = False
        assert there(client, "services", "left") is None

    play(story)


def test_a_port_whose_service_is_unknown_may_still_get_it(play):
    async def story(client: Client, services: Late, made: Callable[[type], Any]) -> None:
        of = client.registries.of
        families = of("networking.k8s.io", "ipaddresses"), of("networking.k8s.io", "servicecidrs")
        of("", "services").allocator = ServiceAllocator(["IPv4"], (30000, 32767), *families)
        repair, key = ServiceRepair(client.registries), ports.key(30001)
        await client.store.commit(port_op(30001, {"metadata": {"namespace": NAMESPACE, "name": "coming"}}))
        services.late = True
        with pytest.raises(Unavailable):
            await repair.repair()
        assert client.store.get(key) is not None
        await repair.repair()
        assert client.store.get(key) is not None and not services.late
        await repair.repair()
        assert client.store.get(key) is None

    play(story)


def test_a_claim_waits_for_unknown_pods(play):
    async def story(client: Client, services: Late, made: Callable[[type], Any]) -> None:
        claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        await make(client, "PersistentVolumeClaim", "claim", spec=claim, finalizers=[PVC])
        volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "claim"}}]
        pod = {"nodeName": "n", "containers": [{"name": "c", "image": "i"}], "volumes": volumes}
        await make(client, "Pod", "user", spec=pod)
        claims = client.registries.of("", "persistentvolumeclaims")
        await client.delete(claims, NAMESPACE, "claim")
        services.late = True
        async with running(ClaimProtection(client.registries)):
            await until(lambda: services.asked > services.refusals)
            await client.delete(client.registries.of("", "pods"), NAMESPACE, "user", gracePeriodSeconds=0)
            await until(lambda: there(client, "persistentvolumeclaims", "claim") is None)
        assert there(client, "pods", "user") is None

    play(story)


def test_a_token_waits_for_an_unknown_account(play, tmp_path):
    async def story(client: Client, services: Late, made: Callable[[type], Any]) -> None:
        (tmp_path / "ca.crt").write_text("ca")
        tokens = Tokens(client.registries, ServiceAccountKeys(["i"], tmp_path / "sa.key", own=True), tmp_path / "ca.crt")
        await make(client, "ServiceAccount", "account")
        annotations = {"kubernetes.io/service-account.name": "account"}
        await make(client, "Secret", "token", type=TYPE, annotations=annotations)
        services.late = True
        async with running(tokens):
            await until(lambda: client.get("", "secrets", NAMESPACE, "token") is None or services.asked > services.refusals)
            await until(lambda: (client.get("", "secrets", NAMESPACE, "token") or {"data": {"token": "gone"}}).get("data"))
        found = client.get("", "secrets", NAMESPACE, "token")
        assert found is not None and found["data"]["token"]

    play(story)
