"""Every built-in kind of the sample objects: create, get, label, list, watch and delete it, and the key it is stored under.

Beta and alpha versions are enabled. Admission plug-ins that need more than the sample has are disabled: the samples were made for the
store.
"""

from __future__ import annotations

import copy
import json
import random
import time

import pytest
import requests

from kas.registry.generic import Registry
from kas.types.scheme import BUILTIN, decode, encode_protobuf
from tests import prerequisites
from tests.vectors import files

SAMPLES = files.lines("etcd-samples")
MISSING = f"no sample objects in {files.DIRECTORY}"
NAMESPACE = "ns1"
# Custom resources are not built in.
BUILT_IN = [v for v in SAMPLES if BUILTIN.resource(v["in"]["group"], v["in"]["version"], v["in"]["resource"]) is not None]
PARAMS = [pytest.param(v, id=v["id"]) for v in BUILT_IN] or [pytest.param(None, id="none", marks=prerequisites.missing(MISSING))]
# Deleted by others than the client that requests it: what protects or finalizes them runs in another process of a cluster.
FINALIZED = {"namespaces", "persistentvolumeclaims", "persistentvolumes", "volumeattributesclasses", "podgroups"}

pytestmark = pytest.mark.client


@pytest.fixture(scope="module")
def server(module_server):
    server = module_server(
        "--unsafe-no-fsync",
        "--controllers=none",
        "--runtime-config=api/all=true",
        "--feature-gates=AllAlpha=true,AllBeta=true",
        # The range of the sample services' addresses.
        "--service-cluster-ip-range=10.0.0.0/24",
        "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition,Priority,PodSecurity",
    )
    s = session(server)
    until(lambda: s.get(server.url + "/readyz").status_code == 200)  # writes wait for reports of storage versions
    assert s.post(server.url + "/api/v1/namespaces", json={"metadata": {"name": NAMESPACE}}).status_code == 201
    return server


def session(server) -> requests.Session:
    s = requests.Session()
    s.trust_env = False  # a CA bundle named in the environment would replace ours
    s.verify, s.headers["Authorization"] = server.ca, f"Bearer {server.token}"
    return s


def collection(resource) -> str:
    root = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
    return f"{root}/namespaces/{NAMESPACE}/{resource.resource}" if resource.namespaced else f"{root}/{resource.resource}"


def answer(response: requests.Response, *codes: int) -> dict:
    assert response.status_code in codes, f"{response.request.method} {response.request.url}: {response.status_code} {response.text[:600]}"
    return response.json()


@pytest.mark.parametrize("vector", PARAMS)
def test_sample(vector, server):
    given = vector["in"]
    resource = BUILTIN.resource(given["group"], given["version"], given["resource"])
    name, url, s = given["object"]["metadata"]["name"], server.url + collection(resource), session(server)
    api_version = f"{given['group']}/{given['version']}" if given["group"] else given["version"]

    created = answer(s.post(url, json={"apiVersion": api_version, "kind": given["kind"], **given["object"]}), 201)
    assert (created["kind"], created["apiVersion"], created["metadata"]["name"]) == (given["kind"], api_version, name)
    assert created["metadata"]["uid"] and created["metadata"]["creationTimestamp"]
    if given["resource"] == "flowschemas":
        # The server itself sets a condition that the priority level is missing.
        until(lambda: answer(s.get(f"{url}/{name}"), 200)["status"].get("conditions"))
        created = answer(s.get(f"{url}/{name}"), 200)
    revision = created["metadata"]["resourceVersion"]

    got = answer(s.get(f"{url}/{name}"), 200)
    assert got == created
    protobuf = s.get(f"{url}/{name}", headers={"Accept": "application/vnd.kubernetes.protobuf"}).content
    assert protobuf == encode_protobuf(resource.type, decode(resource.type, got)[0], api_version=api_version, kind=given["kind"])

    # A watch from the creation on sees the update and the delete, in order.
    watch = s.get(
        url,
        params={"watch": "true", "resourceVersion": revision, "fieldSelector": f"metadata.name={name}", "timeoutSeconds": "60"},
        stream=True,
        timeout=30,
    )
    assert watch.status_code == 200, watch.text
    events = (json.loads(line) for line in watch.iter_lines(chunk_size=1) if line)

    got["metadata"].setdefault("labels", {})["tested"] = "yes"
    updated = answer(s.put(f"{url}/{name}", json=got), 200)
    assert updated["metadata"]["labels"]["tested"] == "yes"
    assert updated["metadata"]["resourceVersion"] != revision and updated["metadata"]["uid"] == created["metadata"]["uid"]
    event = next(events)
    assert (event["type"], event["object"]) == ("MODIFIED", updated)

    listed = answer(s.get(url, params={"labelSelector": "tested=yes"}), 200)
    assert listed["kind"] == resource.list_kind
    assert [o["metadata"]["name"] for o in listed["items"]] == [name]
    # Items of a list have no kind of their own.
    assert listed["items"][0]["spec" if "spec" in updated else "metadata"] == updated["spec" if "spec" in updated else "metadata"]

    deleted = answer(s.delete(f"{url}/{name}", params={"gracePeriodSeconds": "0", "propagationPolicy": "Background"}), 200, 202)
    left = s.get(f"{url}/{name}")
    if left.status_code == 200:
        assert given["resource"] in FINALIZED, f"still there after the delete: {deleted}"
        assert left.json()["metadata"]["deletionTimestamp"]
        event = next(events)
        assert (event["type"], event["object"]) == ("MODIFIED", left.json())
        release(s, url, name, given["resource"])
    else:
        assert left.status_code == 404
    event = next(events)
    if given["resource"] == "pods":  # objects with a grace period are marked first
        assert event["type"] == "MODIFIED" and event["object"]["metadata"]["deletionGracePeriodSeconds"] == 0
        event = next(events)
    assert event["type"] == "DELETED"
    assert event["object"]["metadata"]["uid"] == created["metadata"]["uid"]
    watch.close()


