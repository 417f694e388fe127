"""What a kube-apiserver on the same etcd has to know of allocated addresses and node ports, compared in the bytes that both store."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from kas.store.etcd import etcd_pb2 as pb
from kas.store.etcd.client import PUT, RANGE
from kas.store.etcd.client import Client as Calls
from kas.testing.server import KasServer
from kas.types.scheme import BUILTIN, decode_protobuf, open_envelope
from tests.conftest import Client
from tests.etcd import Etcd

SERVICES, BITMAP = "/api/v1/namespaces/default/services", "/registry/ranges/servicenodeports"
LOW = 30000
# empty metadata, as Go encodes an ObjectMeta
NO_METADATA = b"\x0a\x10\x0a\x00\x12\x00\x1a\x00\x22\x00\x2a\x00\x32\x00\x38\x00\x42\x00"
HEAD = b"k8s\0\x0a\x15\x0a\x02v1\x12\x0fRangeAllocation\x12"


@pytest.fixture(scope="module")
def etcd(tmp_path_factory) -> Iterator[Etcd]:
    with Etcd(tmp_path_factory.mktemp("etcd")) as etcd:
        yield etcd


@pytest.fixture(scope="module")
def pair(etcd: Etcd, tmp_path_factory) -> Iterator[tuple[KasServer, KasServer]]:
    flags = ("--storage-backend=etcd3", f"--etcd-servers={etcd.url}", "--advertise-address=127.0.0.1")
    one, two = (tmp_path_factory.mktemp(name) for name in ("one", "two"))
    with KasServer(one, *flags) as a, KasServer(two, *flags) as b:
        yield a, b


def value(ports: set[int], span: str = "30000-32767") -> bytes:
    """Returns what kube-apiserver stores for these ports."""
    bits = sum(1 << (port - LOW) for port in ports)
    data = bits.to_bytes((bits.bit_length() + 7) // 8, "big")
    size = b"" if len(data) < 128 else bytes((len(data) & 127 | 128, len(data) >> 7))
    raw = NO_METADATA + b"\x12\x0b" + span.encode() + b"\x1a" + (size or bytes((len(data),))) + data
    length = bytes((len(raw),)) if len(raw) < 128 else bytes((len(raw) & 127 | 128, len(raw) >> 7))
    return HEAD + length + raw + b"\x1a\x00\x22\x00"


def held(etcd: Etcd) -> set[int]:
    """Returns the ports in the bitmap."""
    stored = etcd.value(BITMAP)
    assert stored is not None
    api_version, kind, raw, _ = open_envelope(stored)
    assert (api_version, kind) == ("v1", "RangeAllocation")
    import base64

    obj = decode_protobuf(BUILTIN.known("", "v1", "RangeAllocation").type, raw)
    assert obj["range"] == "30000-32767"
    bits = int.from_bytes(base64.b64decode(obj.get("data") or ""), "big")
    return {LOW + i for i in range(bits.bit_length()) if bits >> i & 1}


def service(name: str, **port: int) -> dict:
    return {"metadata": {"name": name}, "spec": {"type": "NodePort", "ports": [{"port": 80, **port}]}}


def test_ports_are_in_kube_apiservers_bitmap(pair, etcd):
    one, two = map(Client, pair)
    status, made = one("POST", SERVICES, service("a", nodePort=30007))
    assert status == 201, made
    assert held(etcd) == {30007}
    assert etcd.value(BITMAP) == value({30007})
    status, made = two("POST", SERVICES, service("b"))
    port = made["spec"]["ports"][0]["nodePort"]
    assert status == 201 and etcd.value(BITMAP) == value({30007, port})
    status, changed = one("PATCH", f"{SERVICES}/a", {"spec": {"ports": [{"port": 80, "nodePort": 30009}]}}, "application/merge-patch+json")
    assert status == 200, changed
    assert held(etcd) == {30009, port}
    assert two("DELETE", f"{SERVICES}/a")[0] == 200 and one("DELETE", f"{SERVICES}/b")[0] == 200
    assert held(etcd) == set()
    # An address is an IPAddress of networking.k8s.io/v1, as kube-apiserver creates them.
    status, made = one("POST", SERVICES, {"metadata": {"name": "ip"}, "spec": {"ports": [{"port": 80}]}})
    stored = etcd.value(f"/registry/ipaddresses/{made['spec']['clusterIP']}")
    assert stored is not None
    api_version, kind, raw, _ = open_envelope(stored)
    assert (api_version, kind) == ("networking.k8s.io/v1", "IPAddress")
    address = decode_protobuf(BUILTIN.known("networking.k8s.io", "v1", "IPAddress").type, raw)
    assert address["spec"]["parentRef"] == {"resource": "services", "namespace": "default", "name": "ip"}
    assert address["metadata"]["labels"] == {
        "ipaddress.kubernetes.io/ip-family": "IPv4", "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
    }  # fmt: skip
    assert one("DELETE", f"{SERVICES}/ip")[0] == 200


def test_ports_that_a_kube_apiserver_allocated_are_taken(pair, etcd):
    one, two = map(Client, pair)
    free = {30100, 31234}
    client = Calls(etcd.config)
    try:
        client.call(PUT, pb.PutRequest(key=BITMAP.encode(), value=value(set(range(LOW, 32768)) - free)))
    finally:
        client.close()
    assert Client(pair[0])("GET", SERVICES)[0] == 200  # a read without a revision makes the replica catch up
    assert Client(pair[1])("GET", SERVICES)[0] == 200
    status, refused = one("POST", SERVICES, service("taken", nodePort=30555))
    assert (status, refused["reason"]) == (422, "Invalid") and "already allocated" in refused["message"]
    got = set()
    for client, name in ((one, "x"), (two, "y")):
        status, made = client("POST", SERVICES, service(name))
        assert status == 201, made
        got.add(made["spec"]["ports"][0]["nodePort"])
    assert got == free
    status, refused = two("POST", SERVICES, service("z"))
    assert status == 500 and "range is full" in refused["message"]
    assert one("DELETE", f"{SERVICES}/x")[0] == 200 and one("DELETE", f"{SERVICES}/y")[0] == 200
    assert free.isdisjoint(held(etcd))


def test_an_invalid_bitmap_fails_allocation_of_ports(pair, etcd):
    one = Client(pair[0])
    before, client = etcd.value(BITMAP), Calls(etcd.config)
    try:
        client.call(PUT, pb.PutRequest(key=BITMAP.encode(), value=b'{"junk'))
        assert one("GET", SERVICES)[0] == 200  # a read without a revision makes the replica catch up
        status, refused = one("POST", SERVICES, service("with"))
        assert (status, refused["message"]) == (500, "unexpected end of JSON input")
        # As the API's own Service, without which no server starts.
        status, made = one("POST", SERVICES, {"metadata": {"name": "without"}, "spec": {"ports": [{"port": 80}]}})
        assert status == 201, made
    finally:
        client.call(PUT, pb.PutRequest(key=BITMAP.encode(), value=before))
        client.close()
    assert one("DELETE", f"{SERVICES}/without")[0] == 200


def test_two_servers_at_once_allocate_each_port_once(pair, etcd):
    client = Calls(etcd.config)
    try:
        assert client.call(RANGE, pb.RangeRequest(key=BITMAP.encode())).kvs
        client.call(PUT, pb.PutRequest(key=BITMAP.encode(), value=value(set())))
    finally:
        client.close()

    def make(i: int) -> int:
        status, made = Client(pair[i % 2])("POST", SERVICES, service(f"many{i}"))
        assert status == 201, made
        return made["spec"]["ports"][0]["nodePort"]

    with ThreadPoolExecutor(8) as pool:
        ports = list(pool.map(make, range(32)))
    assert len(set(ports)) == 32 and held(etcd) == set(ports)
    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(lambda i: Client(pair[i % 2])("DELETE", f"{SERVICES}/many{i}")[0], range(32)))
    assert set(done) == {200} and held(etcd) == set()
