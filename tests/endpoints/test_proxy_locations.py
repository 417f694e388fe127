"""How a proxy to a service finds its pod."""

from __future__ import annotations

import asyncio
import http.client
import ssl
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kas.client import reloadingtls
from kas.endpoints import proxy_locations
from kas.endpoints.kubelet import KubeletAccess
from kas.endpoints.proxy_locations import Locations
from kas.meta.errors import ApiError
from kas.meta.stored import object_of
from tests import pki
from tests.growth.serving import InProcess, Sent
from tests.tlsstub import Answer, TLSStub, authority, serving

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


def located(server: InProcess, ident: str = "s") -> str:
    access: Any = SimpleNamespace(via=None)
    found = server.loop.run_until_complete(Locations(server.server.registries, access).service("default", ident))
    return f"{found.scheme}://{found.host}:{found.port}"


def running(server: InProcess, name: str, ip: str) -> None:
    made(server, f"{NS}/pods", {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "x"}]}})
    status = {"status": {"podIP": ip, "podIPs": [{"ip": ip}]}}
    assert server.ask(Sent("PATCH", f"{NS}/pods/{name}/status", status, "application/merge-patch+json"))[0] == 200


def test_a_service_leads_to_the_port_asked_for(server: InProcess) -> None:
    """Upstream's table of ``TestServiceRegistryResourceLocation``."""
    running(server, "web", "10.1.1.1")
    ports = [{"name": "p", "port": 93, "targetPort": 80}, {"name": "q", "port": 76, "targetPort": 81}]
    made(server, f"{NS}/services", {"metadata": {"name": "named"}, "spec": {"ports": ports}})
    address = {"ip": "10.1.1.1", "targetRef": {"kind": "Pod", "namespace": "default", "name": "web"}}
    for name, of in (("s", [("", 8080)]), ("named", [("p", 80), ("q", 81)]), ("none", [("", 80)])):
        subset = {"addresses": [address], "ports": [{"name": n, "port": number} for n, number in of]}
        made(server, f"{NS}/endpoints", {"metadata": {"name": name}, "subsets": [subset]})
    for ident in ("s", "s:", "s:80", "http:s:", "http:s:80"):
        assert located(server, ident) == "http://10.1.1.1:8080"
    assert located(server, "https:named:q") == "https://10.1.1.1:81"
    for ident, number in (("named:p", 80), ("named:93", 80), ("named:q", 81), ("named:76", 81)):
        assert located(server, ident) == f"http://10.1.1.1:{number}"
    assert located(server, "none") == "http://10.1.1.1:80", "a Service is only read for the number of a port"


@pytest.mark.parametrize(("ident", "code", "says"), [
    ("s", 404, 'endpoints "s" not found'),
    ("s:80", 404, 'endpoints "s" not found'),
    ("s:81", 503, 'no service port 81 found for service "s"'),
    ("missing", 404, 'endpoints "missing" not found'),
    ("missing:80", 404, 'services "missing" not found'),
    ("empty", 503, 'no endpoints available for service "empty"'),
    ("http:empty:", 503, 'no endpoints available for service "empty"'),
    ("unready", 503, 'no endpoints available for service "unready"'),
    ("unready:bad", 503, 'no endpoints available for service "unready:bad"'),
    ("https:unready:", 503, 'no endpoints available for service "https:unready:"'),
    ("a:b:c:d", 400, 'invalid service request "a:b:c:d"'),
])  # fmt: skip
def test_why_a_service_leads_nowhere(server: InProcess, ident: str, code: int, says: str) -> None:
    made(server, f"{NS}/endpoints", {"metadata": {"name": "empty"}})
    subset = {"notReadyAddresses": [{"ip": "10.1.1.1"}], "ports": [{"port": 80}]}
    made(server, f"{NS}/endpoints", {"metadata": {"name": "unready"}, "subsets": [subset]})
    with pytest.raises(ApiError) as refusal:
        located(server, ident)
    assert (refusal.value.code, refusal.value.message) == (code, says)


def test_only_slices_of_the_service_are_read(server: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each request to a service used to read all slices of its namespace."""
    for i in range(5):
        made(server, SLICES, slice_(f"other{i}", "other", f"10.1.0.{i + 1}"))
    made(server, SLICES, slice_("own", "s", "10.1.1.1"))
    running(server, "p-10.1.1.1", "10.1.1.1")
    read: list[str] = []
    monkeypatch.setattr(proxy_locations, "object_of", lambda rec: read.append(rec.key.rpartition("/")[2]) or object_of(rec))
    assert located(server) == "http://10.1.1.1:8080"
    assert read == ["own"]


def test_the_search_for_a_pod_yields_the_loop(server: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service may have thousands of addresses that belong to no pod."""
    paused: list[int] = []

    class Over:
        over = True

        async def pause(self) -> None:
            paused.append(1)

    monkeypatch.setattr(proxy_locations, "TimeSlice", Over)
    made(server, SLICES, slice_("own", "s", *(f"10.1.1.{i + 1}" for i in range(20))))
    with pytest.raises(ApiError, match="no endpoints available"):
        located(server)
    assert len(paused) == 20


def test_kubelet_certificates_and_cas_are_reloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files are watched as client-go does (ReloadTLSFiles); a certificate without its key leaves the previous one in use."""
    monkeypatch.setattr(reloadingtls, "LOOK_AGAIN_S", 0.0)
    clients = pki.authority("clients")
    clients.write(tmp_path, "clients")
    pki.issue([("CN", "old")], clients).write(tmp_path, "own")
    stub = TLSStub(*serving(tmp_path, authority(tmp_path, "trusted")), lambda _: Answer(), tmp_path / "clients.crt")
    access = KubeletAccess(["InternalIP"], *(str(tmp_path / name) for name in ("own.crt", "own.key", "trusted.crt")))
    status: dict[str, Any] = {"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}]}
    objects: Any = SimpleNamespace(get=lambda *_: {"status": status}, labelled=None)
    locations = Locations(objects, access)

    def ask(verify: bool = True) -> None:
        target = locations.kubelet("n", verify=verify)
        connection = http.client.HTTPSConnection(target.host, int(target.port), context=target.tls, timeout=60)
        connection.request("GET", "/")
        connection.getresponse().read()
        connection.close()

    with stub:
        status["daemonEndpoints"] = {"kubeletEndpoint": {"Port": int(stub.url.rpartition(":")[2])}}
        ask()
        key = (tmp_path / "own.key").read_bytes()
        pki.issue([("CN", "new")], clients).write(tmp_path, "own")
        new_key = (tmp_path / "own.key").read_bytes()
        (tmp_path / "own.key").write_bytes(key)
        ask()
        (tmp_path / "own.key").write_bytes(new_key)
        ask()
        authority(tmp_path, "trusted")
        with pytest.raises(ssl.SSLCertVerificationError):
            ask()
        ask(verify=False)
    assert [asked.client for asked in stub.asked] == ["old", "old", "new", "new"]
