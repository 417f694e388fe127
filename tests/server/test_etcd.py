"""kas on etcd as its users see it: several servers of one cluster, and failures of their parts."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import requests

from kas.endpoints.read import EXPIRED_LIST, EXPIRED_VERSION
from kas.replicator import _begin
from kas.store import Unavailable
from kas.store.etcd import client as kv
from kas.store.etcd import etcd_pb2 as pb
from kas.testing.server import KasServer
from kas.types.scheme import envelope, open_envelope
from tests import pki
from tests.conftest import Client
from tests.controllers.waiting import until
from tests.etcd import Etcd
from tests.processes import children
from tests.types.protobufs import field, parts

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


def flags(etcd: Etcd) -> tuple[str, ...]:
    return ("--storage-backend=etcd3", f"--etcd-servers={etcd.url}", "--advertise-address=127.0.0.1")


@pytest.fixture(scope="module")
def etcd(tmp_path_factory) -> Iterator[Etcd]:
    with Etcd(tmp_path_factory.mktemp("etcd")) as etcd:
        yield etcd


@pytest.fixture(scope="module")
def pair(etcd: Etcd, tmp_path_factory) -> Iterator[tuple[KasServer, KasServer]]:
    first, second = (tmp_path_factory.mktemp(name) for name in ("one", "two"))
    patient = (*flags(etcd), "--worker-timeout=10m")  # with replicators that tests suspend
    with KasServer(first, *patient, workers=2) as one, KasServer(second, *patient) as two:
        yield one, two


def config_map(name: str, **data: str) -> dict:
    return {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": name}, "data": data}


def test_a_write_of_one_server_is_read_at_the_other_at_once(pair) -> None:
    one, two = (Client(server) for server in pair)
    for i in range(20):
        writer, reader = (one, two) if i % 2 else (two, one)
        status, made = writer("POST", CONFIG_MAPS, config_map(f"a{i}", x="1"))
        assert status == 201
        status, found = reader("GET", f"{CONFIG_MAPS}/a{i}")
        assert (status, found) == (200, made)
        status, changed = reader("PUT", f"{CONFIG_MAPS}/a{i}", {**found, "data": {"x": "2"}})
        assert status == 200
        status, listed = writer("GET", CONFIG_MAPS)
        assert {"x": "2"} in [item["data"] for item in listed["items"] if item["metadata"]["name"] == f"a{i}"]
        assert int(listed["metadata"]["resourceVersion"]) >= int(changed["metadata"]["resourceVersion"])
        status, lost = writer("PUT", f"{CONFIG_MAPS}/a{i}", {**found, "data": {"x": "3"}})
        assert (status, lost["reason"]) == (409, "Conflict")
        assert writer("DELETE", f"{CONFIG_MAPS}/a{i}")[0] == 200
        assert reader("GET", f"{CONFIG_MAPS}/a{i}")[0] == 404


def test_a_watch_resumes_at_another_server(pair) -> None:
    one = Client(pair[0])
    start = one("GET", CONFIG_MAPS)[1]["metadata"]["resourceVersion"]
    made = [Client(pair[i % 2])("POST", CONFIG_MAPS, config_map(f"w{i}"))[1]["metadata"]["resourceVersion"] for i in range(10)]
    assert one("POST", CONFIG_MAPS, config_map("w-last"))[0] == 201
    for server, after, expected in ((0, start, made), (1, start, made), (1, made[4], made[5:]), (0, made[8], made[9:])):
        query = f"watch=1&resourceVersion={after}&timeoutSeconds=300"
        with Client(pair[server]).session.get(f"{pair[server].url}{CONFIG_MAPS}?{query}", stream=True, timeout=120) as answer:
            revisions = []
            for line in answer.iter_lines():
                meta = json.loads(line)["object"]["metadata"]
                if meta["name"] == "w-last":
                    break
                revisions.append(meta["resourceVersion"])
        assert revisions == expected
    for name in (*(f"w{i}" for i in range(10)), "w-last"):
        one("DELETE", f"{CONFIG_MAPS}/{name}")


def test_definitions_and_roles_apply_at_the_other_server(pair) -> None:
    one, two = (Client(server) for server in pair)
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "widgets.acme.io"},
        "spec": {
            "group": "acme.io", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": True, "storage": True, "selectableFields": [{"jsonPath": ".spec.color"}],
                          "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                              "spec": {"type": "object", "properties": {"color": {"type": "string"}}}}}}}],
        },
    }  # fmt: skip
    assert one("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)[0] == 201
    widgets = "/apis/acme.io/v1/namespaces/default/widgets"
    until(lambda: two("GET", widgets)[0] == 200)
    widget = {"apiVersion": "acme.io/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"color": "red"}}
    until(lambda: two("POST", widgets, widget)[0] in (201, 409))
    for color, n in (("red", 1), ("blue", 0)):
        assert len(one("GET", f"{widgets}?fieldSelector=spec.color%3D{color}")[1]["items"]) == n
    assert one("DELETE", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.acme.io")[0] == 200
    until(lambda: two("GET", widgets)[0] == 404)


def test_objects_are_stored_in_etcd_as_upstream_stores_them(pair, etcd: Etcd) -> None:
    one = Client(pair[0])
    assert one("POST", CONFIG_MAPS, config_map("stored", x="y"))[0] == 201
    api_version, kind, raw, _ = open_envelope(etcd.value("/registry/configmaps/default/stored"))
    assert (api_version, kind) == ("v1", "ConfigMap")
    assert b"stored" in raw
    assert one("DELETE", f"{CONFIG_MAPS}/stored")[0] == 200
    assert etcd.value("/registry/configmaps/default/stored") is None


def test_an_unreadable_object_is_reported_and_can_be_deleted(etcd: Etcd, tmp_path: Path) -> None:
    outside = kv.Client(etcd.config)
    key = b"/registry/configmaps/default/broken"
    for value in (b"k8s\0garbage", b'{"kind":"Nothing","apiVersion":"v9","metadata":{}}'):
        outside.call(kv.PUT, pb.PutRequest(key=key, value=value))
    outside.close()
    path, option = f"{CONFIG_MAPS}/broken", {"ignoreStoreReadErrorWithClusterBreakingPotential": True}
    with KasServer(tmp_path / "a", *flags(etcd), "--feature-gates=AllowUnsafeMalformedObjectDeletion=true") as one:
        client = Client(one)
        status, told = client("GET", path)
        unknown = 'no kind "Nothing" is registered for version "v9" in scheme "pkg/api/legacyscheme/scheme.go:30"'
        why = f"object not decodable revision={told['message'].split('revision=')[1].split(':')[0]}: {unknown}"
        says = f"StorageError: corrupt object, Code: 7, Key: {key.decode()}, ResourceVersion: 0, AdditionalErrorMsg: {why}"
        assert (status, told["message"]) == (500, f"Internal error occurred: {says}")
        assert client("DELETE", path)[0] == 500
        assert client("POST", CONFIG_MAPS, config_map("broken"))[0] == 500
        status, listed = client("GET", CONFIG_MAPS)
        assert status == 200 and "broken" not in [item["metadata"]["name"] for item in listed["items"]]
        assert client("DELETE", path, option)[0] == 200
        assert client("GET", path)[0] == 404
        assert client("DELETE", path, option)[0] == 422
        assert etcd.value(key.decode()) is None
        assert client("POST", CONFIG_MAPS, config_map("broken"))[0] == 201
        assert client("DELETE", path)[0] == 200


def test_fields_of_a_newer_version_survive_writes(etcd: Etcd, tmp_path: Path) -> None:
    pods, key = "/api/v1/namespaces/default/pods", "/registry/pods/default/newer"
    unknown = field(1999, b"of a newer version")
    outside = kv.Client(etcd.config)

    def read() -> tuple[bytes, bytes, list[bytes]]:
        """Reads the pod from etcd; returns the message, its spec and containers."""
        _, _, message, _ = open_envelope(etcd.value(key))
        spec = next(content for number, _, content, _ in parts(message) if number == 2)
        return message, spec, [content for number, _, content, _ in parts(spec) if number == 2]

    with KasServer(tmp_path / "a", *flags(etcd)) as one:
        client = Client(one)
        containers = [{"name": "a", "image": "1"}, {"name": "b", "image": "1"}]
        client("POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}})
        status, made = client("POST", pods, {"metadata": {"name": "newer"}, "spec": {"containers": containers}})
        assert status == 201, made
        plain, newer = read()[0], b""
        for number, _, content, whole in parts(plain):
            if number == 2:
                whole = field(2, b"".join(field(2, c + unknown) if n == 2 else w for n, _, c, w in parts(content)) + unknown)
            newer += whole
        outside.call(kv.PUT, pb.PutRequest(key=key.encode(), value=envelope("v1", "Pod", newer + unknown)))
        until(lambda: client("GET", f"{pods}/newer")[1]["metadata"]["resourceVersion"] != made["metadata"]["resourceVersion"])
        assert client("PATCH", f"{pods}/newer", {"metadata": {"labels": {"a": "b"}}}, "application/merge-patch+json")[0] == 200
        image = {"spec": {"containers": [{"name": "b", "image": "2"}]}}
        assert client("PATCH", f"{pods}/newer", image, "application/strategic-merge-patch+json")[0] == 200
        message, spec, inner = read()
        assert message.endswith(unknown) and spec.endswith(unknown) and [c.endswith(unknown) for c in inner] == [True, True]
    with KasServer(tmp_path / "a", *flags(etcd)) as one:  # with the existing replica
        client = Client(one)
        assert client("PATCH", f"{pods}/newer/status", {"status": {"phase": "Running"}}, "application/merge-patch+json")[0] == 200
        assert read()[0].endswith(unknown)
        now = client("GET", f"{pods}/newer")[1]
        assert now["spec"]["containers"][1]["image"] == "2" and now["metadata"]["labels"] == {"a": "b"}
        outside.call(kv.PUT, pb.PutRequest(key=key.encode(), value=envelope("v1", "Pod", plain)))
        until(lambda: client("GET", f"{pods}/newer")[1]["metadata"]["resourceVersion"] != now["metadata"]["resourceVersion"])
        assert client("PATCH", f"{pods}/newer", {"metadata": {"labels": {"c": "d"}}}, "application/merge-patch+json")[0] == 200
        assert unknown not in etcd.value(key), "whoever gave them up is obeyed"
        assert client("DELETE", f"{pods}/newer?gracePeriodSeconds=0")[0] == 200
    outside.close()


@pytest.mark.parametrize("form", ["definitions", "as-json"])
def test_fields_of_a_newer_version_in_json_survive_writes(etcd: Etcd, tmp_path: Path, form: str) -> None:
    schema = {"type": "object", "properties": {"spec": {"type": "object"}}}
    versions = [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}]
    names = {"plural": "newers", "singular": "newer", "kind": "Newer", "listKind": "NewerList"}
    spec = {"group": "example.com", "scope": "Cluster", "names": names, "versions": versions}
    path, key, obj, inner = {
        "definitions": (
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
            "/registry/apiextensions.k8s.io/customresourcedefinitions/newers.example.com",
            {"metadata": {"name": "newers.example.com"}, "spec": spec},
            ("spec", "names"),
        ),
        "as-json": (
            "/apis/rbac.authorization.k8s.io/v1/clusterroles", "/registry/clusterroles/newer",
            {"metadata": {"name": "newer"}, "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]}, ("rules", 0),
        ),
    }[form]  # fmt: skip
    more = () if form == "definitions" else ("--storage-media-type=application/json",)
    outside = kv.Client(etcd.config)
    with KasServer(tmp_path / "a", *flags(etcd), *more) as one:
        client = Client(one)
        status, made = client("POST", path, obj)
        assert status == 201, made
        url = f"{path}/{made['metadata']['name']}"
        if form == "definitions":
            until(lambda: "True" in [c["status"] for c in client("GET", url)[1]["status"].get("conditions", ())])
        stored = json.loads(etcd.value(key))
        stored["newer"] = stored[inner[0]][inner[1]]["newer"] = {"of": "a newer version"}
        written = outside.call(kv.PUT, pb.PutRequest(key=key.encode(), value=json.dumps(stored).encode())).header.revision
        until(lambda: int(client("GET", url)[1]["metadata"]["resourceVersion"]) >= written)
        for label in ("a", "b"):  # the second server's view of what the first one wrote
            assert client("PATCH", url, {"metadata": {"labels": {label: "c"}}}, "application/merge-patch+json")[0] == 200
            now = json.loads(etcd.value(key))
            assert now["metadata"]["labels"][label] == "c"
            assert now["newer"] == now[inner[0]][inner[1]]["newer"] == {"of": "a newer version"}
        assert "newer version" not in json.dumps(client("GET", url)[1])
        assert client("DELETE", url)[0] == 200
    outside.close()


def _replicators(server: KasServer) -> list[int]:
    return [pid for pid, name in children(server.pid).items() if name == "kas-replicator"]


def test_a_killed_replicator_is_replaced_and_no_event_is_lost(pair) -> None:
    one, two = (Client(server) for server in pair)
    (replicator,) = _replicators(pair[0])
    os.kill(replicator, signal.SIGKILL)
    made = two("POST", CONFIG_MAPS, config_map("meanwhile"))[1]
    until(lambda: one("GET", f"{CONFIG_MAPS}/meanwhile")[0] == 200)
    assert one("GET", f"{CONFIG_MAPS}/meanwhile")[1] == made
    assert one("DELETE", f"{CONFIG_MAPS}/meanwhile")[0] == 200


def test_a_suspended_replicator_is_replaced(etcd: Etcd, tmp_path: Path) -> None:
    """Otherwise every write would wait for ever for a replica that does not follow."""
    with KasServer(tmp_path, *flags(etcd), "--worker-timeout=3s") as server:
        (stuck,) = _replicators(server)
        os.kill(stuck, signal.SIGSTOP)
        until(lambda: not Path(f"/proc/{stuck}").exists())
        until(lambda: Client(server)("POST", CONFIG_MAPS, {"metadata": {"generateName": "follows-"}})[0] == 201)
        assert re.search(r"the replicator has not answered for \d+ s and is killed", server.output)


def test_a_replica_that_is_deleted_under_the_server_is_rebuilt(tmp_path: Path) -> None:
    with Etcd(tmp_path) as etcd, KasServer(tmp_path / "kas", *flags(etcd)) as server:
        client, replica = Client(server), tmp_path / "kas" / "data" / "replica"
        assert client("POST", CONFIG_MAPS, config_map("before"))[0] == 201
        shutil.rmtree(replica)
        until(lambda: (replica / "replica.of").is_file())

        def ready() -> bool:
            with contextlib.suppress(OSError):  # the workers start again
                return client.raw("GET", "/readyz").status_code == 200
            return False

        until(ready)
        assert client("GET", f"{CONFIG_MAPS}/before")[0] == 200
        assert "the replica of etcd is rebuilt" in server.output and "is not the file that was opened" in server.output


def test_a_write_refused_because_of_an_old_replica_is_retried(pair) -> None:
    one, two = (Client(server) for server in pair)
    (replicator,) = _replicators(pair[1])

    def behind(change: Callable[[], object], ask: Callable[[], tuple[int, dict]]) -> tuple[int, dict]:
        """Returns the answers of the second server while its replica does not have a change of the first yet."""
        os.kill(replicator, signal.SIGSTOP)
        later = threading.Timer(0.5, os.kill, (replicator, signal.SIGCONT))
        try:
            change()
            later.start()
            return ask()
        finally:
            later.join()

    at = f"{CONFIG_MAPS}/late"
    status, put = behind(lambda: one("POST", CONFIG_MAPS, config_map("late", x="1")), lambda: two("PUT", at, config_map("late", x="2")))
    assert (status, put["data"]) == (200, {"x": "2"})
    # Relative to the old object this changes nothing and would not be written; now it does.
    status, again = behind(lambda: one("PUT", at, config_map("late", x="3")), lambda: two("PUT", at, config_map("late", x="2")))
    assert (status, again["data"], one("GET", at)[1]["data"]) == (200, {"x": "2"}, {"x": "2"})
    made = config_map("in-it")
    space = {"metadata": {"name": "late-space"}}
    where = "/api/v1/namespaces/late-space/configmaps"
    assert behind(lambda: one("POST", "/api/v1/namespaces", space), lambda: two("POST", where, made))[0] == 201
    assert behind(lambda: one("DELETE", at), lambda: two("POST", CONFIG_MAPS, config_map("late")))[0] == 201
    assert behind(lambda: one("DELETE", at), lambda: two("DELETE", at))[0] == 404
    assert one("DELETE", "/api/v1/namespaces/late-space")[0] == 200


def test_reads_go_to_etcd_while_the_replica_does_not_follow(pair, etcd: Etcd) -> None:
    one, two = (Client(server) for server in pair)
    space = "/api/v1/namespaces/beside"
    assert one("POST", "/api/v1/namespaces", {"metadata": {"name": "beside"}})[0] == 201
    maps, scalers = f"{space}/configmaps", "/apis/autoscaling/{}/namespaces/beside/horizontalpodautoscalers"
    assert one("POST", maps, config_map("gone"))[0] == 201
    assert two("GET", f"{maps}/gone")[0] == 200
    (replicator,) = _replicators(pair[1])
    os.kill(replicator, signal.SIGSTOP)
    try:
        assert one("DELETE", f"{maps}/gone")[0] == 200
        for i in range(5):
            assert one("POST", maps, config_map(f"m{i}", x="1") | {"metadata": {"name": f"m{i}", "labels": {"odd": str(i % 2)}}})[0] == 201
        scaler = {"metadata": {"name": "s"}, "spec": {"maxReplicas": 2, "scaleTargetRef": {"kind": "A", "name": "a", "apiVersion": "a/v1"}}}
        assert one("POST", scalers.format("v1"), scaler)[0] == 201
        wanted, following = {}, ""
        paths = (maps, f"{maps}?limit=2", f"{maps}?labelSelector=odd%3D1", f"{maps}/m3", f"{maps}/gone", scalers.format("v1") + "/s",
                 scalers.format("v1"), "/apis/apps/v1/deployments")  # fmt: skip
        for path in paths:
            wanted[path] = one("GET", path)
        with ThreadPoolExecutor(len(paths)) as pool:
            for path, (status, told) in zip(paths, pool.map(lambda path: Client(pair[1])("GET", path), paths), strict=True):
                at = told["metadata"].pop("resourceVersion", None) if told["kind"].endswith("List") else None
                assert at is None or int(at) >= int(wanted[path][1]["metadata"].pop("resourceVersion"))
                told["metadata"].pop("continue", None)
                token = wanted[path][1]["metadata"].pop("continue", None)
                following = token or following
                assert (status, told) == wanted[path], path
        assert one("DELETE", f"{maps}/m4")[0] == 200  # the next page has the same revision
        page = two("GET", f"{maps}?limit=2&continue={following}")[1]
        assert page["kind"] == "ConfigMapList", page.get("message")
        everything = [item["metadata"]["name"] for item in wanted[maps][1]["items"]]
        assert [item["metadata"]["name"] for item in page["items"]] == everything[2:4] and everything[-1] == "m4"
        assert page["metadata"]["remainingItemCount"] == len(everything) - 4
        newest = one("GET", maps)[1]["metadata"]["resourceVersion"]
        assert two("GET", f"{maps}?resourceVersion=0")[0] == 200
        assert two("GET", f"{maps}?resourceVersion={newest}")[0] in (503, 504)  # as upstream: a request that names a revision waits for it
    finally:
        os.kill(replicator, signal.SIGCONT)
    assert not list(pair[1].data_dir.rglob("beside-*"))
    until(lambda: two("GET", f"{maps}?resourceVersion={newest}")[0] == 200)
    assert one("DELETE", space)[0] == 200


def test_etcd_stops_and_starts_again(pair, etcd: Etcd) -> None:
    one, two = (Client(server) for server in pair)
    assert one("POST", CONFIG_MAPS, config_map("before"))[0] == 201
    etcd.kill()
    status, body = one("POST", CONFIG_MAPS, config_map("lost"))
    assert (status, body["kind"]) in ((503, "Status"), (504, "Status"))
    assert one("GET", f"{CONFIG_MAPS}/before?resourceVersion=0")[0] == 200  # reads that accept old data are served
    assert one("GET", f"{CONFIG_MAPS}/before")[0] in (503, 504)
    for path in ("/healthz", "/livez", "/readyz"):
        until(lambda path=path: one.raw("GET", path).status_code == 500)
        assert "[-]etcd failed" in one.raw("GET", f"{path}?verbose").text
    etcd.start()
    until(lambda: one("GET", f"{CONFIG_MAPS}/before")[0] == 200)
    until(lambda: one.raw("GET", "/readyz").status_code == 200)
    until(lambda: two("POST", CONFIG_MAPS, config_map("after"))[0] in (201, 409))
    assert one("GET", f"{CONFIG_MAPS}/after")[0] == 200
    for name in ("before", "after", "lost"):
        one("DELETE", f"{CONFIG_MAPS}/{name}")


def test_a_cluster_that_is_restored_while_kas_runs_is_followed_anew(tmp_path: Path) -> None:
    with Etcd(tmp_path) as etcd, KasServer(tmp_path / "kas", *flags(etcd)) as server:
        client = Client(server)
        assert client("POST", CONFIG_MAPS, config_map("kept", x="1"))[0] == 201
        etcd.kill()
        shutil.copytree(etcd.data, tmp_path / "backup")
        etcd.start()
        # a create that was answered with 504 may have happened
        until(lambda: client("POST", CONFIG_MAPS, config_map("lost"))[0] in (201, 409))
        changed = until(lambda: client("PATCH", f"{CONFIG_MAPS}/kept", {"data": {"x": "2"}}, "application/merge-patch+json"))
        assert changed[0] == 200
        newest = changed[1]["metadata"]["resourceVersion"]
        query = f"watch=1&resourceVersion={newest}&timeoutSeconds=300"
        watch = client.session.get(f"{server.url}{CONFIG_MAPS}?{query}", stream=True, timeout=120)
        ended = threading.Event()

        def follow() -> None:
            with contextlib.suppress(requests.RequestException):  # whatever the answer is
                for _ in watch.iter_lines():
                    pass
            ended.set()

        threading.Thread(target=follow, daemon=True).start()
        etcd.kill()
        shutil.rmtree(etcd.data)
        (tmp_path / "backup").rename(etcd.data)
        etcd.start()
        assert ended.wait(120)

        def same_everywhere() -> bool:
            with contextlib.suppress(OSError):  # the workers start again
                return client("GET", f"{CONFIG_MAPS}/lost")[0] == 404
            return False

        until(same_everywhere)
        found = client("GET", f"{CONFIG_MAPS}/kept")[1]
        assert (found["data"], int(found["metadata"]["resourceVersion"]) < int(newest)) == ({"x": "1"}, True)
        # A watch that resumes from the lost history gets an error.
        status, refused = client("GET", f"{CONFIG_MAPS}?resourceVersion={int(newest) + 1_000_000}")
        assert (status, refused["details"]["causes"][0]["reason"]) == (504, "ResourceVersionTooLarge")
        until(lambda: client("POST", CONFIG_MAPS, config_map("lost"))[0] in (201, 409))


def test_a_restart_reuses_the_replica(tmp_path: Path) -> None:
    with Etcd(tmp_path) as etcd:
        server = KasServer(tmp_path / "kas", *flags(etcd)).start()
        try:
            assert Client(server)("POST", CONFIG_MAPS, config_map("kept"))[0] == 201
            server.stop()
            note = (tmp_path / "kas" / "data" / "replica" / "replica.of").read_text()
            server.start()
            assert Client(server)("GET", f"{CONFIG_MAPS}/kept")[0] == 200
            assert (tmp_path / "kas" / "data" / "replica" / "replica.of").read_text().split()[0] == note.split()[0]
        finally:
            server.stop()


def test_one_server_runs_the_controllers_and_another_takes_over(tmp_path: Path) -> None:
    def leader(client: Client) -> str:
        status, lease = client("GET", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kas-controllers")
        return lease["spec"].get("holderIdentity", "") if status == 200 else ""

    def addresses(client: Client) -> list[str]:
        return [a["ip"] for s in client("GET", "/api/v1/namespaces/default/endpoints/kubernetes")[1]["subsets"] for a in s["addresses"]]

    with Etcd(tmp_path) as etcd:
        one_at, two_at = ([*flags(etcd)[:2], f"--advertise-address=192.0.2.{n}"] for n in (1, 2))
        first = KasServer(tmp_path / "one", *one_at).start()
        try:
            one = Client(first)
            before = until(lambda: leader(one))
            with KasServer(tmp_path / "two", *two_at) as second:
                two = Client(second)
                until(lambda: addresses(two) == ["192.0.2.1", "192.0.2.2"])
                assert leader(two) == before
                first.stop()
                until(lambda: leader(two) not in ("", before))
                until(lambda: addresses(two) == ["192.0.2.2"])
                # The namespace controller runs there now.
                assert two("POST", "/api/v1/namespaces", {"metadata": {"name": "gone"}})[0] == 201
                assert two("DELETE", "/api/v1/namespaces/gone")[0] == 200
                until(lambda: two("GET", "/api/v1/namespaces/gone")[0] == 404)
        finally:
            first.stop()


@pytest.mark.parametrize("backend", ["etcd3", "lmdb"])
def test_a_server_in_master_count_mode_removes_its_address_at_its_end(etcd: Etcd, tmp_path: Path, backend: str) -> None:
    """With master count, each server knows only of itself. With leases, the last server leaves its address, as upstream's does."""
    store = flags(etcd)[:2] if backend == "etcd3" else ("--storage-backend=lmdb", "--unsafe-no-fsync")
    paths = "/api/v1/namespaces/default/endpoints/kubernetes", "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes"

    def shown(kind: str) -> list[list[str]]:
        """Returns the addresses that a server leaves when it has ended."""
        named = [*store, "--advertise-address=192.0.2.7", f"--endpoint-reconciler-type={kind}", f"--etcd-prefix=/counted-{backend}"]
        with KasServer(tmp_path / "one", *named) as server:
            client = Client(server)
            until(lambda: client.raw("GET", "/readyz").status_code == 200)
            endpoints, slices = (client("GET", path)[1] for path in paths)
        in_endpoints = [address["ip"] for subset in endpoints.get("subsets") or () for address in subset["addresses"]]
        return [in_endpoints, [address for one in slices["endpoints"] or () for address in one["addresses"]]]

    assert shown("master-count") == [["192.0.2.7"], ["192.0.2.7"]]
    assert shown("none") == [[], []]
    assert shown("lease") == shown("none") == [["192.0.2.7"], ["192.0.2.7"]]


