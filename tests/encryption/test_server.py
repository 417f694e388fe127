"""Servers with encryption at rest: the content of their files, keys that change while they run, plug-ins, health, metrics."""

from __future__ import annotations

import base64
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import requests

from kas.testing.server import KasServer
from tests.intervals import shorter_intervals
from tests.security.kms import Plugin, PluginV1
from tests.security.stored import raw

CORE = "/api/v1/namespaces/default"
FAST = ("--unsafe-no-fsync", "--controllers=none", "--storage-backend=lmdb")  # tests/encryption/test_etcd.py tests the other backend

# A changed file is read, and a plug-in is called, sooner than with the default intervals.
SOON = shorter_intervals(
    "kas.server.ENCRYPTION_EVERY_S=0.1", "kas.encryption.atrest.TAKEN_S=3.0", "kas.encryption.atrest.RETRY_S=1.0",
    "kas.encryption.kms.plugins.LOOK_S=0.2", "kas.encryption.kms.plugins.HEALTHY_S=1.0", "kas.encryption.kms.plugins.UNHEALTHY_S=0.4",
)  # fmt: skip


def key(name: str, byte: bytes = b"k") -> dict[str, str]:
    return {"name": name, "secret": base64.b64encode(byte * 32).decode()}


def box(*keys: dict[str, str]) -> dict:
    return {"secretbox": {"keys": list(keys)}}


