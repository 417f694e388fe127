"""Flags by their effect on a running server, where no other test starts one with them."""

from __future__ import annotations

import gzip
import json
import re
import socket
import stat
import time
from collections.abc import Callable

import pytest
import requests

from kas.store.etcd import etcd_pb2 as pb
from kas.store.etcd.client import RANGE, Client
from kas.testing.server import KasServer
from tests.audit.sink import Sink
from tests.etcd import Etcd

LIMIT_S = 60
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


def until(true: Callable[[], object]) -> None:
    """Waits until something is true."""
    end = time.monotonic() + LIMIT_S
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.fixture(scope="module")
def flagged(tmp_path_factory):
    flags = (
        "--unsafe-no-fsync", "--controllers=none", "--min-request-timeout=1", "--default-not-ready-toleration-seconds=7",
        "--default-unreachable-toleration-seconds=8", "--disabled-metrics=apiserver_storage_size_bytes",
        "--allow-metric-labels=apiserver_request_total,verb=LIST",
        "--strict-transport-security-directives=max-age=31536000,includeSubDomains", "-v=1", "--profiling",
        "--history-max-size=1", "--enable-garbage-collector=false", "--min-compatibility-version=1.34", "--permit-port-sharing",
        "--version=v1.36.2-custom.1",
    )  # fmt: skip
    directory = tmp_path_factory.mktemp("kas")
    with socket.socket() as other:  # of a server that shares its port
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(("127.0.0.1", 0))
        port, path = other.getsockname()[1], directory / "debug.sock"
        with KasServer(directory / "d", *flags, f"--debug-socket-path={path}", f"--secure-port={port}") as server:
            yield server
    assert not path.exists()


