"""Service IPs and node ports on a running server: allocation, keeping, release, and no address twice."""

from __future__ import annotations

import copy
import json
import ssl
import urllib.error
import urllib.request
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from kas.kinds.core.service import allocation
from kas.kinds.core.service.allocation import addresses
from kas.kinds.core.service.allocation.addresses import AllocationError
from kas.kinds.core.service.allocation.ports import PortChoice
from kas.meta.errors import ApiError
from kas.registry import pipeline
from kas.registry.strategy import Context
from kas.store import build_record
from kas.types.scheme import BUILTIN

NAMESPACED = "/api/v1/namespaces/"
ADDRESSES = "/apis/networking.k8s.io/v1/ipaddresses"


def call(server: tuple[str, str, str], method: str, path: str, body: object = None, kind: str = "application/json"):
    """Sends a request to ``server`` = (url, token, ca); returns (status, decoded body)."""
    url, token, ca = server
    data = None if body is None else json.dumps(body).encode()
    req = urllib.request.Request(url + path, data, {"Authorization": "Bearer " + token, "Content-Type": kind}, method=method)
    try:
        with urllib.request.urlopen(req, context=ssl.create_default_context(cafile=ca), timeout=60) as r:
            return r.status, json.loads(r.read())
    except urllib.error.HTTPError as e:
        return e.code, json.loads(e.read())


def service(name: str, **spec: object) -> dict:
    return {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], **spec}}


def test_an_ip_address_object_is_complete():
    store = SimpleNamespace(part=lambda root: None)
    drawn: list[Any] = []
    registry = SimpleNamespace(whole=store, root="/", draft=lambda obj: drawn.append(obj) or build_record(b"{", b"}"))
    allocator, context = allocation.ServiceAllocator(["IPv4"], (31000, 31009), registry, None), Context("2024-01-02T03:04:05Z")
    holder = {"metadata": {"namespace": "ns", "name": "a"}}
    for ip in ("10.7.0.1", "fd00::1"):
        op, obj = allocator.address_op(context, ip, holder), drawn[-1]
        assert (op.key, op.expected) == ("/" + ip, 0)
        assert obj["spec"]["parentRef"] == {"resource": "services", "namespace": "ns", "name": "a"}
        context.uid, given = obj["metadata"]["uid"], copy.deepcopy(obj)
        resource = BUILTIN.resource("networking.k8s.io", "v1", "ipaddresses")
        assert resource is not None
        assert pipeline.build_create(resource, given, context) == (obj, [])
    with pytest.raises(ApiError, match="must be a valid IP address"):
        allocator.address_op(context, "None", holder)