@pytest.mark.parametrize("kind", ["lease", "master-count"])
def test_a_server_that_shuts_down_leaves_the_endpoints_first(etcd: Etcd, tmp_path: Path, kind: str) -> None:
    """Clients that find servers through the kubernetes Service do not ask for /readyz, and used to connect until the server was gone."""
    named = [*flags(etcd)[:2], f"--etcd-prefix=/told-{kind}", f"--endpoint-reconciler-type={kind}", "--controllers=none"]

    def addresses(client: Client) -> list[str]:
        found = client("GET", "/api/v1/namespaces/default/endpoints/kubernetes")[1].get("subsets") or ()
        return [address["ip"] for subset in found for address in subset["addresses"]]

    with contextlib.ExitStack() as stack:
        if kind == "lease":
            stack.enter_context(KasServer(tmp_path / "other", *named, "--advertise-address=192.0.2.1"))
        ends = KasServer(tmp_path / "ends", *named, "--advertise-address=192.0.2.2", "--shutdown-delay-duration=5m").start()
        try:
            client = Client(ends)
            until(lambda: "192.0.2.2" in addresses(client) and client.raw("GET", "/readyz").status_code == 200)
            ends.process.send_signal(signal.SIGTERM)
            until(lambda: addresses(client) == (["192.0.2.1"] if kind == "lease" else []))
            assert client("POST", CONFIG_MAPS, config_map("meanwhile"))[0] == 201
            assert client.raw("GET", "/readyz").status_code == 500
        finally:
            ends.kill()


