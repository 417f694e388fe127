"""``--etcd-servers-overrides`` as a server's users see it: Events and Services in clusters of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kas.config.overrides import overrides
from kas.replicator import kept_below
from kas.store.etcd import etcd_pb2 as pb
from kas.store.etcd.client import COMPACT, PUT, RANGE
from kas.store.etcd.client import Client as Calls
from kas.testing.server import KasServer
from tests.conftest import Client
from tests.controllers.waiting import until
from tests.etcd import Etcd, snapshots

EVENTS, CONFIG_MAPS = "/api/v1/namespaces/default/events", "/api/v1/namespaces/default/configmaps"
SERVICES = "/api/v1/namespaces/default/services"


def flags(main: Etcd, events: Etcd) -> tuple[str, ...]:
    return (
        "--storage-backend=etcd3", f"--etcd-servers={main.url}", "--advertise-address=127.0.0.1",
        f"--etcd-servers-overrides=/events#{events.url},/services#{events.url}",
    )  # fmt: skip


@pytest.fixture(scope="module")
def etcds(tmp_path_factory) -> Iterator[tuple[Etcd, Etcd]]:
    with Etcd(tmp_path_factory.mktemp("main")) as main, Etcd(tmp_path_factory.mktemp("events")) as events:
        yield main, events


@pytest.fixture(scope="module")
def pair(etcds, tmp_path_factory) -> Iterator[tuple[KasServer, KasServer]]:
    one, two = (tmp_path_factory.mktemp(name) for name in ("one", "two"))
    with KasServer(one, *flags(*etcds), workers=2) as a, KasServer(two, *flags(*etcds)) as b:
        yield a, b


def event(name: str, **more: str) -> dict:
    return {
        "metadata": {"name": name, "namespace": "default"}, "reason": "A",
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"}, **more,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("given", "kept", "left"),
    [
        (("/events#A",), ["/registry/events/"], []),
        (("events.k8s.io/events#A",), [], ["/registry/events/"]),
        (("/services#A",), ["/registry/services/specs/", "/registry/ranges/"], ["/registry/services/endpoints/"]),
        (("apps/*#A", "apps/deployments#B"), ["/registry/daemonsets/", "/registry/statefulsets/"], ["/registry/deployments/"]),
        (("/configmaps#MAIN", "/*#A"), ["/registry/events/", "/registry/masterleases/", "/registry/ranges/"], ["/registry/configmaps/"]),
        (("apiextensions.k8s.io/customresourcedefinitions#A", "apiregistration.k8s.io/*#A"), [], ["/registry/apiextensions.k8s.io/"]),
    ],
)  # fmt: skip
def test_resources_in_other_clusters_are_those_of_kube_apiserver(given: tuple[str, ...], kept: list[str], left: list[str]) -> None:
    found = {prefix for one in overrides(given, ["MAIN"]) if one.servers == ("A",) for prefix in kept_below(one)}
    assert found >= set(kept)
    assert not any(prefix.startswith(tuple(left)) for prefix in found if left)
    assert kept or not found


def test_the_order_of_a_clusters_servers_does_not_matter() -> None:
    """Two replicators used to share one directory."""
    found = overrides(["/events#A;B", "/pods#B;A", "/nodes#C", "/secrets#MAIN2;MAIN1"], ["MAIN1", "MAIN2"])
    assert [(one.servers, one.resources) for one in found] == [(("A", "B"), (("", "events"), ("", "pods"))), (("C",), (("", "nodes"),))]


def revision_of(etcd: Etcd) -> int:
    client = Calls(etcd.config)
    try:
        return int(client.call(RANGE, pb.RangeRequest(key=b"/x")).header.revision)
    finally:
        client.close()


def test_each_cluster_has_its_own_objects_and_revisions(pair, etcds):
    (main, events), (one, two) = etcds, map(Client, pair)
    status, made = one("POST", EVENTS, event("e1"))
    assert status == 201, made
    assert events.value("/registry/events/default/e1") is not None and main.value("/registry/events/default/e1") is None
    kept, elsewhere = main.keys(), events.keys()
    assert not [key for key in kept if key.startswith(("/registry/events/", "/registry/services/specs/"))]
    assert {key.split("/")[2] for key in elsewhere} <= {"events", "services", "ranges", "kas"}
    assert int(made["metadata"]["resourceVersion"]) <= revision_of(events)
    # Reads at the other server without a revision see it, through either group, with the revision of that cluster.
    for path in (EVENTS, "/apis/events.k8s.io/v1/namespaces/default/events"):
        status, found = two("GET", f"{path}/e1")
        assert (status, found["metadata"]["resourceVersion"]) == (200, made["metadata"]["resourceVersion"])
        _, listed = two("GET", path)
        assert int(made["metadata"]["resourceVersion"]) <= int(listed["metadata"]["resourceVersion"]) <= revision_of(events)
    for _ in range(300):  # the main cluster's revision gets far ahead
        assert one("PATCH", "/api/v1/namespaces/default", {"metadata": {"annotations": {"a": os.urandom(8).hex()}}},
                   "application/merge-patch+json")[0] == 200  # fmt: skip
    _, listed = two("GET", CONFIG_MAPS)
    assert int(listed["metadata"]["resourceVersion"]) > revision_of(events)
    _, listed = two("GET", EVENTS)
    assert int(listed["metadata"]["resourceVersion"]) <= revision_of(events)
    # A conflict shows the object of that cluster.
    status, changed = two("PUT", f"{EVENTS}/e1", {**found_core(two), "reason": "B"})
    assert status == 200, changed
    assert one("PUT", f"{EVENTS}/e1", {**made, "reason": "C"})[0] == 409
    assert one("DELETE", f"{EVENTS}/e1")[0] == 200
    assert two("GET", f"{EVENTS}/e1")[0] == 404


def found_core(client: Client) -> dict:
    status, found = client("GET", f"{EVENTS}/e1")
    assert status == 200
    return found


def test_pages_watches_and_old_revisions_belong_to_the_cluster(pair, etcds):
    one, two = map(Client, pair)
    for i in range(5):
        assert one("POST", EVENTS, event(f"p{i}"))[0] == 201
    _, page = two("GET", f"{EVENTS}?limit=2")
    revision = page["metadata"]["resourceVersion"]
    assert one("POST", EVENTS, event("p9"))[0] == 201
    _, rest = one("GET", f"{EVENTS}?limit=2&continue={page['metadata']['continue']}")  # at the other server
    assert rest["metadata"]["resourceVersion"] == revision
    _, last = two("GET", f"{EVENTS}?continue={rest['metadata']['continue']}")
    names = [item["metadata"]["name"] for part in (page, rest, last) for item in part["items"]]
    assert names[-5:] == [f"p{i}" for i in range(5)]
    _, exact = two("GET", f"{EVENTS}?resourceVersion={revision}&resourceVersionMatch=Exact")
    assert [item["metadata"]["name"] for item in exact["items"]] == names
    answer = two.session.get(f"{two.server.url}{EVENTS}?watch=1&resourceVersion={revision}&timeoutSeconds=60", stream=True)
    lines = answer.iter_lines()
    assert b'"p9"' in next(lines)
    assert one("DELETE", f"{EVENTS}/p9")[0] == 200
    assert next(lines).startswith(b'{"type":"DELETED"')
    answer.close()


def test_a_service_and_its_allocations_in_two_clusters(pair, etcds):
    (main, events), (one, two) = etcds, map(Client, pair)
    status, made = one("POST", SERVICES, {"metadata": {"name": "s1"}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}})
    assert status == 201, made
    ip, port = made["spec"]["clusterIP"], made["spec"]["ports"][0]["nodePort"]
    assert events.value("/registry/services/specs/default/s1") is not None
    assert main.value(f"/registry/ipaddresses/{ip}") is not None
    bitmap = "/registry/ranges/servicenodeports"
    assert (main.value(bitmap), events.value(bitmap) is not None) == (None, True)
    body = {"metadata": {"name": "s2"}, "spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": port}]}}
    assert two("POST", SERVICES, body)[0] == 422
    body["spec"] = {"clusterIP": ip, "ports": [{"port": 80}]}
    assert two("POST", SERVICES, body)[0] == 422
    assert one("DELETE", f"{SERVICES}/s1")[0] == 200
    assert two("POST", SERVICES, body)[0] == 201
    assert two("DELETE", f"{SERVICES}/s2")[0] == 200


def test_dependents_are_collected_with_an_owner_in_another_cluster(pair):
    call = Client(pair[1])

    def make(path: str, name: str, kind: str = "", owner: dict | None = None, **more: object) -> dict:
        meta: dict = {"name": name}
        if owner is not None:
            at = owner["metadata"]
            reference = {"apiVersion": "v1", "kind": kind, "name": at["name"], "uid": at["uid"], "blockOwnerDeletion": True}
            meta["ownerReferences"] = [reference]
        status, made = call("POST", path, {"metadata": meta, **more})
        assert status == 201, made
        return made

    def gone(path: str) -> None:
        until(lambda: call("GET", path)[0] == 404)

    ports = {"spec": {"ports": [{"port": 80}]}}
    # In both directions, background and foreground; all objects are younger than the collector.
    service = make(SERVICES, "owner", **ports)
    make(CONFIG_MAPS, "owned", "Service", service)
    above = make(CONFIG_MAPS, "above")
    make(SERVICES, "below", "ConfigMap", above, **ports)
    for path in (f"{SERVICES}/owner", f"{CONFIG_MAPS}/above"):
        assert call("DELETE", path)[0] == 200
    gone(f"{CONFIG_MAPS}/owned")
    gone(f"{SERVICES}/below")
    service = make(SERVICES, "patient", **ports)
    make(CONFIG_MAPS, "first", "Service", service)
    assert call("DELETE", f"{SERVICES}/patient", {"propagationPolicy": "Foreground"})[0] == 200
    gone(f"{SERVICES}/patient")
    assert call("GET", f"{CONFIG_MAPS}/first")[0] == 404


def test_compaction_of_one_cluster_does_not_affect_the_other(pair, etcds):
    _, events = etcds
    one, _ = map(Client, pair)
    revisions = []
    for i in range(3):
        status, made = one("POST", EVENTS, event(f"c{i}"))
        assert status == 201
        revisions.append(int(made["metadata"]["resourceVersion"]))
    client = Calls(events.config)
    try:
        client.call(COMPACT, pb.CompactionRequest(revision=revision_of(events)))
    finally:
        client.close()
    # The replica keeps its own history, so a watch resumes.
    with one.session.get(f"{one.server.url}{EVENTS}?watch=1&resourceVersion={revisions[0]}&timeoutSeconds=60", stream=True) as answer:
        assert b'"c1"' in next(answer.iter_lines())
    assert one("GET", f"{CONFIG_MAPS}?limit=1")[0] == 200


def test_health_names_the_failing_cluster_and_only_its_resources_fail(pair, etcds):
    _, events = etcds
    one, _ = map(Client, pair)
    body = one.raw("GET", "/readyz?verbose").text
    assert "[+]etcd-override-0 ok" in body and "[+]etcd-override-readiness-0 ok" in body
    assert "[+]etcd-override-0 excluded with etcd: ok" in one.raw("GET", "/livez?verbose&exclude=etcd").text
    events.kill()
    try:
        until(lambda: "[-]etcd-override-0 failed" in one.raw("GET", "/livez?verbose").text)
        assert "[+]etcd ok" in one.raw("GET", "/livez?verbose").text
        assert one("POST", EVENTS, event("x"))[0] == 503
        assert one("GET", EVENTS)[0] == 503
        assert one("GET", f"{EVENTS}?resourceVersion=0")[0] == 200
        assert one("GET", CONFIG_MAPS)[0] == 200
        assert one("POST", CONFIG_MAPS, {"metadata": {"name": "while-away"}})[0] == 201
    finally:
        events.start()
    until(lambda: one.raw("GET", "/readyz").status_code == 200)
    assert one("POST", EVENTS, event("y"))[0] == 201


def test_a_cluster_without_resources_has_health_checks_and_delays_nothing(etcds, tmp_path):
    """Definitions stay in the main cluster, so the second cluster has no resource. Its health is reported nevertheless. The third one is
    the main cluster again, which has its check already."""
    main, events = etcds
    with Etcd(tmp_path / "nothing") as nothing:
        given = flags(main, events)
        overrides = f"apiextensions.k8s.io/customresourcedefinitions#{nothing.url},{given[-1].partition('=')[2]},/pods#{main.url}"
        with KasServer(tmp_path / "kas", *given[:-1], f"--etcd-servers-overrides={overrides}") as server:
            one = Client(server)
            for path, names in {
                "healthz": ["etcd-override-0", "etcd-override-1"], "livez": ["etcd-override-0", "etcd-override-1"],
                "readyz": ["etcd-override-0", "etcd-override-readiness-0", "etcd-override-1", "etcd-override-readiness-1"],
            }.items():  # fmt: skip
                shown = [line[3:-3] for line in one.raw("GET", f"/{path}?verbose").text.splitlines() if line.startswith("[+]etcd-o")]
                assert shown == names, path
            assert one("POST", "/api/v1/namespaces", {"metadata": {"name": "ends"}})[0] == 201
            nothing.kill()
            for path in ("healthz", "livez", "readyz"):
                until(lambda path=path: "[-]etcd-override-0 failed" in one.raw("GET", f"/{path}?verbose").text)
                text = one.raw("GET", f"/{path}?verbose").text
                assert "[+]etcd ok" in text and "[+]etcd-override-1 ok" in text, path
            assert one.raw("GET", "/readyz/etcd-override-readiness-0").status_code == 500
            assert one.raw("GET", "/readyz/etcd-override-readiness-1").status_code == 200
            assert one.raw("GET", "/readyz?exclude=etcd&exclude=etcd-readiness").status_code == 200
            assert one("DELETE", "/api/v1/namespaces/ends")[0] == 200
            until(lambda: one("GET", "/api/v1/namespaces/ends")[0] == 404)
            nothing.start()
            until(lambda: one.raw("GET", "/readyz").status_code == 200)


def test_a_replicator_that_dies_continues_with_both_clusters(pair, etcds):
    one, two = map(Client, pair)
    (pid,) = [p for p in _children(pair[0]) if Path(f"/proc/{p}/comm").read_text().strip() == "kas-replicator"]
    os.kill(pid, signal.SIGKILL)
    assert two("POST", EVENTS, event("after"))[0] == 201
    assert two("POST", CONFIG_MAPS, {"metadata": {"name": "after"}})[0] == 201
    until(lambda: one("GET", f"{EVENTS}/after")[0] == 200)
    until(lambda: one("GET", f"{CONFIG_MAPS}/after")[0] == 200)


def _children(server: KasServer) -> list[int]:
    return [int(p) for t in Path(f"/proc/{server.pid}/task").iterdir() for p in (t / "children").read_text().split()]


def test_a_restored_events_cluster_is_detected(pair, etcds, tmp_path):
    """Its replica, and no other, is rebuilt."""
    _, events = etcds
    one, _ = map(Client, pair)
    subprocess.run(["etcdctl", "--endpoints", events.url, "snapshot", "save", str(tmp_path / "backup")], check=True, capture_output=True)
    assert one("POST", EVENTS, event("lost"))[0] == 201
    events.kill()
    os.rename(events.data, tmp_path / "old")
    subprocess.run(
        [snapshots(), "snapshot", "restore", str(tmp_path / "backup"), "--data-dir", str(events.data), "--name", events.name,
         "--initial-cluster", f"{events.name}={events.listens}", "--initial-advertise-peer-urls", events.listens],
        check=True, capture_output=True,
    )  # fmt: skip
    events.start()

    def gone() -> bool:
        try:
            return one("GET", f"{EVENTS}/lost")[0] == 404
        except OSError:  # the workers start again
            return False

    until(gone)
    until(lambda: one.raw("GET", "/readyz").status_code == 200)


def test_migrate_writes_to_both(pair, etcds):
    main, events = etcds
    for etcd, key, body in (
        (main, b"/registry/configmaps/default/old", b'{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"old",'
         b'"namespace":"default"}}'),
        (events, b"/registry/events/default/old", b'{"kind":"Event","apiVersion":"v1","metadata":{"name":"old","namespace":"default"},'
         b'"reason":"A","involvedObject":{"kind":"Pod"}}'),
    ):  # fmt: skip
        client = Calls(etcd.config)
        try:
            client.call(PUT, pb.PutRequest(key=key, value=body))
        finally:
            client.close()
    done = subprocess.run(
        [sys.executable, "-m", "kas.cli", "storage", "migrate", *flags(*etcds)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    for etcd, key in ((main, "/registry/configmaps/default/old"), (events, "/registry/events/default/old")):
        value = etcd.value(key)
        assert value is not None and value.startswith(b"k8s\0"), key
