"""Cases of ``test_metrics`` for counters of parts that exist once per process (``kas.observe.counted``)."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from kas.auth.externaljwt import ExternalSigner
from kas.auth.tokens import SignerError
from kas.controllers.service_repair import ServiceRepair
from kas.encryption.kms.keys import SEED_BYTES
from kas.kinds.core.service.allocation import port_op, ports
from kas.observe import counted
from kas.request.http import Request
from kas.store import Op, StoreError
from tests import pki
from tests.auth.signer import Signer
from tests.tlsstub import Answer, TLSStub

SERVICES, IPS = "/api/v1/namespaces/default/services", "/registry/ipaddresses/"
ONE_NODE_PORT = {"service_node_port_range": (30000, 30000)}
FOUR_ADDRESSES = {"service_cluster_ip_range": "10.0.0.0/29"}  # one of six is the kubernetes Service's


# An address and a port of the lower bands, which are used only when the upper bands are full.
KEPT, KEPT_PORT = "10.0.0.9", 30009


def service(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], **spec}}


async def allocations(m: Any) -> None:
    family, cidr = "kube_apiserver_clusterip_allocator_allocation_total", "10.0.0.0/24"

    def now() -> tuple[float, float]:
        return m.value(family, cidr=cidr, scope="dynamic"), m.value(family, cidr=cidr, scope="static")

    dynamic, static = now()
    assert (await m("POST", SERVICES, service("a"))).status == 201
    assert now() == (dynamic + 1, static)
    assert (await m("POST", SERVICES, service("b", clusterIP=KEPT))).status == 201
    assert now() == (dynamic + 1, static + 1)
    assert (await m("POST", SERVICES + "?dryRun=All", service("c"))).status == 201
    assert (await m("POST", SERVICES, service("c", clusterIP="None"))).status == 201
    assert now() == (dynamic + 1, static + 1), "a dry run takes nothing, and a headless Service has none"


async def allocation_seconds(m: Any) -> None:
    family, cidr = "kube_apiserver_clusterip_allocator_allocation_duration_seconds_count", "10.0.0.0/24"
    before = m.value(family, cidr=cidr)
    assert (await m("POST", SERVICES, service("a"))).status == 201
    assert (await m("POST", SERVICES, service("b", clusterIP=KEPT))).status == 201
    assert (await m("POST", SERVICES, service("again", clusterIP=KEPT))).status == 422
    assert (await m("POST", SERVICES + "?dryRun=All", service("c"))).status == 201
    assert m.value(family, cidr=cidr) == before + 2, "what was got, and not in a dry run"


async def allocation_errors(m: Any) -> None:
    family, labels = "kube_apiserver_clusterip_allocator_allocation_errors_total", {"cidr": "10.0.0.0/29"}
    dynamic, static = (m.value(family, scope=scope, **labels) for scope in ("dynamic", "static"))
    assert (await m("POST", SERVICES, service("again", clusterIP="10.0.0.1"))).status == 422
    assert m.value(family, scope="static", **labels) == static + 1
    for n in range(5):
        assert (await m("POST", SERVICES, service(f"s{n}"))).status == 201
    assert m.value(family, scope="dynamic", **labels) == dynamic
    assert (await m("POST", SERVICES, service("more"))).status == 500
    assert m.value(family, scope="dynamic", **labels) == dynamic + 1


async def node_ports(m: Any) -> None:
    family = "kube_apiserver_nodeport_allocator_allocation_total"
    before = m.value(family, scope="dynamic"), m.value(family, scope="static")
    assert (await m("POST", SERVICES, service("a", type="NodePort"))).status == 201
    assert (await m("POST", SERVICES, service("b", type="NodePort", ports=[{"port": 80, "nodePort": KEPT_PORT}]))).status == 201
    assert (await m("POST", SERVICES + "?dryRun=All", service("c", type="NodePort"))).status == 201
    assert (m.value(family, scope="dynamic"), m.value(family, scope="static")) == (before[0] + 1, before[1] + 1)


async def node_port_errors(m: Any) -> None:
    family = "kube_apiserver_nodeport_allocator_allocation_errors_total"
    before = m.value(family, scope="dynamic"), m.value(family, scope="static")
    assert (await m("POST", SERVICES, service("a", type="NodePort"))).status == 201
    assert (await m("POST", SERVICES, service("b", type="NodePort"))).status == 500
    assert (await m("POST", SERVICES, service("b", type="NodePort", ports=[{"port": 80, "nodePort": 30000}]))).status == 422
    assert (m.value(family, scope="dynamic"), m.value(family, scope="static")) == (before[0] + 1, before[1] + 1)


async def repaired_addresses(m: Any) -> None:
    family = "apiserver_clusterip_repair_ip_errors_total"
    before = m.value(family, type="repair")
    assert (await m("POST", SERVICES, service("a", clusterIP="10.0.0.20"))).status == 201
    repair = ServiceRepair(m.server.registries)
    await repair.repair()
    assert m.value(family, type="repair") == before
    await m.server.store.commit(Op(IPS + "10.0.0.20", None))
    for _ in range(2):  # once it has been restored, nothing is wrong
        await repair.repair()
        assert m.value(family, type="repair") == before + 1


async def repaired_ports(m: Any) -> None:
    family = "apiserver_nodeport_repair_port_errors_total"
    before = m.value(family, type="repair"), m.value(family, type="leak")
    assert (await m("POST", SERVICES, service("a", type="NodePort", ports=[{"port": 80, "nodePort": 30099}]))).status == 201
    await m.server.store.commit(Op(ports.key(30099), None))
    await m.server.store.commit(port_op(30100, service("gone") | {"metadata": {"namespace": "default", "name": "gone"}}))
    await ServiceRepair(m.server.registries).repair()
    assert (m.value(family, type="repair"), m.value(family, type="leak")) == (before[0] + 1, before[1] + 1)


def unrepaired(family: str) -> Callable[[Any], Any]:
    async def case(m: Any) -> None:
        before, repair = m.value(family), ServiceRepair(m.server.registries)

        async def fails() -> None:
            raise StoreError("reading: failed")

        repair.repair = fails  # type: ignore[method-assign]
        with pytest.raises(StoreError):
            await repair.run()
        assert m.value(family) == before + 1

    return case


async def lists(m: Any) -> None:
    family, labels = "apiserver_storage_list_total", {"group": "", "resource": "pods"}
    before = m.value(family, **labels)
    for path in ("/api/v1/pods", "/api/v1/namespaces/default/pods?limit=1", "/api/v1/namespaces/default/pods/none", "/api/v1/pods?limit=a"):
        await m("GET", path)
    assert m.value(family, **labels) == before + 2


def objects_of_lists(what: str, counts: Sequence[int]) -> Callable[[Any], Any]:
    """Returns how many objects each of these requests adds: all of a namespace with three, some by selectors, and none of them."""
    family = f"apiserver_storage_list_{what}_objects_total"
    at = "/api/v1/namespaces/counted/configmaps"
    asks = (
        ("GET", at), ("GET", f"{at}?limit=2"), ("GET", f"{at}?labelSelector=a%3D1"), ("GET", f"{at}?labelSelector=a%3D1&limit=1"),
        ("GET", f"{at}?fieldSelector=metadata.name%3Dc1"), ("GET", f"{at}?fieldSelector=metadata.name%3Dnone"), ("GET", f"{at}/c1"),
        ("GET", f"{at}?labelSelector=a%3Dnone"), ("DELETE", f"{at}?labelSelector=a%3D1"),
    )  # fmt: skip

    async def case(m: Any) -> None:
        await m("POST", "/api/v1/namespaces", {"metadata": {"name": "counted"}})
        for n in range(3):
            body = {"metadata": {"name": f"c{n}", "labels": {"a": str(n % 2)}}}
            assert (await m("POST", at, body)).status == 201
        added = []
        for method, path in asks:
            before = m.value(family, group="", resource="configmaps")
            assert (await m(method, path)).status == 200
            added.append(m.value(family, group="", resource="configmaps") - before)
        assert added == list(counts), [path for _, path in asks]

    return case


async def asked_for_logs(m: Any) -> tuple[int, int]:
    """Requests the log of a pod on a node whose kubelet has a self-signed certificate; returns the results without and with verification.
    """
    nodes, pods = "/api/v1/nodes", "/api/v1/namespaces/default/pods"
    with tempfile.TemporaryDirectory() as directory:
        kubelet = pki.issue([("CN", "node")], pki.authority("another"), usages=("server",), ips=["127.0.0.1"])
        shown = kubelet.write(Path(directory), "kubelet")
        with TLSStub(Path(shown[0]), Path(shown[1]), lambda asked: Answer(body=b"told")) as stub:
            port = int(stub.url.rpartition(":")[2])
            for path, name in ((nodes, "n"), ("/api/v1/namespaces/default/serviceaccounts", "default")):
                assert (await m("POST", path, {"metadata": {"name": name}})).status == 201
            status = {
                "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
            }
            assert (await m("PUT", f"{nodes}/n/status", {"metadata": {"name": "n"}, "status": status})).status == 200
            pod = {"metadata": {"name": "p"}, "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}}
            assert (await m("POST", pods, pod)).status == 201
            return tuple([(await m("GET", f"{pods}/p/log{q}")).status for q in ("?insecureSkipTLSVerifyBackend=true", "")])  # type: ignore[return-value]


async def logs(m: Any) -> None:
    family = "kube_apiserver_pod_logs_insecure_backend_total"
    before = [m.value(family, usage=usage) for usage in ("enforce_tls", "skip_tls_allowed")]
    assert await asked_for_logs(m) == (200, 500)
    assert [m.value(family, usage=usage) for usage in ("enforce_tls", "skip_tls_allowed")] == [n + 1 for n in before]


async def unverified_logs(m: Any) -> None:
    family = "kube_apiserver_pod_logs_backend_tls_failure_total"
    before = m.value(family)
    assert await asked_for_logs(m) == (200, 500)
    assert m.value(family) == before + 1


async def aggregations(m: Any) -> None:
    family = "aggregator_discovery_aggregation_count_total"
    accept = [(b"authorization", f"Bearer {m.world.token}".encode()),
              (b"accept", b"application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")]  # fmt: skip
    m.server.documents.refresh_discovery()
    before = m.value(family)
    for _ in range(2):  # it is created once for what is served
        assert m.server.chain(Request("GET", "/apis", "", accept)).status == 200
        assert m.value(family) == before + 1
    m.server.documents.refresh_discovery()
    m.server.chain(Request("GET", "/apis", "", accept))
    assert m.value(family) == before + 2


def of_signer(family: str, labels: dict[str, str], method: str) -> Callable[[Any], Any]:
    async def case(m: Any) -> None:
        before = m.value(family, **labels)
        with tempfile.TemporaryDirectory() as directory:
            outside = Signer(Path(directory) / "s")
            try:
                signer = ExternalSigner(str(outside.socket), ["https://issuer.example.com"])
                await asyncio.to_thread(signer.begin)
                await signer.sign({"sub": "a"})
                assert m.value(family, **labels) == before + 1
            finally:
                outside.close()
            with pytest.raises(SignerError):
                await asyncio.to_thread(signer._call, method, b"", 0.01)
        assert m.value(family, **labels) == before + 1, "that came to another code"

    return case


async def fetched_at(m: Any) -> None:
    counted.FETCHED_AT.values.clear()
    counted.KEYS_OF.values.clear()
    with tempfile.TemporaryDirectory() as directory:
        outside = Signer(Path(directory) / "s")
        try:
            signer = ExternalSigner(str(outside.socket), ["https://issuer.example.com"])
            began = int(time.time())
            await asyncio.to_thread(signer.begin)
            told = m.value("apiserver_externaljwt_fetch_keys_success_timestamp")
            assert began <= told <= time.time()
            assert m.value("apiserver_externaljwt_fetch_keys_data_timestamp") == 1_800_000_000
            outside.answers["FetchKeys"] = bytes
            with pytest.raises(SignerError, match="refresh hint"):
                await asyncio.to_thread(signer._fetch, 30)
            assert m.value("apiserver_externaljwt_fetch_keys_success_timestamp") == told
        finally:
            outside.close()


async def data_keys(m: Any) -> None:
    family = "apiserver_storage_data_key_generation_duration_seconds_count"
    before = m.value(family)
    assert len(counted.data_key(SEED_BYTES)) == SEED_BYTES
    assert m.value(family) == before + 1


async def failed_data_keys(m: Any) -> None:
    family = "apiserver_storage_data_key_generation_failures_total"
    before, random = m.value(family), counted.os.urandom

    def fails(size: int) -> bytes:
        raise OSError("no entropy")

    try:
        counted.os.urandom = fails
        with pytest.raises(OSError, match="no entropy"):
            counted.data_key(SEED_BYTES)
    finally:
        counted.os.urandom = random
    assert m.value(family) == before + 1


def register(of: Callable[..., Any]) -> None:
    """Adds them to the cases."""
    of("kube_apiserver_clusterip_allocator_allocation_total")(allocations)
    of("kube_apiserver_clusterip_allocator_allocation_errors_total", **FOUR_ADDRESSES)(allocation_errors)
    of("kube_apiserver_clusterip_allocator_allocation_duration_seconds")(allocation_seconds)
    of("kube_apiserver_nodeport_allocator_allocation_total")(node_ports)
    of("kube_apiserver_nodeport_allocator_allocation_errors_total", **ONE_NODE_PORT)(node_port_errors)
    of("apiserver_clusterip_repair_ip_errors_total")(repaired_addresses)
    of("apiserver_nodeport_repair_port_errors_total")(repaired_ports)
    for family in ("apiserver_clusterip_repair_reconcile_errors_total", "apiserver_nodeport_repair_reconcile_errors_total"):
        of(family)(unrepaired(family))
    of("apiserver_storage_list_total")(lists)
    for what in ("fetched", "evaluated"):
        of(f"apiserver_storage_list_{what}_objects_total")(objects_of_lists(what, (3, 2, 3, 2, 1, 0, 0, 3, 3)))
    of("apiserver_storage_list_returned_objects_total")(objects_of_lists("returned", (3, 2, 1, 1, 1, 0, 0, 0, 1)))
    kubelets = {"kubelet_certificate_authority": "{directory}/clients.crt"}
    of("kube_apiserver_pod_logs_insecure_backend_total", **kubelets)(logs)
    of("kube_apiserver_pod_logs_backend_tls_failure_total", **kubelets)(unverified_logs)
    of("aggregator_discovery_aggregation_count_total")(aggregations)
    sign, fetch = "apiserver_externaljwt_sign_request_total", "apiserver_externaljwt_fetch_keys_request_total"
    of(sign)(of_signer(sign, {"code": "OK"}, "Sign"))
    of(fetch)(of_signer(fetch, {"code": "OK"}, "FetchKeys"))
    calls = "apiserver_externaljwt_request_duration_seconds"
    of(calls)(of_signer(f"{calls}_count", {"code": "OK", "method": "Metadata"}, "Metadata"))
    for what in ("success_timestamp", "data_timestamp"):
        of(f"apiserver_externaljwt_fetch_keys_{what}")(fetched_at)
    of("apiserver_storage_data_key_generation_duration_seconds")(data_keys)
    of("apiserver_storage_data_key_generation_failures_total")(failed_data_keys)