def test_two_clusters_share_an_etcd_under_different_prefixes(pair, etcd: Etcd, tmp_path) -> None:
    one = Client(pair[0])
    with KasServer(tmp_path, *flags(etcd), "--etcd-prefix=/elsewhere") as other:
        assert Client(other)("POST", CONFIG_MAPS, config_map("apart"))[0] == 201
        assert open_envelope(etcd.value("/elsewhere/configmaps/default/apart"))[:2] == ("v1", "ConfigMap")
        assert one("GET", f"{CONFIG_MAPS}/apart")[0] == 404


def test_the_replicator_ends_last(tmp_path: Path) -> None:
    # Otherwise the last writes of the workers would wait for a replica that nothing fills any more.
    with Etcd(tmp_path) as etcd, KasServer(tmp_path / "kas", *flags(etcd)) as server:
        # The first start has one more child, which makes the token key.
        until((server.data_dir / "pki" / "sa.key").exists)
        until(lambda: len(children(server.pid)) == 2)
        (replicator,) = _replicators(server)
        (worker,) = (pid for pid in children(server.pid) if pid != replicator)
        os.kill(worker, signal.SIGSTOP)
        pending = Path(f"/proc/{worker}/status")
        until(lambda: "(stopped)" in pending.read_text())  # if two signals are pending, SIGTERM is delivered first
        os.kill(server.pid, signal.SIGTERM)
        until(lambda: int(pending.read_text().split("ShdPnd:")[1].split()[0], 16) & 1 << (signal.SIGTERM - 1))
        assert Path(f"/proc/{replicator}/comm").exists()
        assert not int(Path(f"/proc/{replicator}/status").read_text().split("ShdPnd:")[1].split()[0], 16)
        os.kill(worker, signal.SIGCONT)
        assert server.process.wait(60) == 0
        assert not Path(f"/proc/{replicator}/comm").exists()