def test_the_debug_socket_serves_profiles_and_nothing_else(flagged):
    path = flagged.data_dir.parent.parent / "debug.sock"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    asked = {}
    for at, body in (("/debug/pprof/heap", ""), ("/debug/flags/v", "1"), ("/api", ""), (CONFIG_MAPS, "")):
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(LIMIT_S)
            s.connect(str(path))
            method = "PUT" if body else "GET"
            s.sendall(f"{method} {at} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
            asked[at] = s.makefile("rb").readline().split()[1]
    assert asked == {"/debug/pprof/heap": b"200", "/debug/flags/v": b"200", "/api": b"404", CONFIG_MAPS: b"404"}


def test_the_reported_version_follows_its_flag(flagged, connect):
    """As upstream's test-cmd.sh requires; everything else follows the release."""
    ask = connect(flagged)
    assert ask("GET", "/version")[1]["gitVersion"] == "v1.36.2-custom.1"
    assert 'git_version="v1.36.2-custom.1"' in ask.raw("GET", "/metrics").text
    assert "Binary version: 1.36.2-custom.1\n" in ask.raw("GET", "/statusz", Accept="text/plain").text


def test_the_minimum_compatible_version_follows_its_flag(flagged, connect):
    told = connect(flagged)("GET", "/version")[1]
    assert [told[name] for name in ("minCompatibilityMajor", "minCompatibilityMinor", "emulationMinor")] == ["1", "34", "36"]


def test_a_watch_lives_as_long_as_the_flag_says(flagged, connect):
    client = connect(flagged)
    with client.session.get(f"{flagged.url}{CONFIG_MAPS}?watch=1&resourceVersion=0", stream=True, timeout=LIMIT_S) as r:
        assert r.status_code == 200
        list(r.iter_lines())  # ends by itself, which it would not with the default of half an hour


@pytest.mark.parametrize("policy", ["Foreground", "Orphan", "Background"])
def test_without_the_garbage_collector_no_delete_waits_for_it(flagged, connect, policy):
    client = connect(flagged)
    assert client("POST", CONFIG_MAPS, {"metadata": {"name": f"gone-{policy.lower()}"}})[0] == 201
    status, body = client("DELETE", f"{CONFIG_MAPS}/gone-{policy.lower()}", {"propagationPolicy": policy})
    assert (status, body["kind"]) == (200, "Status")
    assert client("GET", f"{CONFIG_MAPS}/gone-{policy.lower()}")[0] == 404


def test_default_tolerations_follow_their_flags(flagged, connect):
    client = connect(flagged)
    client("POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}})
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    status, made = client("POST", "/api/v1/namespaces/default/pods?dryRun=All", pod)
    assert status == 201, made
    seconds = {t["key"]: t["tolerationSeconds"] for t in made["spec"]["tolerations"]}
    assert seconds == {"node.kubernetes.io/not-ready": 7, "node.kubernetes.io/unreachable": 8}


def test_hidden_metrics_follow_their_flag(flagged, connect, kas, client):
    until(lambda: "\napiserver_storage_size_bytes{" in client.raw("GET", "/metrics").text)  # etcd must have been called first
    client = connect(flagged)
    client("GET", CONFIG_MAPS)
    client("POST", CONFIG_MAPS, {"metadata": {"name": "m"}})
    shown = client.raw("GET", "/metrics").text
    assert "apiserver_storage_size_bytes" not in shown
    verbs = {part.partition('verb="')[2].partition('"')[0] for part in shown.splitlines() if part.startswith("apiserver_request_total{")}
    assert verbs == {"LIST", "unexpected"}


def test_strict_transport_security_follows_its_flag(flagged, connect):
    assert connect(flagged).raw("GET", "/version").headers["Strict-Transport-Security"] == "max-age=31536000; includeSubDomains"


def test_requests_are_logged_once_the_verbosity_is_3(flagged, connect):
    assert "] start: store open after " in flagged.output
    client = connect(flagged)
    client("GET", "/version", Audit_ID="before")
    assert client("PUT", "/debug/flags/v", "3", "text/plain") == (200, "successfully set klog.logging.verbosity to 3\n")
    client("GET", "/version", Audit_ID="logged")
    until(lambda: 'audit-ID="logged"' in flagged.output)
    assert 'audit-ID="before"' not in flagged.output


@pytest.mark.lmdb  # what the replica has dropped is read from etcd
def test_history_is_bounded_by_its_flag(flagged, connect):
    client = connect(flagged)
    first = client("GET", CONFIG_MAPS)[1]["metadata"]["resourceVersion"]
    for n in range(3):
        assert client("POST", CONFIG_MAPS, {"metadata": {"name": f"h{n}"}})[0] == 201
    old = f"{CONFIG_MAPS}?resourceVersion={first}&resourceVersionMatch=Exact"
    until(lambda: client("GET", old)[0] == 410)


def policy(directory, level: str = "Metadata") -> str:
    path = directory / "policy.yaml"
    rules = [{"level": level, "resources": [{"resources": ["configmaps"]}], "namespaces": ["default"]}]
    path.write_text(json.dumps({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": rules, "omitStages": ["RequestReceived"]}))
    return f"--audit-policy-file={path}"


@pytest.fixture
def sink():
    made = Sink()
    yield made
    made.close()


def lost(client) -> int:
    """Returns how many events are counted as lost."""
    lines = client.raw("GET", "/metrics").text.splitlines()
    return sum(int(line.rpartition(" ")[2]) for line in lines if line.startswith("apiserver_audit_error_total{"))


def test_batches_to_a_webhook_are_throttled_and_the_overflow_is_lost(kas_server, connect, sink, tmp_path):
    flags = (
        "--controllers=none", policy(tmp_path), sink.kubeconfig(tmp_path), "--audit-webhook-batch-max-size=1",
        "--audit-webhook-batch-throttle-burst=2", "--audit-webhook-batch-throttle-qps=0.0001", "--audit-webhook-batch-buffer-size=3",
    )  # fmt: skip
    client = connect(kas_server(*flags))
    for n in range(2):
        client("GET", CONFIG_MAPS, Audit_ID=f"first-{n}")
    until(lambda: len(sink.lists) == 2)
    for n in range(7):
        client("GET", CONFIG_MAPS, Audit_ID=f"late-{n}")
    assert lost(client) == 4 and len(sink.lists) == 2, "three wait"
    client.server.stop()
    assert {e["auditID"] for e in sink.events} == {"first-0", "first-1", "late-0", "late-1", "late-2"}, "the end is not throttled"


def test_rates_apply_to_all_workers_together(kas_server, connect, sink, tmp_path):
    """Each worker is asked. Events that wait at the end are sent without a rate limit."""
    server = kas_server(
        "--controllers=none", policy(tmp_path), sink.kubeconfig(tmp_path), "--audit-webhook-batch-max-size=1",
        "--audit-webhook-batch-throttle-burst=3", "--audit-webhook-batch-throttle-qps=0.0001", "--audit-webhook-batch-max-wait=10ms",
        "--read-only-port=auto", "--api-rate=0.0001", "--api-burst=3", workers=2,
    )  # fmt: skip
    client = connect(server)
    answers = {f"http://127.0.0.1:{re.search(r'127.0.0.1:([0-9]+) .read-only', server.output)[1]}/livez": [], server.url + CONFIG_MAPS: []}
    for url, got in answers.items():
        for _ in range(40):  # each on its own connection, which any worker may accept
            headers = {"Authorization": f"Bearer {server.token}"} if url.startswith("https") else {}
            got.append(requests.get(url, headers=headers, verify=server.ca, timeout=LIMIT_S).status_code)
    read_only, whole = answers.values()
    assert sorted(read_only) == [200] * 3 + [429] * 37 and whole == [200] * 40
    until(lambda: len(sink.lists) == 3)
    client.server.stop()
    assert len(sink.events) == 40


def test_a_webhook_is_not_throttled_if_the_flag_disables_it(kas_server, connect, sink, tmp_path):
    flags = (
        "--controllers=none", policy(tmp_path, "RequestResponse"), sink.kubeconfig(tmp_path), "--audit-webhook-batch-max-size=1",
        "--audit-webhook-batch-throttle-burst=1", "--audit-webhook-batch-throttle-qps=0.0001",
        "--audit-webhook-batch-throttle-enable=false", "--audit-webhook-truncate-enabled", "--audit-webhook-truncate-max-event-size=2000",
        "--audit-webhook-truncate-max-batch-size=2000", "--audit-webhook-version=audit.k8s.io/v1",
    )  # fmt: skip
    client = connect(kas_server(*flags))
    for n in range(3):
        assert client("POST", CONFIG_MAPS, {"metadata": {"name": f"c{n}"}, "data": {"a": "x" * (3000 if n == 2 else 1)}})[0] == 201
    until(lambda: len(sink.events) == 3)
    assert {found["apiVersion"] for found in sink.lists} == {"audit.k8s.io/v1"}
    assert ["requestObject" in e for e in sink.events] == [True, True, False]
    assert sink.events[2]["annotations"]["audit.k8s.io/truncated"] == "true"


def test_a_log_is_rotated_and_old_files_compressed_or_removed(kas_server, connect, tmp_path):
    log = tmp_path / "audit.log"
    long_ago = tmp_path / "audit-2001-01-01T00-00-00.000.log"
    long_ago.write_text("{}\n")
    flags = (
        "--controllers=none", policy(tmp_path, "Request"), f"--audit-log-path={log}", "--audit-log-maxsize=1", "--audit-log-maxbackup=2",
        "--audit-log-compress",
    )  # fmt: skip
    client = connect(kas_server(*flags))
    for n in range(8):
        assert client("POST", CONFIG_MAPS, {"metadata": {"name": f"c{n}"}, "data": {"a": "x" * 600_000}}, Audit_ID=f"a{n}")[0] == 201

    def backups() -> list:
        return sorted(p for p in tmp_path.glob("audit-*") if p != long_ago)

    until(lambda: not long_ago.exists() and len(backups()) == 2 and all(p.suffix == ".gz" for p in backups()))
    kept = [json.loads(line)["auditID"] for p in backups() for line in gzip.decompress(p.read_bytes()).splitlines()]
    assert kept == ["a5", "a6"] and json.loads(log.read_text())["auditID"] == "a7"


def recorded(log) -> set[str]:
    return {json.loads(line)["auditID"] for line in log.read_text().splitlines()} if log.exists() else set()


def test_batches_to_a_log_are_throttled_too(kas_server, connect, tmp_path):
    log, manifest = tmp_path / "audit.log", tmp_path / "labels.yaml"
    manifest.write_text("apiserver_request_total,verb: LIST\n")
    flags = (
        "--controllers=none", policy(tmp_path), f"--audit-log-path={log}", "--audit-log-mode=batch", "--audit-log-batch-max-size=1",
        "--audit-log-batch-throttle-enable", "--audit-log-batch-throttle-burst=2", "--audit-log-batch-throttle-qps=0.0001",
        "--audit-log-batch-buffer-size=3", "--audit-log-version=audit.k8s.io/v1", f"--allow-metric-labels-manifest={manifest}",
    )  # fmt: skip
    client = connect(kas_server(*flags))
    for n in range(2):
        client("GET", CONFIG_MAPS, Audit_ID=f"first-{n}")
    until(lambda: len(recorded(log)) == 2)
    for n in range(7):
        client("GET", CONFIG_MAPS, Audit_ID=f"late-{n}")
    assert lost(client) == 4 and len(recorded(log)) == 2
    shown = client.raw("GET", "/metrics").text
    assert 'verb="LIST"' in shown and 'apiserver_request_total{code="200",component="apiserver",dry_run="",' in shown
    assert not [line for line in shown.splitlines() if line.startswith("apiserver_request_total{") and 'verb="GET"' in line]
    client.server.stop()
    assert recorded(log) == {"first-0", "first-1", "late-0", "late-1", "late-2"}


def test_an_incomplete_batch_waits_as_long_as_the_flag_says(kas_server, connect, tmp_path):
    log = tmp_path / "audit.log"
    flags = (
        "--controllers=none", policy(tmp_path), f"--audit-log-path={log}", "--audit-log-mode=batch", "--audit-log-batch-max-size=3",
        "--audit-log-batch-max-wait=1h",
    )  # fmt: skip
    client = connect(kas_server(*flags))
    for n in range(4):
        client("GET", CONFIG_MAPS, Audit_ID=f"{n}")
    until(lambda: recorded(log) == {"0", "1", "2"})
    client.server.stop()
    assert recorded(log) == {"0", "1", "2", "3"}


def leases(etcd: Etcd) -> set[int]:
    """Returns the leases of the Events in it."""
    client = Client(etcd.config)
    try:
        found = client.call(RANGE, pb.RangeRequest(key=b"/registry/events/", range_end=b"/registry/events0"), within_s=LIMIT_S)
    finally:
        client.close()
    return {kv.lease for kv in found.kvs}


@pytest.mark.parametrize(("reuse_s", "apart"), [(3600, 1), (0, 3)])
def test_a_lease_of_etcd_is_reused_as_long_as_the_flag_says(kas_server, connect, tmp_path, reuse_s, apart):
    with Etcd(tmp_path) as etcd:
        flags = ("--storage-backend=etcd3", f"--etcd-servers={etcd.url}", "--controllers=none")
        client = connect(kas_server(*flags, f"--lease-reuse-duration-seconds={reuse_s}"))
        for n in range(3):
            event = {"metadata": {"name": f"e{n}"}, "involvedObject": {"namespace": "default"}}
            assert client("POST", "/api/v1/namespaces/default/events", event)[0] == 201
        assert len(leases(etcd) - {0}) == apart


@pytest.mark.parametrize(
    ("flag", "slow", "fast"),
    [
        ("readycheck", ["/readyz/etcd-readiness"], ["/readyz/etcd", "/healthz/etcd", "/livez/etcd"]),
        ("healthcheck", ["/readyz/etcd", "/healthz/etcd", "/livez/etcd"], ["/readyz/etcd-readiness"]),
    ],
)  # fmt: skip
def test_a_slow_etcd_fails_its_check_after_the_flags_timeout(kas_server, connect, tmp_path, flag, slow, fast):
    with Etcd(tmp_path) as etcd:
        flags = ("--storage-backend=etcd3", f"--etcd-servers={etcd.url}", "--controllers=none", f"--etcd-{flag}-timeout=1ns")
        client = connect(kas_server(*flags))
        reason = "error getting data from etcd: context deadline exceeded"
        for path in slow:
            until(lambda path=path: client("GET", path)[0] == 500)  # counted from its first check
            assert client("GET", path) == (500, f"internal server error: {reason}\n")
        for path in fast:
            until(lambda path=path: client("GET", path) == (200, "ok"))
