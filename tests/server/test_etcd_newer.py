"""Fields of a newer version, which another server of the cluster has written: every verb that rewrites an object keeps them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from kas.store.etcd import client as kv
from kas.store.etcd import etcd_pb2 as pb
from kas.testing.server import KasServer
from kas.types.scheme import envelope, open_envelope
from tests.conftest import Client
from tests.controllers.waiting import until
from tests.etcd import Etcd
from tests.types.protobufs import field, parts

DEPLOYMENTS, PODS = "/apis/apps/v1/namespaces/default/deployments", "/api/v1/namespaces/default/pods"
REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
MERGE, JSON_PATCH = "application/merge-patch+json", "application/json-patch+json"
STRATEGIC, APPLY = "application/strategic-merge-patch+json", "application/apply-patch+yaml"
PLACES = 4  # the object, its metadata, spec and status
LABELED = {"metadata": {"labels": {"a": "b"}}}

# A request for the object at a path. The argument is the object as read there; the result is method, path, body and content type.
Step = Callable[[str, dict[str, Any]], tuple[str, str, Any, str]]


class Case(NamedTuple):
    path: str  # on the collection
    key: str  # in etcd, of its directory
    obj: dict[str, Any]
    step: Step
    sub: str = ""


def changed(obj: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return obj | {name: obj.get(name, {}) | value for name, value in fields.items()}


def put(sub: str = "", **fields: Any) -> Step:
    return lambda path, obj: ("PUT", path + sub, changed(obj, **fields), "application/json")


def patch(ctype: str, body: Any, sub: str = "", query: str = "") -> Step:
    return lambda path, _: ("PATCH", path + sub + query, body, ctype)


def post(sub: str, body: Any) -> Step:
    return lambda path, _: ("POST", path + sub, body, "application/json")


TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
DEPLOYMENT = {"metadata": {}, "spec": {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE}}
APPLIED = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"labels": {"a": "b"}}}
SCALED = {"apiVersion": "autoscaling/v1", "kind": "Scale", "spec": {"replicas": 3}}
POD = {"metadata": {}, "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]}}
DEBUGGER = {"ephemeralContainers": [{"name": "d", "image": "i", "terminationMessagePolicy": "File", "imagePullPolicy": "Always"}]}
RESIZED = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]}}
BINDING = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "binding"}, "target": {"kind": "Node", "name": "n"}}
EVICTION = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "eviction"}}
CONDITION = {"type": "Approved", "status": "True", "reason": "r", "message": "m"}
QUOTA = {"metadata": {}, "spec": {"hard": {"pods": "1"}}}


def deployment(step: Step, sub: str = "") -> Case:
    return Case(DEPLOYMENTS, "/registry/deployments/default/", DEPLOYMENT, step, sub)


def pod(step: Step, sub: str = "") -> Case:
    return Case(PODS, "/registry/pods/default/", POD, step, sub)


CASES = {
    "put": deployment(put(spec={"replicas": 2})),
    "merge": deployment(patch(MERGE, LABELED)),
    "json patch": deployment(patch(JSON_PATCH, [{"op": "replace", "path": "/spec/replicas", "value": 2}])),
    "strategic": deployment(patch(STRATEGIC, LABELED)),
    "apply": deployment(patch(APPLY, APPLIED, query="?fieldManager=m&force=true")),
    "status": deployment(put("/status", status={"replicas": 1})),
    "status patch": deployment(patch(MERGE, {"status": {"replicas": 1}}, "/status")),
    "status apply": deployment(patch(APPLY, APPLIED | {"status": {"replicas": 1}}, "/status", "?fieldManager=m&force=true")),
    "scale": deployment(put("/scale", spec={"replicas": 3}), "/scale"),
    "scale patch": deployment(patch(MERGE, {"spec": {"replicas": 3}}, "/scale")),
    "scale apply": deployment(patch(APPLY, SCALED, "/scale", "?fieldManager=m&force=true")),
    "delete": deployment(lambda path, _: ("DELETE", path, {"propagationPolicy": "Foreground"}, "application/json")),
    "deletecollection": deployment(lambda _, __: ("DELETE", DEPLOYMENTS, {"propagationPolicy": "Orphan"}, "application/json")),
    "ephemeralcontainers": pod(put("/ephemeralcontainers", spec=DEBUGGER)),
    "resize": pod(patch(STRATEGIC, RESIZED, "/resize")),
    "binding": pod(post("/binding", BINDING)),
    "pod status": pod(patch(STRATEGIC, {"status": {"phase": "Running"}}, "/status")),
    "eviction": Case(PODS, "/registry/pods/default/", changed(POD, spec=POD["spec"] | {"nodeName": "n"}), post("/eviction", EVICTION)),
    "pod delete": Case(
        PODS, "/registry/pods/default/", changed(POD, spec=POD["spec"] | {"nodeName": "n"}),
        lambda path, _: ("DELETE", path, None, "application/json"),
    ),
    "finalize": Case("/api/v1/namespaces", "/registry/namespaces/", {"metadata": {}}, put("/finalize", spec={"finalizers": ["a/b"]})),
    "quota status": Case(
        "/api/v1/namespaces/default/resourcequotas", "/registry/resourcequotas/default/", QUOTA,
        put("/status", status={"hard": {"pods": "1"}}),
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    with Etcd(tmp_path_factory.mktemp("etcd")) as etcd:
        yield etcd


@pytest.fixture(scope="module")
def client(etcd: Etcd, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    flags = ("--storage-backend=etcd3", f"--etcd-servers={etcd.url}", "--advertise-address=127.0.0.1", "--controllers=none")
    with KasServer(tmp_path_factory.mktemp("kas"), *flags) as server:
        client = Client(server)
        client("POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}})
        yield client


@pytest.mark.parametrize("name", CASES)
def test_a_verb_keeps_unknown_fields(etcd: Etcd, client: Client, name: str) -> None:
    case, called = CASES[name], name.replace(" ", "-")
    status, made = client("POST", case.path, changed(case.obj, metadata={"name": called}))
    assert status == 201, made
    url, key, unknown = f"{case.path}/{called}", case.key + called, field(1999, b"of a newer version")
    api_version, kind, message, _ = open_envelope(etcd.value(key))
    newer, found = b"", set()
    for number, _, content, whole in parts(message):
        found.add(number)
        newer += field(number, content + unknown) if number in (1, 2, 3) else whole
    newer += b"".join(field(number, unknown) for number in {1, 2, 3} - found) + unknown
    outside = kv.Client(etcd.config)
    try:
        revision = outside.call(kv.PUT, pb.PutRequest(key=key.encode(), value=envelope(api_version, kind, newer))).header.revision
    finally:
        outside.close()
    until(lambda: int(client("GET", url)[1]["metadata"]["resourceVersion"]) == revision)
    method, path, body, ctype = case.step(url, client("GET", url + case.sub)[1])
    status, told = client(method, path, body, ctype)
    assert status in (200, 201), told
    until(lambda: int(client("GET", url)[1]["metadata"]["resourceVersion"]) > revision)
    assert etcd.value(key).count(unknown) == PLACES