def test_an_etcd_that_requires_a_client_certificate_is_compacted(tmp_path: Path) -> None:
    ca = pki.authority("etcd-ca")
    both = pki.issue([("CN", "etcd")], ca, usages=("server", "client"), ips=["127.0.0.1"])
    files = ca.write(tmp_path, "ca")[0], *both.write(tmp_path, "etcd")
    with Etcd(tmp_path, files=files) as etcd:
        named = [f"--etcd-{name}={path}" for name, path in zip(("cafile", "certfile", "keyfile"), files, strict=True)]
        with KasServer(tmp_path / "kas", *flags(etcd), *named, "--etcd-compaction-interval=1s", "--controllers=none") as server:
            client = Client(server)
            assert client("POST", CONFIG_MAPS, config_map("a"))[0] == 201
            assert client("GET", f"{CONFIG_MAPS}/a")[0] == 200
            until(lambda: int(etcd.value("compact_rev_key") or 0) > 0)


def test_a_failure_after_a_create_does_not_create_twice(pair) -> None:
    one = Client(pair[0])
    table = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    status, refused = one("POST", f"{CONFIG_MAPS}?includeObject=Nonsense", config_map("once"), **table)
    assert (status, one("GET", f"{CONFIG_MAPS}/once")[0]) == (400, 200), refused
    assert one("DELETE", f"{CONFIG_MAPS}/once")[0] == 200