class Client:
    def __init__(self, server, namespace: str) -> None:
        self.where = (server.url, server.token, server.ca)
        self.namespace = namespace
        self.call("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})

    def call(self, method: str, path: str, body: object = None, kind: str = "application/json"):
        return call(self.where, method, path, body, kind)

    def create(self, obj: dict, query: str = ""):
        return self.call("POST", f"{NAMESPACED}{self.namespace}/services{query}", obj)

    def patch(self, name: str, spec: dict):
        return self.call("PATCH", f"{NAMESPACED}{self.namespace}/services/{name}", {"spec": spec}, "application/merge-patch+json")

    def delete(self, name: str):
        return self.call("DELETE", f"{NAMESPACED}{self.namespace}/services/{name}")

    def addresses(self) -> dict[str, str]:
        items = self.call("GET", ADDRESSES)[1]["items"]
        return {i["metadata"]["name"]: "/".join((i["spec"]["parentRef"]["namespace"], i["spec"]["parentRef"]["name"])) for i in items}


@pytest.fixture(scope="module")
def single(tmp_path_factory):
    from kas.testing.server import KasServer

    with KasServer(
        tmp_path_factory.mktemp("kas"), "--unsafe-no-fsync", "--service-cluster-ip-range", "10.7.0.0/28",
        "--service-node-port-range", "31000-31009", "--controllers", "none", workers=2,
    ) as server:  # fmt: skip
        yield server


@pytest.fixture(scope="module")
def dual(tmp_path_factory):
    from kas.testing.server import KasServer

    ranges = "10.8.0.0/24,fd00:8::/112"
    flags = ("--unsafe-no-fsync", "--service-cluster-ip-range", ranges, "--controllers", "none")
    with KasServer(tmp_path_factory.mktemp("kas"), *flags) as server:
        yield server


def test_an_ip_address_object_is_deleted_with_the_service(single):
    c = Client(single, "own")
    code, made = c.create(service("a"))
    assert code == 201
    ip = made["spec"]["clusterIP"]
    assert made["spec"]["clusterIPs"] == [ip]
    code, obj = c.call("GET", f"{ADDRESSES}/{ip}")
    assert code == 200
    assert obj["spec"]["parentRef"] == {"resource": "services", "namespace": "own", "name": "a"}
    assert obj["metadata"]["labels"] == {
        "ipaddress.kubernetes.io/ip-family": "IPv4",
        "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
    }
    assert c.delete("a")[0] == 200
    assert ip not in c.addresses()


def test_endpoints_are_deleted_with_the_service(single):
    c = Client(single, "endpoints")
    c.create(service("a", clusterIP="None"))
    c.call("POST", f"{NAMESPACED}endpoints/endpoints", {"metadata": {"name": "a"}})
    c.delete("a")
    assert c.call("GET", f"{NAMESPACED}endpoints/endpoints/a")[0] == 404


@pytest.mark.parametrize(
    ("ip", "why"),
    [
        ("10.7.0.0", "the provided network does not match the current range"),
        ("10.7.0.15", "the provided network does not match the current range"),
        ("10.9.0.1", "the provided network does not match the current range"),
    ],
)
def test_an_address_outside_of_the_range_is_refused(single, ip, why):
    code, status = Client(single, "outside").create(service("a", clusterIP=ip))
    assert code == 422
    assert status["details"]["causes"][0]["message"] == f'Invalid value: ["{ip}"]: failed to allocate IP {ip}: {why}'


def test_an_allocated_address_is_refused(single):
    c = Client(single, "taken")
    assert c.create(service("a", clusterIP="10.7.0.3"))[0] == 201
    code, status = c.create(service("b", clusterIP="10.7.0.3"))
    assert code == 422
    assert status["message"].endswith("failed to allocate IP 10.7.0.3: provided IP is already allocated")
    c.delete("a")
    assert c.create(service("b", clusterIP="10.7.0.3"))[0] == 201
    c.delete("b")


def test_dry_runs_and_errors_allocate_nothing(single):
    c = Client(single, "dry")
    before = c.addresses()
    code, made = c.create(service("a", type="NodePort"), "?dryRun=All")
    assert code == 201
    assert made["spec"]["clusterIP"] == "10.7.0.0"
    assert made["spec"]["ports"][0]["nodePort"] == 32769
    code, status = c.create(service("a", clusterIP="10.7.0.15"), "?dryRun=All")
    assert (code, status["message"].rpartition(": ")[2]) == (
        422, "the provided IP (10.7.0.15) is not in the valid range. The range of valid IPs is 10.7.0.0/28",
    )  # fmt: skip
    assert c.create(service("a", type="NodePort", ports=[{"port": 80, "targetPort": "NO SUCH"}]))[0] == 422
    assert c.addresses() == before
    for i in range(10):  # all ports are still free
        assert c.create(service(f"s{i}", type="NodePort"))[0] == 201
    code, status = c.create(service("more", type="NodePort"))
    assert (code, status["message"]) == (500, "Internal error occurred: failed to allocate a nodePort: range is full")
    for i in range(10):
        c.delete(f"s{i}")


def test_node_ports_follow_the_type(single):
    c = Client(single, "types")
    made = c.create(service("a", type="NodePort"))[1]
    port = made["spec"]["ports"][0]["nodePort"]
    assert 31000 <= port <= 31009
    code, status = c.create(service("b", type="NodePort", ports=[{"port": 80, "nodePort": port}]))
    assert (code, status["details"]["causes"][0]["field"]) == (422, "spec.ports[0].nodePort")
    assert status["message"].endswith("provided port is already allocated")
    code, status = c.create(service("b", type="NodePort", ports=[{"port": 80, "nodePort": 1}]))
    assert status["message"].endswith("provided port is not in the valid range. The range of valid ports is 31000-31009")
    changed = c.patch("a", {"type": "ClusterIP"})[1]
    assert "nodePort" not in changed["spec"]["ports"][0]
    assert changed["spec"]["clusterIP"] == made["spec"]["clusterIP"]
    assert c.create(service("b", type="NodePort", ports=[{"port": 80, "nodePort": port}]))[0] == 201
    gone = c.patch("a", {"type": "ExternalName", "externalName": "x.example"})[1]
    assert "clusterIP" not in gone["spec"]
    assert made["spec"]["clusterIP"] not in c.addresses()
    assert c.patch("a", {"type": "ClusterIP", "externalName": None})[1]["spec"]["clusterIP"] in c.addresses()
    c.delete("a"), c.delete("b")


def test_a_replaced_service_keeps_its_allocations(single):
    c = Client(single, "replaced")
    made = c.create(service("a", type="NodePort"))[1]["spec"]

    def put(**spec):
        return c.call("PUT", f"{NAMESPACED}replaced/services/a", service("a", type="NodePort", **spec))

    code, again = put()
    assert (code, again["spec"]) == (200, made)
    other = next(ip for ip in ("10.7.0.13", "10.7.0.14") if ip != made["clusterIP"])  # which port it got is random
    code, status = put(clusterIP=other)
    message = f'Service "a" is invalid: spec.clusterIPs[0]: Invalid value: ["{other}"]: may not change once set'
    assert (code, status["message"]) == (422, message)
    # A second port without a name gets the port of the first, by its name.
    code, status = put(ports=[{"port": 80}, {"port": 81}])
    assert (code, status["message"]) == (500, f"duplicate nodePort: {{TCP {made['ports'][0]['nodePort']}}}")
    c.delete("a")


def test_a_changed_range_is_read_again(monkeypatch):
    def record(name: str, revision: int, cidr: str) -> Any:
        return SimpleNamespace(key=name, revision=revision, cidr=cidr)

    records, read = [record("a", 1, "10.0.0.0/24"), record("b", 2, "10.1.0.0/24")], list[str]()
    store = SimpleNamespace(range=lambda root: SimpleNamespace(records=records), part=lambda root: None)
    registry: Any = SimpleNamespace(root="/r/", whole=store)

    def object_of(rec: Any) -> dict[str, Any]:
        read.append(rec.key)
        return {"metadata": {}, "spec": {"cidrs": [rec.cidr]}}

    monkeypatch.setattr(allocation, "object_of", object_of)
    made = allocation.ServiceAllocator(["IPv4"], (30000, 30010), registry, registry)
    for _ in range(3):
        assert [str(r.network) for r in made._ranges()] == ["10.0.0.0/24", "10.1.0.0/24"]
    assert read == ["a", "b"]
    records[1] = record("b", 3, "10.2.0.0/24")
    assert [str(r.network) for r in made._ranges()] == ["10.0.0.0/24", "10.2.0.0/24"]
    del records[0]
    assert [str(r.network) for r in made._ranges()] == ["10.2.0.0/24"] and read == ["a", "b", "b"]


def test_an_invalid_network_provides_no_range():
    """Another client of the store had written it, and every write of a Service failed."""
    stored: list[dict[str, Any]] = [
        {"metadata": {}, "spec": {"cidrs": ["none", "10.0.0.0", "10.0.0.0/33", "10.1.2.3/24"]}}, {"metadata": {}, "spec": {}},
        {"metadata": {}, "spec": {"cidrs": ["fd00::/120"]}},
    ]
    assert [str(r.network) for r in addresses.ranges(stored)] == ["10.1.2.0/24", "fd00::/120"]


def test_many_node_ports_are_allocated_in_linear_time():
    """Each allocation used to walk over all that the operation had made before and, once few were free, over the whole range: 17 s for
    50,000."""
    looks = []

    def all_taken() -> set[int]:
        looks.append(1)
        return {30000, 30500}

    choice = PortChoice((30000, 32767), {30000, 30500}.__contains__, all_taken, dry_run=False)
    choice.take(31000)
    assert {choice.take_any() for _ in range(2765)} == set(range(30000, 32768)) - {30000, 30500, 31000}
    with pytest.raises(AllocationError, match="range is full"):
        choice.take_any()
    assert len(looks) == 1
    dry = PortChoice((30000, 32767), set().__contains__, set, dry_run=True)
    assert [dry.take_any() for _ in range(3)] == [32769, 32770, 32771]
    dry.take(40000)
    assert dry.take_any() == 40001 and isinstance(dry.mine, set)  # checked for each port


def test_a_load_balancer_keeps_its_node_ports_until_they_are_removed(single):
    c = Client(single, "kept")
    port = c.create(service("a", type="LoadBalancer"))[1]["spec"]["ports"][0]["nodePort"]
    assert c.patch("a", {"allocateLoadBalancerNodePorts": False})[1]["spec"]["ports"][0]["nodePort"] == port
    assert "nodePort" not in c.patch("a", {"ports": [{"port": 80}]})[1]["spec"]["ports"][0]
    c.delete("a")


@pytest.mark.parametrize(
    "spec", [{"type": "ClusterIP"}, {"type": "ExternalName", "externalName": "a.b", "clusterIP": "", "clusterIPs": []}]
)
def test_a_service_deleted_by_an_update_releases_everything(single, spec):
    """The update that removes the last finalizer may need fewer allocations than the Service has."""
    c = Client(single, f"going-{spec['type'].lower()}")
    path = f"{NAMESPACED}{c.namespace}/services/s"
    made = service("s", type="NodePort")
    made["metadata"]["finalizers"] = ["example.com/x"]
    had = c.create(made)[1]["spec"]
    c.delete("s")
    last = c.call("GET", path)[1]
    last["metadata"]["finalizers"] = []
    last["spec"] |= spec
    status, shown = c.call("PUT", path, last)
    assert status == 200 and shown["spec"]["type"] == spec["type"] and c.call("GET", path)[0] == 404
    assert had["clusterIP"] not in c.addresses()
    again = service("t", type="NodePort", clusterIP=had["clusterIP"], ports=[{"port": 80, "nodePort": had["ports"][0]["nodePort"]}])
    assert c.create(again)[0] == 201
    c.delete("t")


def test_protocols_of_a_port_share_its_node_port(single):
    c = Client(single, "protocols")
    ports = [{"name": "t", "port": 53, "protocol": "TCP"}, {"name": "u", "port": 53, "protocol": "UDP"}]
    made = c.create(service("a", type="NodePort", ports=ports))[1]
    assert made["spec"]["ports"][0]["nodePort"] == made["spec"]["ports"][1]["nodePort"]
    c.delete("a")


def test_health_check_port_is_kept_and_released(single):
    c = Client(single, "health")
    made = c.create(service("a", type="LoadBalancer", externalTrafficPolicy="Local"))[1]
    port = made["spec"]["healthCheckNodePort"]
    assert c.call("PUT", f"{NAMESPACED}health/services/a", service("a", type="LoadBalancer", externalTrafficPolicy="Local"))[1]["spec"][
        "healthCheckNodePort"
    ] == port
    assert "healthCheckNodePort" not in c.patch("a", {"externalTrafficPolicy": "Cluster"})[1]["spec"]
    assert c.create(service("b", type="NodePort", ports=[{"port": 80, "nodePort": port}]))[0] == 201
    c.delete("a"), c.delete("b")


def test_no_address_is_allocated_twice_and_a_full_range_is_reported(single):
    """A /28 has 14 addresses; clients of two workers request 20 at once."""
    c = Client(single, "race")
    free = 14 - len(c.addresses())
    with ThreadPoolExecutor(10) as pool:
        results = list(pool.map(lambda i: c.create(service(f"s{i}")), range(20)))
    made = [b["spec"]["clusterIP"] for code, b in results if code == 201]
    assert len(made) == len(set(made)) == free
    failed = [b["message"] for code, b in results if code != 201]
    assert set(failed) == {"Internal error occurred: failed to allocate a serviceIP: range is full"}
    assert sorted(ip for ip, owner in c.addresses().items() if owner.startswith("race/")) == sorted(made)
    for i in range(20):
        c.delete(f"s{i}")


def _create_many(where: tuple[str, str, str], prefix: str) -> list[tuple[int, str]]:
    out = []
    for i in range(12):
        code, body = call(where, "POST", f"{NAMESPACED}ports/services", service(f"{prefix}{i}", type="NodePort"))
        out.append((body["spec"]["ports"][0]["nodePort"], body["spec"]["clusterIP"]) if code == 201 else (code, body["message"]))
        if code == 201 and i % 2:
            call(where, "DELETE", f"{NAMESPACED}ports/services/{prefix}{i}")
    return out


def test_node_ports_under_concurrent_processes(single):
    c = Client(single, "ports")
    with ProcessPoolExecutor(3) as pool:
        list(pool.map(_create_many, [c.where] * 3, ["a", "b", "c"]))
    services = c.call("GET", f"{NAMESPACED}ports/services")[1]["items"]
    ports = [s["spec"]["ports"][0]["nodePort"] for s in services]
    ips = [s["spec"]["clusterIP"] for s in services]
    assert len(set(ports)) == len(ports) == 10 or len(set(ips)) == len(ips)
    assert len(set(ports)) == len(ports)
    for s in services:
        c.delete(s["metadata"]["name"])
    for i in range(10):
        assert c.create(service(f"after{i}", type="NodePort"))[0] == 201
    for i in range(10):
        c.delete(f"after{i}")


def test_dual_stack_follows_the_policy(dual):
    c = Client(dual, "dual")
    made = c.create(service("a"))[1]["spec"]
    assert (made["ipFamilies"], made["ipFamilyPolicy"]) == (["IPv4"], "SingleStack")
    up = c.patch("a", {"ipFamilyPolicy": "RequireDualStack"})[1]["spec"]
    assert up["ipFamilies"] == ["IPv4", "IPv6"]
    assert up["clusterIPs"][0] == made["clusterIP"]
    assert up["clusterIPs"][1] in c.addresses()
    code, status = c.patch("a", {"clusterIPs": up["clusterIPs"][:1]})
    assert code == 422
    assert "must be 'SingleStack' to release the secondary cluster IP" in status["message"]
    down = c.patch("a", {"ipFamilyPolicy": "SingleStack"})[1]["spec"]
    assert down["clusterIPs"] == up["clusterIPs"][:1]
    assert up["clusterIPs"][1] not in c.addresses()


def test_requested_dual_stack_families_and_addresses(dual):
    c = Client(dual, "asked")
    made = c.create(service("a", clusterIPs=["fd00:8::9", "10.8.0.9"], clusterIP="fd00:8::9", ipFamilyPolicy="PreferDualStack"))[1]["spec"]
    assert made["ipFamilies"] == ["IPv6", "IPv4"]
    six = c.create(service("b", ipFamilies=["IPv6"]))[1]["spec"]
    assert six["clusterIP"].startswith("fd00:8::")
    code, status = c.create(service("c", ipFamilies=["IPv4", "IPv6"], ipFamilyPolicy="SingleStack"))
    assert code == 422
    assert "must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are specified" in status["message"]


@pytest.mark.parametrize("policy", ["PreferDualStack", "RequireDualStack"])
def test_no_address_of_a_family_that_the_cluster_lacks_is_looked_for(single, policy):
    """A Service without a selector that is made headless gets both families, also in a cluster with one."""
    c = Client(single, f"lacks-{policy.lower()}")
    made, path = c.create(service("a"))[1], f"{NAMESPACED}{c.namespace}/services/a"
    code, status = c.call("PUT", path, service("a", clusterIP="None", clusterIPs=["None"], ipFamilyPolicy=policy))
    assert code == 422, status
    assert status["details"]["causes"][0]["field"] == "spec.clusterIPs[0]"
    assert c.call("GET", path)[1] == made
    c.delete("a")


def test_a_second_range_is_used_when_the_first_is_full_and_protected(single):
    c = Client(single, "cidrs")
    while c.create(service("x" + str(len(c.addresses()))))[0] == 201:
        pass
    cidr = {"metadata": {"name": "more"}, "spec": {"cidrs": ["10.7.1.0/28"]}}
    assert c.call("POST", "/apis/networking.k8s.io/v1/servicecidrs", cidr)[0] == 201
    code, made = c.create(service("extra"))
    assert code == 201
    assert made["spec"]["clusterIP"].startswith("10.7.1.")
    for s in c.call("GET", f"{NAMESPACED}cidrs/services")[1]["items"]:
        c.delete(s["metadata"]["name"])
    c.call("DELETE", "/apis/networking.k8s.io/v1/servicecidrs/more")


def test_the_kubernetes_service_uses_the_node_port_flag(kas_server):
    server = kas_server("--kubernetes-service-node-port=30443")
    client = Client(server, "its-port")
    own = client.call("GET", f"{NAMESPACED}default/services/kubernetes")[1]["spec"]
    assert (own["type"], own["ports"][0]["nodePort"]) == ("NodePort", 30443)
    mine = service("s", type="NodePort", ports=[{"port": 80, "nodePort": 30443}])
    status, refused = client.create(mine)
    assert status == 422 and "provided port is already allocated" in refused["message"]
    server.stop()
    server.flags = ()
    server.start()
    client = Client(server, "its-port")
    own = client.call("GET", f"{NAMESPACED}default/services/kubernetes")[1]["spec"]
    assert own["type"] == "ClusterIP" and "nodePort" not in own["ports"][0] and "externalTrafficPolicy" not in own
    assert client.create(mine)[0] == 201, "it was given back"