def until(condition) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


def release(s: requests.Session, url: str, name: str, plural: str) -> None:
    """Does the work of a cluster's controllers for an object that is being deleted: removes the finalizers."""
    if plural == "namespaces":
        body = answer(s.get(f"{url}/{name}"), 200)
        body["spec"]["finalizers"] = []
        answer(s.put(f"{url}/{name}/finalize", json=body), 200)
    else:
        answer(
            s.patch(f"{url}/{name}", data='{"metadata":{"finalizers":null}}', headers={"Content-Type": "application/merge-patch+json"}), 200
        )
    assert s.get(f"{url}/{name}").status_code == 404


@pytest.mark.parametrize("vector", PARAMS)
def test_storage_keys_are_upstreams(vector):
    """Objects are stored under kube-apiserver's keys, so that data can be moved between the two."""
    given = vector["in"]
    resource = BUILTIN.resource(given["group"], given["version"], given["resource"])
    home = (
        BUILTIN.resource(resource.group, resource.storage_gvk[1], resource.resource) if resource.storage_gvk[0] == resource.group else None
    )
    registry = Registry(home or resource, None, lambda: "")
    assert registry.key(NAMESPACE, given["object"]["metadata"]["name"]) == vector["out"]["etcdPath"]


ODD = [
    None, "", 0, -1, 1.5, 1e300, 2**63, -(2**63), [], {}, "x" * 300, True, "\0", "null", "2020-01-01T00:00:00Z", "100Mi", "-5", "1e9999",
    "10.0.0.0/33", "fd00::1", "*", "/", "..", [None], {"": ""}, {"a": None}, [[]], [{}], ["", ""], {"matchLabels": {"a": "b"}},
    {"key": "a", "operator": "In", "values": []}, 2**31, "9" * 400,
]  # fmt: skip


def places(value, at=()):
    """The path of every value inside of ``value``."""
    for key, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield (*at, key)
        yield from places(item, (*at, key))


def altered(obj: dict, chance: random.Random) -> dict:
    """A copy with another value in one to three places: a wrong type, a limit, nothing."""
    obj = copy.deepcopy(obj)
    for _ in range(chance.choice((1, 1, 2, 3))):
        at = chance.choice([p for p in places(obj) if p not in (("metadata",), ("metadata", "name"))] or [("spec",)])
        inside = obj
        for key in at[:-1]:
            inside = inside[key]
        if chance.random() < 0.15 and isinstance(inside, dict):
            inside.pop(at[-1], None)
        else:
            inside[at[-1]] = copy.deepcopy(chance.choice(ODD))
    return obj


@pytest.mark.parametrize("vector", PARAMS)
def test_altered_samples_never_cause_a_panic(vector, server):
    """Whatever is wrong with an object of any kind, in any form of write, it is refused or accepted."""
    given, chance = vector["in"], random.Random(vector["id"])
    resource = BUILTIN.resource(given["group"], given["version"], given["resource"])
    name, url, s = given["object"]["metadata"]["name"], server.url + collection(resource), session(server)
    whole = {"apiVersion": resource.api_version, "kind": resource.kind, **given["object"]}
    s.post(url, json=whole)
    for _ in range(12):
        for method, where, ctype in (
            ("POST", "?dryRun=All", "json"), ("PUT", f"/{name}?dryRun=All", "json"),
            ("PATCH", f"/{name}?dryRun=All", "merge-patch+json"), ("PATCH", f"/{name}?dryRun=All", "strategic-merge-patch+json"),
            ("PATCH", f"/{name}/status?dryRun=All", "merge-patch+json"),
            ("PATCH", f"/{name}?dryRun=All&fieldManager=m&force=true", "apply-patch+yaml"),
        ):  # fmt: skip
            body = json.dumps(altered(whole, chance))
            answer = s.request(method, url + where, data=body, headers={"Content-Type": f"application/{ctype}"})
            # Upstream answers some patches with a 500 without reason; a panic has a reason.
            assert answer.status_code < 500 or "reason" not in answer.json(), (method, where, body, answer.text)
    s.delete(f"{url}/{name}?gracePeriodSeconds=0&propagationPolicy=Background")
    if given["resource"] in FINALIZED and s.get(f"{url}/{name}").status_code == 200:
        release(s, url, name, given["resource"])