def test_all_servers_allocate_each_address_and_port_once(pair, etcd: Etcd, tmp_path: Path) -> None:
    with KasServer(tmp_path / "three", *flags(etcd)) as three:
        _race((*pair, three))


def _race(servers: tuple[KasServer, ...]) -> None:
    made: list[dict] = []
    services = "/api/v1/namespaces/default/services"

    def make(i: int) -> None:
        client = Client(servers[i % 3])
        for n in range(6):
            spec = {"type": "NodePort", "ports": [{"port": 80, "protocol": "TCP"}]}
            status, body = client("POST", services, {"metadata": {"name": f"s{i}-{n}"}, "spec": spec})
            assert status == 201, body
            made.append(body["spec"])

    threads = [threading.Thread(target=make, args=(i,)) for i in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(made) == len({spec["clusterIP"] for spec in made}) == len({spec["ports"][0]["nodePort"] for spec in made}) == 36
    # One address and one port are requested from all servers at once: one request gets them.
    one, two, _ = (Client(server) for server in servers)
    address, port = made[0]["clusterIP"], made[0]["ports"][0]["nodePort"]
    assert one("DELETE", f"{services}?")[0] == 200
    won: list[int] = []

    def ask(i: int) -> None:
        spec = {"type": "NodePort", "clusterIP": address, "ports": [{"port": 80, "nodePort": port}]}
        won.append(Client(servers[i % 3])("POST", services, {"metadata": {"name": f"same{i}"}, "spec": spec})[0])

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(won) == [201, 422, 422, 422, 422, 422]
    assert two("DELETE", f"{services}?")[0] == 200


@pytest.mark.parametrize(
    ("size", "says"),
    [
        (1_700_000, "etcdserver: request is too large"),
        (2_300_000, "rpc error: code = ResourceExhausted desc = trying to send message larger than max ("),
    ],
)  # fmt: skip
def test_an_object_too_large_for_etcd_is_refused_with_etcds_message(pair, size: int, says: str) -> None:
    one = Client(pair[0])
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "blobs.acme.io"},
        "spec": {
            "group": "acme.io", "scope": "Cluster", "names": {"plural": "blobs", "kind": "Blob"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": True}}}],
        },
    }  # fmt: skip
    assert one("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)[0] in (201, 409)
    blobs = "/apis/acme.io/v1/blobs"
    until(lambda: one("GET", blobs)[0] == 200)
    blob = {"apiVersion": "acme.io/v1", "kind": "Blob", "metadata": {"name": "b"}, "x": "y" * size}
    status, refused = one("POST", blobs, blob)
    assert (status, refused.get("reason")) == (500, None)
    assert refused["message"].startswith(says)
    assert one("GET", f"{blobs}/b")[0] == 404


def test_a_replica_that_is_rebuilt_waits_for_etcd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kas.replicator.AGAIN_S", 0.0)
    left = [Unavailable("etcdserver: no server can be reached")] * 3

    class Away:
        patience_s = 0.0

        def begin(self) -> str:
            if left:
                raise left.pop()
            return "the replica"

    with pytest.raises(Unavailable):
        _begin(Away(), patient=False)
    assert (_begin(Away(), patient=True), left) == ("the replica", [])


def test_a_list_continues_at_a_server_that_started_after_its_revision(etcd: Etcd, tmp_path: Path) -> None:
    """The replica does not reach back so far, but etcd does. Once etcd has compacted the revision, the answer is 410."""
    with KasServer(tmp_path / "old", *flags(etcd)) as old:
        call = Client(old)
        for i in range(4):
            assert call("POST", CONFIG_MAPS, config_map(f"paged{i}"))[0] == 201
        _, page = call("GET", f"{CONFIG_MAPS}?limit=2&labelSelector=")
        revision, token = page["metadata"]["resourceVersion"], page["metadata"]["continue"]
        _, whole = call("GET", CONFIG_MAPS)
        assert call("DELETE", f"{CONFIG_MAPS}/paged3")[0] == 200
        with KasServer(tmp_path / "new", *flags(etcd)) as new:
            young = Client(new)
            status, rest = young("GET", f"{CONFIG_MAPS}?limit=500&continue={token}")
            assert (status, rest["metadata"]["resourceVersion"]) == (200, revision)
            assert page["items"] + rest["items"] == whole["items"]
            for query in ("resourceVersionMatch=Exact", "limit=500"):
                status, exact = young("GET", f"{CONFIG_MAPS}?resourceVersion={revision}&{query}")
                assert (status, exact["items"]) == (200, whole["items"]), query
            client = kv.Client(etcd.config)
            try:
                now = client.call(kv.RANGE, pb.RangeRequest(key=b"/")).header.revision
                client.call(kv.COMPACT, pb.CompactionRequest(revision=now))
            finally:
                client.close()
            status, expired = young("GET", f"{CONFIG_MAPS}?limit=500&continue={token}")
            assert (status, expired["reason"], expired["message"]) == (410, "Expired", EXPIRED_LIST)
            status, rest = young("GET", f"{CONFIG_MAPS}?limit=500&continue={expired['metadata']['continue']}")
            assert (status, rest["items"]) == (200, [item for item in whole["items"][2:] if item["metadata"]["name"] != "paged3"])
            status, expired = young("GET", f"{CONFIG_MAPS}?resourceVersion={revision}&resourceVersionMatch=Exact")
            assert (status, expired["reason"], expired["message"]) == (410, "Expired", EXPIRED_VERSION)


def test_the_smallest_allowed_address_space_suffices(etcd: Etcd, tmp_path: Path) -> None:
    """Also for the replicator's threads, which map the replica's file as a worker does."""
    few = ["sh", "-c", 'ulimit -v 2200000; exec "$@"', "sh"]
    with KasServer(tmp_path, *flags(etcd), "--etcd-prefix=/few", prefix=few) as server:
        assert Client(server)("POST", CONFIG_MAPS, config_map("few"))[0] == 201
        until(lambda: "the store's file is limited to 562 MiB" in server.output)
    assert "Traceback" not in server.output and "new thread" not in server.output