def write(path: Path, *rules: tuple[list[str], list[dict]]) -> str:
    listed = [{"resources": names, "providers": providers} for names, providers in rules]
    new = path.with_suffix(".new")
    new.write_text(json.dumps({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration", "resources": listed}))
    new.replace(path)
    return f"--encryption-provider-config={path}"


class Client:
    def __init__(self, server: KasServer) -> None:
        self.server = server
        self.session = requests.Session()
        self.session.headers["Authorization"] = "Bearer " + server.token
        self.session.trust_env = False
        self.session.verify = server.ca

    def __call__(self, method: str, path: str, body=None, wanted=(200, 201)):
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        r = self.session.request(
            method, self.server.url + path, json=body, headers={"Content-Type": kind} if body is not None else {}, timeout=60
        )
        assert not wanted or r.status_code in wanted, r.text
        return r.json() if "json" in r.headers.get("content-type", "") else r.text

    def secret(self, name: str, value: str, **metadata):
        body = {"metadata": {"name": name, **metadata}, "stringData": {"k": value}}
        return self("POST", f"{CORE}/secrets", body)

    def create_secret_eventually(self, name: str, value: str):
        """Creates a secret, with retries: the plug-in has a second to answer, which may be too short on a busy machine."""
        body = {"metadata": {"name": name}, "stringData": {"k": value}}
        eventually(lambda: self.session.post(f"{self.server.url}{CORE}/secrets", json=body, timeout=60).status_code, 201)

    def metric(self, name: str, *parts: str) -> float:
        lines = [x for x in self("GET", "/metrics").splitlines() if x.startswith(name + "{") and all(p in x for p in parts)]
        return sum(float(x.rpartition(" ")[2]) for x in lines)


def prefix(server: KasServer, name: str) -> bytes:
    value = raw(server.data_dir, f"/registry/secrets/default/{name}")
    assert value is not None
    return value[:40]


def eventually(what, wanted=True):
    until = time.monotonic() + 120
    while (got := what()) != wanted:
        assert time.monotonic() < until, got
        time.sleep(0.2)


@pytest.fixture
def start(tmp_path):
    running = []

    def begin(*flags: str, workers: int = 1) -> Client:
        server = KasServer(tmp_path / f"server-{len(running)}", *FAST, *flags, workers=workers, prefix=SOON)
        running.append(server)
        return Client(server.start())

    yield begin
    for server in running:
        server.stop()


def test_no_file_shows_encrypted_data(start, tmp_path):
    """Neither current states nor history, nor a copy of the store."""
    client = start(write(tmp_path / "e.yaml", (["secrets", "configmaps"], [box(key("key1"))])))
    marks = [f"needle{i}z" for i in range(8)]
    client.secret("a", marks[0], labels={marks[1]: marks[2]}, annotations={"x": marks[3]})
    client("PATCH", f"{CORE}/secrets/a", {"stringData": {marks[4]: "x"}})
    client("PATCH", f"{CORE}/secrets/a", {"stringData": {"k": marks[5]}})
    client("DELETE", f"{CORE}/secrets/a")
    client("POST", f"{CORE}/configmaps", {"metadata": {"name": "m"}, "data": {"plain": "x" * 70_000 + marks[6]}})
    client("POST", f"{CORE}/serviceaccounts", {"metadata": {"name": "open", "annotations": {"x": marks[7]}}})
    found = client("GET", f"{CORE}/configmaps?labelSelector=!none")
    assert [o["metadata"]["name"] for o in found["items"] if o["metadata"]["name"] == "m"] == ["m"]
    copy = tmp_path / "copy"
    shutil.copytree(client.server.data_dir / "store", copy)
    client.server.stop()
    data = b"".join(p.read_bytes() for root in (client.server.data_dir, copy) for p in sorted(root.rglob("*")) if p.is_file())
    for mark in marks[:7]:
        assert mark.encode() not in data and base64.b64encode(mark.encode())[:8] not in data
    assert marks[7].encode() in data  # resources that are not named are not encrypted
    assert b"k8s:enc:secretbox:v1:key1:" in data


def test_watches_and_selectors_work_on_encrypted_objects_in_all_workers(start, tmp_path):
    client = start(write(tmp_path / "e.yaml", (["*.*"], [{"aesgcm": {"keys": [key("key1")]}}])), workers=2)
    begin = client("GET", f"{CORE}/secrets")["metadata"]["resourceVersion"]
    for i in range(20):
        client.secret(f"s{i}", f"v{i}", labels={"odd": str(i % 2)})
    client.secret("last", "v", labels={"odd": "0"})
    assert len(client("GET", f"{CORE}/secrets?labelSelector=odd%3D1&limit=500")["items"]) == 10
    query = f"watch=true&resourceVersion={begin}&labelSelector=odd%3D0"
    with client.session.get(f"{client.server.url}{CORE}/secrets?{query}", timeout=60, stream=True) as watch:
        seen = (json.loads(line)["object"]["metadata"]["name"] for line in watch.iter_lines())
        assert list(itertools.takewhile(lambda name: name != "last", seen)) == [f"s{i}" for i in range(0, 20, 2)]


def test_custom_resources_are_encrypted_by_the_rule_of_their_group(start, tmp_path):
    client = start(write(tmp_path / "e.yaml", (["*.example.com"], [box(key("key1"))])))
    names = {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"}
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    client("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", {
        "metadata": {"name": "things.example.com"}, "spec": {
            "group": "example.com", "scope": "Namespaced", "names": names,
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    })  # fmt: skip
    things = "/apis/example.com/v1/namespaces/default/things"
    eventually(lambda: client.session.get(client.server.url + things, timeout=60).status_code, 200)
    client("POST", things, {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a"}, "x": "needle"})
    value = raw(client.server.data_dir, "/registry/example.com/things/default/a")
    assert value is not None and value.startswith(b"k8s:enc:secretbox:v1:key1:") and b"needle" not in value
    assert [o["x"] for o in client("GET", things)["items"]] == ["needle"]
    client("PATCH", things + "/a", {"x": "other"})
    assert client("GET", things + "/a")["x"] == "other"


def test_a_new_key_applies_while_the_server_runs(start, tmp_path):
    path = tmp_path / "e.yaml"
    old, new = key("old", b"o"), key("new", b"n")
    client = start(write(path, (["secrets"], [box(old)])), "--encryption-provider-config-automatic-reload", workers=2)
    client.secret("a", "plain")
    assert prefix(client.server, "a").startswith(b"k8s:enc:secretbox:v1:old:")
    # One worker reports it, and the others report the last state.
    eventually(lambda: client.metric("apiserver_encryption_config_controller_last_config_info", 'hash="sha256:'), 1)
    assert client.metric("apiserver_storage_transformation_operations_total", 'resource="secrets"', "to_storage", '"OK"') == 1
    assert client.metric("apiserver_storage_transformation_duration_seconds_count", "to_storage", "k8s:enc:secretbox:v1:") == 1
    write(path, (["secrets"], [box(new, old)]))
    reloads = "apiserver_encryption_config_controller_automatic_reloads_total"
    eventually(lambda: client.server.output.count("loaded new encryption config"), 2)
    eventually(lambda: client.metric(reloads, 'status="success"'), 1)  # both reload it, one counts
    assert client.metric("apiserver_encryption_config_controller_last_config_info", 'hash="sha256:') == 1
    assert client.metric("apiserver_encryption_config_controller_automatic_reload_last_timestamp_seconds", 'status="success"') > 1e9
    before = client("GET", f"{CORE}/secrets/a")
    client("PUT", f"{CORE}/secrets/a", before)  # only the key changes
    assert prefix(client.server, "a").startswith(b"k8s:enc:secretbox:v1:new:")
    path.write_text("nonsense")
    eventually(lambda: client.metric(reloads, 'status="failure"') >= 1)
    assert client("GET", f"{CORE}/secrets/a")["data"] == before["data"]
    write(path, (["secrets"], [box(new)]))
    eventually(lambda: client.server.output.count("loaded new encryption config"), 4)
    eventually(lambda: client.metric(reloads, 'status="success"'), 2)
    assert client("GET", f"{CORE}/secrets/a")["data"] == before["data"]
    assert client("GET", "/readyz/kms-providers") == "ok"


def test_a_lost_key_makes_the_server_unready_until_it_is_back(start, tmp_path):
    path = tmp_path / "e.yaml"
    client = start(write(path, (["secrets"], [box(key("a"))])), "--encryption-provider-config-automatic-reload")
    client.secret("one", "plain")
    client.server.stop()
    write(path, (["secrets"], [box(key("b", b"b"))]))
    client.server.start()
    said = client("GET", f"{CORE}/secrets/one", wanted=(500,))
    assert said["message"] == "Internal error occurred: no matching key was found for the provided Secretbox transformer"
    said = client("GET", f"{CORE}/secrets", wanted=(500,))
    assert said["message"].startswith('Internal error occurred: unable to transform key "/registry/secrets/default/one": no matching key')
    assert client("DELETE", f"{CORE}/secrets/one", wanted=(500,))["reason"] == "InternalError"
    client.secret("two", "plain")
    assert "informer-sync failed" in client("GET", "/readyz?verbose", wanted=(500,))
    write(path, (["secrets"], [box(key("b", b"b"), key("a"))]))
    eventually(lambda: client.session.get(client.server.url + "/readyz", timeout=60).status_code, 200)
    assert {o["metadata"]["name"] for o in client("GET", f"{CORE}/secrets")["items"]} >= {"one", "two"}


def kms(plugin: Plugin, name: str = "plug", timeout: str = "60s") -> dict:
    return {"kms": {"apiVersion": "v2", "name": name, "endpoint": plugin.target, "timeout": timeout}}


def test_a_plugin_encrypts_for_all_workers_and_may_change_its_key(start, tmp_path):
    """A worker that replaces a dead one waits for the plug-in if system objects are encrypted."""
    with Plugin(tmp_path / "kms.sock") as plugin:
        client = start(write(tmp_path / "e.yaml", (["secrets", "namespaces"], [kms(plugin), {"identity": {}}])), workers=2)
        for i in range(20):
            client.secret(f"s{i}", f"v{i}")
        assert prefix(client.server, "s0").startswith(b"k8s:enc:kms:v2:plug:")
        for i in range(40):
            assert client("GET", f"{CORE}/secrets/s{i % 20}")["data"] == {"k": base64.b64encode(b"v%d" % (i % 20)).decode()}
        assert client("GET", "/healthz/kms-providers") == "ok"
        calls = "apiserver_envelope_encryption_kms_operations_latency_seconds_count"
        eventually(lambda: client.metric(calls, 'method_name="Encrypt"', "OK"), 2)
        before = [client("GET", f"{CORE}/secrets/s{i}") for i in range(20)]
        plugin.key_id = "key-2"
        eventually(lambda: _written_with(client, before[0], b"key-2"))
        for obj in before[1:]:
            client("PUT", f"{CORE}/secrets/{obj['metadata']['name']}", obj)
        assert all(client("GET", f"{CORE}/secrets/s{i}")["data"] == before[i]["data"] for i in range(20))
        plugin.stop()
        dies, stays = client.server.worker_pids()
        os.kill(dies, signal.SIGKILL)
        eventually(lambda: "once the KMS plug-in that encrypts them answers" in client.server.output)
        eventually(lambda: _status(client, "/api/v1/namespaces/default"), 200)
        plugin.start()
        os.kill(stays, signal.SIGKILL)
        eventually(lambda: _status(client, f"{CORE}/secrets/s0"), 200)


def _status(client: Client, path: str) -> int:
    try:
        return Client(client.server).session.get(client.server.url + path, timeout=60).status_code
    except requests.ConnectionError:  # a worker that died had the connection
        return 0


def _written_with(client: Client, obj: dict, key_id: bytes) -> bool:
    obj["metadata"].pop("resourceVersion", None)
    client("PUT", f"{CORE}/secrets/{obj['metadata']['name']}", obj)
    value = raw(client.server.data_dir, f"/registry/secrets/default/{obj['metadata']['name']}")
    return value is not None and key_id in value


def test_without_its_plugin_a_server_starts_reports_it_and_recovers(start, tmp_path):
    plugin = Plugin(tmp_path / "kms.sock").start()
    config = write(tmp_path / "e.yaml", (["secrets"], [kms(plugin, timeout="1s")]))
    client = start(config)
    client.create_secret_eventually("a", "plain")
    client.server.stop()
    plugin.stop()
    client.server.start()
    said = client("GET", f"{CORE}/secrets/a", wanted=(500,))
    assert said["message"].startswith("Internal error occurred: failed to decrypt DEK, error: rpc error: code = Unavailable")
    assert client("POST", f"{CORE}/secrets", {"metadata": {"name": "b"}}, wanted=(500,))["reason"] == "InternalError"
    assert "[-]kms-providers failed" in client("GET", "/readyz?verbose", wanted=(500,))
    begins = "internal server error: kms-provider-0: rpc error: code = Unavailable"
    assert client("GET", "/healthz/kms-providers", wanted=(500,)).startswith(begins)
    assert client("GET", "/livez") == "ok"  # a restart would not help
    assert client("GET", "/livez/kms-providers", wanted=(404,))
    client("POST", f"{CORE}/configmaps", {"metadata": {"name": "others-do"}})
    plugin.start()
    try:
        eventually(lambda: client.session.get(client.server.url + "/readyz", timeout=60).status_code, 200)
        eventually(lambda: client.session.get(f"{client.server.url}{CORE}/secrets/a", timeout=60).status_code, 200)
        client.create_secret_eventually("b", "plain")
    finally:
        plugin.stop()


def test_a_slow_plugin_delays_only_resources_it_encrypts(start, tmp_path):
    with Plugin(tmp_path / "kms.sock") as plugin:
        client = start(write(tmp_path / "e.yaml", (["secrets"], [kms(plugin, timeout="1s")])))
        client.create_secret_eventually("a", "plain")
        plugin.hold()
        eventually(lambda: "[-]kms-providers failed" in client("GET", "/readyz?verbose", wanted=()))
        assert client("GET", f"{CORE}/secrets/a")["data"] == {"k": base64.b64encode(b"plain").decode()}  # its key is cached
        client("POST", f"{CORE}/configmaps", {"metadata": {"name": "others-do"}})
        plugin.release()
        eventually(lambda: client.session.get(client.server.url + "/readyz", timeout=60).status_code, 200)


def test_an_invalid_configuration_prevents_the_start_in_one_line(tmp_path):
    flag = write(tmp_path / "e.yaml", (["secrets"], [box({"name": "a", "secret": "AAAA"})]))
    done = kas("serve", f"--data-dir={tmp_path / 'data'}", "--secure-port=0", "--insecure-port=auto", flag)
    assert done.returncode != 0
    assert done.stderr.splitlines() == [
        'kas: error while parsing file: resources[0].providers[0].secretbox.keys[0].secret: Invalid value: "REDACTED": secret is not of '
        "the expected length, got 3, expected one of [32]"
    ]
    assert not (tmp_path / "data" / "store").exists()


def kas(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "kas.cli", *args], capture_output=True, text=True, timeout=120)


def test_migration_encrypts_and_decrypts_as_configured(start, tmp_path):
    client = start()
    client.secret("a", "needle-one", labels={"l": "needle-two"})
    client("POST", "/api/v1/namespaces/default/events", {
        "metadata": {"name": "e"}, "involvedObject": {"namespace": "default"}, "message": "needle-three",
    })  # fmt: skip
    before = client("GET", f"{CORE}/secrets/a")
    data_dir, path = client.server.data_dir, tmp_path / "e.yaml"
    sealed = write(path, (["secrets", "events"], [box(key("key1"))]))
    asked = ("storage", "migrate", f"--data-dir={data_dir}")
    assert "is in use by another kas" in kas(*asked, sealed).stderr
    client.server.stop()
    done = kas(*asked, sealed)
    assert (done.returncode, done.stderr) == (0, "") and "objects written again, 0 could not be read" in done.stdout
    data = (data_dir / "store" / "data.mdb").read_bytes()
    for needle in (b"needle-one", base64.b64encode(b"needle-one"), b"needle-two", b"needle-three"):
        assert needle not in data
    assert kas(*asked, sealed).stdout.startswith("kas: 0 of ")
    client.server.flags = (*client.server.flags, sealed)
    client.server.start()
    after = client("GET", f"{CORE}/secrets/a")
    assert int(after["metadata"].pop("resourceVersion")) > int(before["metadata"].pop("resourceVersion"))
    assert after == before
    assert len(client("GET", f"{CORE}/secrets?labelSelector=l%3Dneedle-two")["items"]) == 1
    assert client("GET", "/api/v1/namespaces/default/events/e")["message"] == "needle-three"
    client.server.stop()
    write(path, (["secrets"], [{"identity": {}}, box(key("key1"))]), (["events"], [box(key("other", b"o"))]))
    done = kas(*asked, sealed)
    assert done.returncode == 1 and "unable to transform key /registry/events/default/e: no matching key" in done.stderr
    assert b"needle-two" in (data_dir / "store" / "data.mdb").read_bytes()


def test_errors_of_the_migration_command(tmp_path):
    assert "holds no store" in kas("storage", "migrate", f"--data-dir={tmp_path}").stderr
    assert kas("storage", "migrate", "--help").stdout.startswith("usage: kas storage migrate")
    assert kas("storage", "nonsense").returncode == 2


def test_a_plugin_of_version_1(start, tmp_path):
    """Behind its feature gate: no file shows encrypted data, all workers read it, and so does a restarted server."""
    with PluginV1(tmp_path / "kms.sock") as plugin:
        provider = kms(plugin)
        provider["kms"]["apiVersion"] = "v1"
        client = start(write(tmp_path / "e.yaml", (["secrets"], [provider, {"identity": {}}])), "--feature-gates=KMSv1=true", workers=2)
        for i in range(4):
            client.secret(f"s{i}", f"needle{i}z")
        assert prefix(client.server, "s0").startswith(b"k8s:enc:kms:v1:plug:\0\x3c")
        assert client("GET", "/healthz/kms-provider-0") == "ok"
        client.server.stop()
        data = b"".join(p.read_bytes() for p in sorted((client.server.data_dir / "store").rglob("*")) if p.is_file())
        assert b"needle" not in data and base64.b64encode(b"needle0z")[:8] not in data
        client = Client(client.server.start())
        for i in range(8):
            assert client("GET", f"{CORE}/secrets/s{i % 4}")["data"] == {"k": base64.b64encode(b"needle%dz" % (i % 4)).decode()}
