"""Faults of a Service's allocated addresses: upstream's table (``repairip_test.go``)."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from kas.controllers import service_repair
from kas.controllers.client import Client
from kas.controllers.service_repair import CREATE, LEAVE, RECREATE, ServiceRepair, address_fault, service_fault
from kas.kinds.core.service.allocation import ServiceAllocator, addresses, portmap, ports
from kas.store import Op, TransformError
from tests.controllers.stored import stored
from tests.linecount import executed_lines

KNOWN = addresses.given_out(addresses.ranges([{"metadata": {}, "spec": {"cidrs": ["10.0.0.0/16", "2001:db8::/64"]}}]))
BEGAN = 1704067200


def service(name: str, *ips: str, made: str = "2024-01-01T00:00:01Z") -> dict:
    return {"metadata": {"namespace": "bar", "name": name, "creationTimestamp": made}, "spec": {"clusterIPs": list(ips)}}


def address(ip: str, of: str, family: str = "IPv4", manager: str = "ipallocator.k8s.io", made: str = "2024-01-01T00:00:00Z") -> dict:
    labels = {"ipaddress.kubernetes.io/ip-family": family, "ipaddress.kubernetes.io/managed-by": manager}
    parent = {"resource": "services", "namespace": "bar", "name": of}
    return {"metadata": {"name": ip, "labels": labels, "creationTimestamp": made}, "spec": {"parentRef": parent}}


@pytest.mark.parametrize(
    ("ip", "held", "others", "expected"),
    [
        ("10.0.1.1", address("10.0.1.1", "s"), (), None),
        ("2001:db8::10", address("2001:db8::10", "s", "IPv6"), (), None),
        ("2001:db8::ffff:ffff:ffff:ffff", address("2001:db8::ffff:ffff:ffff:ffff", "s", "IPv6"), (), None),
        ("10.0.1.1", None, (), ("ClusterIPNotAllocated", "Cluster IP [IPv4]: 10.0.1.1 is not allocated; repairing", CREATE)),
        (
            "10.0.1.1", address("10.0.1.1", "gone"), (),
            ("ClusterIPNotAllocated", "the ClusterIP [IPv4]: 10.0.1.1 for Service bar/s has a wrong reference; repairing", RECREATE),
        ),
        (
            "10.0.1.1", address("10.0.1.1", "t"), (service("t", "10.0.1.1"),),
            ("ClusterIPAlreadyAllocated", "Cluster IP [IPv4]:10.0.1.1 was assigned to multiple services; please recreate service", LEAVE),
        ),
        ("10.0.1.1", address("10.0.1.1", "s", "IPv6"), (), ("", "", RECREATE)),
        ("10.0.1.1", address("10.0.1.1", "s", manager=""), (), ("", "", RECREATE)),
        *(
            (ip, address(ip, "s"), (), (
                "ClusterIPOutOfRange",
                f"Cluster IP [{family}]: {ip} is not within any configured Service CIDR; please recreate service",
                LEAVE,
            ))
            for ip, family in (
                ("192.168.1.1", "IPv4"), ("10.0.0.0", "IPv4"), ("10.0.255.255", "IPv4"), ("2001:db8::", "IPv6"),
            )
        ),
    ],
)  # fmt: skip
def test_faults_of_services(ip, held, others, expected):
    mine = service("s", ip)
    services = {(s["metadata"]["namespace"], s["metadata"]["name"]): s for s in (mine, *others)}
    assert service_fault(mine, ip, held, services, KNOWN) == expected


def test_an_address_is_looked_up_in_any_number_of_ranges_at_once():
    """It was compared with one after the other, for each of all Services."""

    def cost(ranges: int) -> int:
        cidrs = [{"metadata": {}, "spec": {"cidrs": [f"10.{i}.0.0/16"]}} for i in range(ranges)]
        known, mine = addresses.given_out(addresses.ranges(cidrs)), service("s", "10.0.1.1")
        held = address("10.0.1.1", "s")
        return executed_lines(lambda: service_fault(mine, "10.0.1.1", held, {("bar", "s"): mine}, known), "/kas/")

    cost(1)
    assert cost(1) == cost(200)


LEAKED = ("IPAddressNotAllocated", "IPAddress: 10.0.1.1 for Service bar/s appears to have leaked: cleaning up")
STRAY = ("IPAddressWrongReference", "IPAddress: 10.0.1.1 for Service bar/s has a wrong reference; cleaning up")


@pytest.mark.parametrize(
    ("held", "owner", "after", "expected"),
    [
        (address("10.0.1.1", "s"), service("s", "10.0.1.1"), 90, None),
        (address("10.0.1.1", "s"), None, 0, None),
        (address("10.0.1.1", "s"), None, 70, LEAKED),
        (address("10.0.1.1", "s", manager="controller-foo"), None, 70, None),
        (address("10.0.1.1", "s"), service("s", "10.0.1.2"), 0, STRAY),
        (address("10.0.1.1", "s", made="2024-01-01T00:00:02Z"), service("s", "10.0.1.2"), 3, None),
        (address("10.0.1.1", "s", made="2024-01-01T00:00:02Z"), service("s", "10.0.1.2"), 10, STRAY),
        # Another program may have written either without a time.
        (address("10.0.1.1", "s", made=""), None, 0, LEAKED),
        (address("10.0.1.1", "s"), service("s", "10.0.1.2", made=""), 3, None),
    ],
)
def test_addresses_without_a_service(held, owner, after, expected):
    assert address_fault(held, owner, BEGAN + after) == expected


ALLOCATED = {
    "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack", "sessionAffinity": "None", "internalTrafficPolicy": "Cluster",
    "externalTrafficPolicy": "Cluster",
}  # fmt: skip


class Told(dict):
    """Counts how often it is iterated over."""

    walks = 0

    def items(self) -> Any:
        self.walks += 1
        return super().items()


def test_a_pass_iterates_over_reported_faults_once(tmp_path):
    """However many faults it reports, each of them only once an hour."""

    async def story() -> None:
        async with stored(tmp_path) as registries, asyncio.timeout(60):
            client = Client(registries, "test")
            for n in range(5):
                port = {"port": 80, "nodePort": 20000 + n, "protocol": "TCP", "targetPort": 80}
                spec = {"type": "NodePort", "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "ports": [port], **ALLOCATED}
                head = {"kind": "Service", "apiVersion": "v1", "metadata": {"name": f"s{n}", "namespace": "a"}}
                assert await client.create("", "services", head | {"spec": spec})
            families = registries.of("networking.k8s.io", "ipaddresses"), registries.of("networking.k8s.io", "servicecidrs")
            registries.of("", "services").allocator = ServiceAllocator(["IPv4"], (30000, 32767), *families)
            repair = ServiceRepair(registries)
            for _ in range(2):
                repair._told = before = Told(repair._told)
                await repair.repair()
                assert before.walks == 1
                told = client.list("", "events")
                assert [e["reason"] for e in told].count("PortOutOfRange") == 5
                assert len(told) == len(repair._told)

    asyncio.run(story())


def test_a_service_that_another_server_wrote_has_its_address_at_once(tmp_path):
    """The servers of old releases kept no records of addresses; nor does who writes into etcd."""

    async def story() -> None:
        async with stored(tmp_path) as registries, asyncio.timeout(60):
            client, group = Client(registries, "test"), "networking.k8s.io"
            families = registries.of(group, "ipaddresses"), registries.of(group, "servicecidrs")
            registries.of("", "services").allocator = ServiceAllocator(["IPv4"], (30000, 32767), *families)
            cidr = {"kind": "ServiceCIDR", "apiVersion": f"{group}/v1", "metadata": {"name": "kubernetes"}}
            assert await client.create(group, "servicecidrs", cidr | {"spec": {"cidrs": ["10.0.0.0/24"]}})
            repair, done = ServiceRepair(registries), asyncio.Queue[str]()
            repair_all, sync = repair.repair, repair._sync

            async def passed() -> None:
                await repair_all()
                done.put_nowait("all")

            async def synced(key: str) -> None:
                await sync(key)
                done.put_nowait(key)

            repair.repair, repair._sync = passed, synced  # type: ignore[method-assign]
            running = asyncio.create_task(repair.run())
            assert await done.get() == "all"
            services, addressed = registries.of("", "services"), list[tuple[str, str]]()
            for name, ip in (("one", "10.0.0.11"), ("two", "10.0.0.12"), ("three", "10.0.0.11")):
                meta = {"name": name, "namespace": "a", "uid": name}
                spec = {"type": "ClusterIP", "clusterIP": ip, "clusterIPs": [ip], "ports": [{"port": 80, "protocol": "TCP"}]}
                draft = services.draft({"kind": "Service", "apiVersion": "v1", "metadata": meta, "spec": spec})
                await client.store.commit(Op(services.key("a", name), draft, 0))
                assert await done.get() == services.key("a", name)
                held = client.get(group, "ipaddresses", "", ip)
                assert held is not None and held["metadata"]["labels"]["ipaddress.kubernetes.io/managed-by"] == "ipallocator.k8s.io"
                addressed.append((ip, held["spec"]["parentRef"]["name"]))
            assert addressed == [("10.0.0.11", "one"), ("10.0.0.12", "two"), ("10.0.0.11", "one")]
            reasons = [e["reason"] for e in client.list("", "events")]
            assert sorted(reasons) == ["ClusterIPAlreadyAllocated", "ClusterIPNotAllocated", "ClusterIPNotAllocated"]
            running.cancel()
            await asyncio.wait([running])

    asyncio.run(story())


def test_a_service_of_a_range_created_during_the_pass_has_no_fault(tmp_path):
    async def story() -> None:
        async with stored(tmp_path) as registries, asyncio.timeout(60):
            families = registries.of("networking.k8s.io", "ipaddresses"), registries.of("networking.k8s.io", "servicecidrs")
            registries.of("", "services").allocator = ServiceAllocator(["IPv4"], (30000, 32767), *families)
            repair = ServiceRepair(registries)
            client, real, made = Client(registries, "test"), repair.client.paced, list[str]()

            async def paced(prefix: str) -> Any:
                if prefix == repair.services.root:
                    cidr = {"kind": "ServiceCIDR", "apiVersion": "networking.k8s.io/v1", "metadata": {"name": "new"}}
                    assert await client.create("networking.k8s.io", "servicecidrs", cidr | {"spec": {"cidrs": ["10.9.0.0/24"]}})
                    port = {"port": 80, "nodePort": 30001, "protocol": "TCP", "targetPort": 80}
                    spec = {"type": "NodePort", "clusterIP": "10.9.0.1", "clusterIPs": ["10.9.0.1"], "ports": [port], **ALLOCATED}
                    head = {"kind": "Service", "apiVersion": "v1", "metadata": {"name": "s", "namespace": "a"}}
                    assert await client.create("", "services", head | {"spec": spec})
                made.append(prefix)
                async for rec in real(prefix):
                    yield rec

            repair.client.paced = paced  # type: ignore[method-assign]
            await repair.repair()
            assert repair.services.root in made
            assert "ClusterIPOutOfRange" not in [e["reason"] for e in client.list("", "events")]

    asyncio.run(story())


def test_a_fault_is_reported_again_after_an_hour_though_the_clock_was_set_back(tmp_path, monkeypatch):
    clock = SimpleNamespace(now=1e9, passed=100.0)
    seen = SimpleNamespace(time=lambda: clock.now, time_ns=lambda: int(clock.now * 1e9), monotonic=lambda: clock.passed)
    monkeypatch.setattr("kas.controllers.service_repair.time", seen)

    async def story() -> None:
        async with stored(tmp_path) as registries, asyncio.timeout(60):
            families = registries.of("networking.k8s.io", "ipaddresses"), registries.of("networking.k8s.io", "servicecidrs")
            registries.of("", "services").allocator = ServiceAllocator(["IPv4"], (30000, 32767), *families)
            repair = ServiceRepair(registries)
            for told in (1, 1, 2):
                await repair._tell("reporter", "Action", ("v1", "Service"), service("s", "10.0.1.1"), "Reason", "message")
                assert len(repair.client.list("", "events")) == told
                clock.now, clock.passed = clock.now - 7200, clock.passed + 1801
                await repair.repair()

    asyncio.run(story())


def test_a_service_without_a_uid_is_reported_like_others(tmp_path):
    """Another program may have written it into etcd; the rest of the pass must not fail."""

    async def story() -> None:
        async with stored(tmp_path) as registries, asyncio.timeout(60):
            repair = ServiceRepair(registries)
            for _ in range(2):
                await repair._tell("reporter", "Action", ("v1", "Service"), service("s", "10.0.1.1"), "Reason", "message")
            assert [e["reason"] for e in repair.client.list("", "events")] == ["Reason"]

    asyncio.run(story())


def test_a_pass_yields_the_loop_and_reads_large_services_off_it(tmp_path, monkeypatch):
    """All Services and addresses were read in one go every three minutes."""
    paused, aside = [], []

    class Over:
        over = True

        async def pause(self) -> None:
            paused.append(1)

    async def beside(large: bool, work: Any, *args: Any) -> Any:
        aside.append(large)
        return work(*args)

    async def story() -> None:
        async with stored(tmp_path) as registries, asyncio.timeout(60):
            client = Client(registries, "test")
            for n in range(3):
                ports = [{"port": 80, "nodePort": 30000 + n, "protocol": "TCP", "targetPort": 80}]
                spec = {"type": "NodePort", "clusterIP": f"10.0.0.{n + 1}", "clusterIPs": [f"10.0.0.{n + 1}"], "ports": ports, **ALLOCATED}
                meta = {"name": f"s{n}", "namespace": "a", "annotations": {"a": "x" * (service_repair.LARGE if n == 2 else 1)}}
                assert await client.create("", "services", {"kind": "Service", "apiVersion": "v1", "metadata": meta, "spec": spec})
            families = registries.of("networking.k8s.io", "ipaddresses"), registries.of("networking.k8s.io", "servicecidrs")
            registries.of("", "services").allocator = ServiceAllocator(["IPv4"], (30000, 32767), *families)
            monkeypatch.setattr("kas.controllers.client.TimeSlice", Over)
            monkeypatch.setattr(service_repair, "TimeSlice", Over)
            monkeypatch.setattr(service_repair, "step", beside)
            await ServiceRepair(registries).repair()
            assert sorted(aside) == [False, False, True] and len(paused) == 6

    asyncio.run(story())


def test_allocations_of_an_unreadable_service_are_kept(tmp_path, monkeypatch):
    """On etcd such a Service is missing from lists; the rest of the pass continues."""

    async def story() -> None:
        async with stored(tmp_path) as registries, asyncio.timeout(60):
            client = Client(registries, "test")
            for n, name in enumerate(("here", "unreadable")):
                port = {"port": 80, "nodePort": 30001 + n, "protocol": "TCP", "targetPort": 80}
                spec = {"type": "NodePort", "clusterIP": f"10.0.0.{n + 1}", "clusterIPs": [f"10.0.0.{n + 1}"], "ports": [port], **ALLOCATED}
                head = {"kind": "Service", "apiVersion": "v1", "metadata": {"name": name, "namespace": "a"}}
                assert await client.create("", "services", head | {"spec": spec})
            ips, cidrs = (registries.of("networking.k8s.io", name) for name in ("ipaddresses", "servicecidrs"))
            allocator = ServiceAllocator(["IPv4"], (30000, 32767), ips, cidrs, beside_others=True)
            registries.of("", "services").allocator = allocator
            assert await client.create("networking.k8s.io", "servicecidrs", {
                "kind": "ServiceCIDR", "apiVersion": "networking.k8s.io/v1", "metadata": {"name": "kubernetes"},
                "spec": {"cidrs": ["10.0.0.0/16"]},
            })  # fmt: skip
            monkeypatch.setattr(service_repair, "ORPHAN_S", -1)
            await ServiceRepair(registries).repair()
            held = {rec.key: rec.revision for prefix in (ips.root, ports.ROOT, portmap.KEY) for rec in client.store.range(prefix).records}
            assert len(held) == 5
            key = registries.of("", "services").root + "a/unreadable"
            await client.store.commit(Op(key, None))
            get = registries.get

            def unreadable(group: str, resource: str, namespace: str, name: str) -> Any:
                if name == "unreadable":
                    raise TransformError(key, "it is no object", revision=1)
                return get(group, resource, namespace, name)

            monkeypatch.setattr(registries, "get", unreadable)
            repair = ServiceRepair(registries)
            for _ in range(portmap.LEAK_PASSES + 1):
                await repair.repair()
            found = {rec.key: rec.revision for prefix in (ips.root, ports.ROOT, portmap.KEY) for rec in client.store.range(prefix).records}
            assert found == held
            monkeypatch.setattr(registries, "get", get)  # a client has deleted it
            await repair.repair()
            assert not any(key.endswith(("/10.0.0.2", "/30002")) for key in (rec.key for rec in client.store.range("/registry/").records))

    asyncio.run(story())


def test_an_address_that_an_unreadable_service_may_hold_is_not_taken_from_it(tmp_path, monkeypatch):
    """Neither in a pass nor after a write to the other Service that has it."""

    async def story() -> None:
        async with stored(tmp_path) as registries, asyncio.timeout(60):
            client, group = Client(registries, "test"), "networking.k8s.io"
            cidr = {"kind": "ServiceCIDR", "apiVersion": f"{group}/v1", "metadata": {"name": "kubernetes"}}
            assert await client.create(group, "servicecidrs", cidr | {"spec": {"cidrs": ["10.0.0.0/16"]}})
            services, ips = registries.of("", "services"), registries.of(group, "ipaddresses")
            services.allocator = ServiceAllocator(["IPv4"], (30000, 32767), ips, registries.of(group, "servicecidrs"))
            for name in ("unreadable", "other"):
                spec = {"type": "ClusterIP", "clusterIP": "10.0.0.2", "clusterIPs": ["10.0.0.2"], "ports": [{"port": 80}]}
                meta = {"name": name, "namespace": "a", "uid": name}
                draft = services.draft({"kind": "Service", "apiVersion": "v1", "metadata": meta, "spec": spec})
                await client.store.commit(Op(services.key("a", name), draft, 0))
                if name == "unreadable":
                    await ServiceRepair(registries).repair()
                    held = client.store.get(ips.root + "10.0.0.2")
            assert held is not None
            await client.store.commit(Op(services.key("a", "unreadable"), None))  # on etcd it is missing from lists
            get = registries.get

            def unreadable(group: str, resource: str, namespace: str, name: str) -> Any:
                if name == "unreadable":
                    raise TransformError(services.key("a", name), "it is no object", revision=1)
                return get(group, resource, namespace, name)

            monkeypatch.setattr(registries, "get", unreadable)
            await ServiceRepair(registries).repair_addresses(services.key("a", "other"))
            await ServiceRepair(registries).repair()
            now = client.store.get(ips.root + "10.0.0.2")
            assert now is not None and now.revision == held.revision

    asyncio.run(story())
