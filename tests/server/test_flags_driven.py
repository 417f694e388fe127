"""Flags driven from outside: a real server with the flag does what the flag says. Others are in ``test_flag_effects.py``."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
import requests

from kas.testing.server import READY, KasServer
from tests.observe.collector import Collector
from tests.security.kms import Plugin
from tests.server.test_flag_effects import CONFIG_MAPS, LIMIT_S, policy, until

SERVICE_ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
JANE = {"Impersonate_User": "jane"}  # no member of system:masters, which no limit counts


@pytest.fixture(scope="module")
def flagged(tmp_path_factory) -> Iterator[KasServer]:
    flags = (
        "--unsafe-no-fsync", "--controllers=none", "--anonymous-auth=false", "--enable-priority-and-fairness=false",
        "--max-requests-inflight=1", "--max-mutating-requests-inflight=1", "--strict-transport-security-directives=max-age=5",
        "--service-account-lookup=false", "--service-account-extend-token-expiration=false", "--etcd-count-metric-poll-period=100ms",
        "--show-hidden-metrics-for-version=1.35",
    )  # fmt: skip
    with KasServer(tmp_path_factory.mktemp("kas"), *flags) as server:
        yield server


@contextlib.contextmanager
def unfinished(server: KasServer, method: str, length: int, **headers: str) -> Iterator[ssl.SSLSocket]:
    """A request whose body is incomplete, or whose answer is not read."""
    context = ssl.create_default_context(cafile=server.ca)
    with socket.socket() as plain:
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        plain.settimeout(LIMIT_S)
        plain.connect(("127.0.0.1", server.port))
        with context.wrap_socket(plain, server_hostname="127.0.0.1") as s:
            sent = {"Host": "x", "Authorization": f"Bearer {server.token}", "Content-Type": "application/json"}
            sent["Content-Length"] = str(length)
            lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in (sent | headers).items())
            s.sendall(f"{method} {CONFIG_MAPS} HTTP/1.1\r\n{lines}\r\n".encode())
            yield s


def in_flight(client: Any, kind: str) -> float:
    """What /metrics counts, asked by an administrator."""
    return float(re.search(rf'apiserver_current_inflight_requests{{request_kind="{kind}"}} (\S+)', client.raw("GET", "/metrics").text)[1])


def test_without_fairness_reads_and_writes_have_limits_of_their_own(flagged, connect):
    client = connect(flagged)
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
    assert client("POST", bindings, {"metadata": {"name": "jane"}, "roleRef": role, "subjects": [subject]})[0] == 201
    for n in range(16):  # more than a connection's buffers take
        assert client("POST", CONFIG_MAPS, {"metadata": {"name": f"large-{n}"}, "data": {"a": "x" * 1_000_000}})[0] == 201
    dry = f"{CONFIG_MAPS}?dryRun=All"
    with unfinished(flagged, "GET", 0, **JANE) as read:
        assert read.recv(8) == b"HTTP/1.1"
        refused = client.raw("GET", CONFIG_MAPS, **JANE)
        assert (refused.status_code, refused.headers["Retry-After"]) == (429, "1")
        assert client("POST", dry, {"metadata": {"name": "a"}}, **JANE)[0] == 201
        assert client("GET", f"{CONFIG_MAPS}/large-0")[0] == 200
    until(lambda: client("GET", f"{CONFIG_MAPS}/large-0", **JANE)[0] == 200)
    with unfinished(flagged, "POST", 100, **JANE):
        until(lambda: in_flight(client, "mutating") == 1)
        assert client("POST", dry, {"metadata": {"name": "a"}}, **JANE)[0] == 429
        assert client("GET", f"{CONFIG_MAPS}/large-0", **JANE)[0] == 200
        assert client("POST", dry, {"metadata": {"name": "a"}})[0] == 201
    until(lambda: client("POST", dry, {"metadata": {"name": "a"}}, **JANE)[0] == 201)


@pytest.mark.parametrize(
    ("path", "status", "headers"),
    [
        ("/healthz", 200, {}), ("/livez?verbose", 200, {}), ("/metrics", 200, {}), ("/nope", 404, {}), ("/readyz/nope", 404, {}),
        (CONFIG_MAPS, 401, {"Authorization": "Bearer wrong"}), (CONFIG_MAPS, 403, {"Impersonate_User": "eve"}),
    ],
)  # fmt: skip
def test_refusals_and_health_checks_have_the_hsts_header_too(flagged, connect, path, status, headers):
    """Upstream's ``WithHSTS`` is outside of authentication and of every handler."""
    answer = connect(flagged).raw("GET", path, **headers)
    assert (answer.status_code, answer.headers["Strict-Transport-Security"]) == (status, "max-age=5")


@pytest.mark.parametrize("path", ["/healthz", "/version", CONFIG_MAPS])
def test_unauthenticated_requests_are_401_if_anonymous_requests_are_off(flagged, path):
    assert requests.get(flagged.url + path, verify=flagged.ca, timeout=LIMIT_S).status_code == 401


def legacy_token(server: KasServer, client: Any, account: str) -> str:
    """A token of an account that never expires, as token controllers make them, for a Secret ``t``."""
    uid = client("GET", f"{SERVICE_ACCOUNTS}/{account}")[1]["metadata"]["uid"]
    about = "kubernetes.io/serviceaccount/"
    claims = {"iss": "kubernetes/serviceaccount", "sub": f"system:serviceaccount:default:{account}", f"{about}namespace": "default",
              f"{about}secret.name": "t", f"{about}service-account.name": account, f"{about}service-account.uid": uid}  # fmt: skip
    key = server.data_dir / "pki" / "sa.key"
    until(key.exists)  # made while the first start serves
    return jwt.encode(claims, key.read_text(), "RS256", {"kid": client("GET", "/openid/v1/jwks")[1]["keys"][0]["kid"]})


@pytest.mark.parametrize("looked_up", [False, True])
def test_the_secret_of_a_token_is_looked_up_only_with_the_flag(flagged, kas, connect, looked_up):
    server = kas if looked_up else flagged
    client = connect(server)
    client("POST", SERVICE_ACCOUNTS, {"metadata": {"name": "robot"}})
    token = legacy_token(server, client, "robot")

    def status() -> int:
        return client("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", {}, Authorization=f"Bearer {token}")[0]

    secrets = "/api/v1/namespaces/default/secrets"
    assert status() == (401 if looked_up else 201)
    data = {"token": base64.b64encode(token.encode()).decode()}
    about = {"name": "t", "annotations": {"kubernetes.io/service-account.name": "robot"}}
    assert client("POST", secrets, {"metadata": about, "type": "kubernetes.io/service-account-token", "data": data})[0] == 201
    assert status() == 201
    assert client("DELETE", f"{secrets}/t")[0] == 200
    assert status() == (401 if looked_up else 201)


@pytest.mark.parametrize(("extended", "seconds"), [(True, 365 * 86400), (False, 3607)])
def test_tokens_of_pods_live_longer_where_the_flag_says_so(flagged, kas, connect, extended, seconds):
    client = connect(kas if extended else flagged)
    client("POST", SERVICE_ACCOUNTS, {"metadata": {"name": "default"}})
    pods = "/api/v1/namespaces/default/pods"
    status, pod = client("POST", pods, {"metadata": {"name": "of-tokens"}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
    assert status == 201, pod
    bound = {"kind": "Pod", "apiVersion": "v1", "name": "of-tokens", "uid": pod["metadata"]["uid"]}
    asked = {"spec": {"expirationSeconds": 3607, "boundObjectRef": bound}}
    token = client("POST", f"{SERVICE_ACCOUNTS}/default/token", asked)[1]["status"]["token"]
    claims = jwt.decode(token, options={"verify_signature": False})
    assert claims["exp"] - claims["iat"] == seconds and ("warnafter" in claims["kubernetes.io"]) is extended
    client("DELETE", f"{pods}/of-tokens", {"gracePeriodSeconds": 0})


def test_objects_are_counted_as_often_as_the_flag_says(flagged, kas_server, connect):
    client, never = connect(flagged), connect(kas_server("--controllers=none", "--etcd-count-metric-poll-period=0s"))
    leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
    for one in (client, never):
        assert one("POST", leases, {"metadata": {"name": "counted"}, "spec": {}})[0] == 201
    counted = re.compile(r'^apiserver_resource_objects{group="coordination.k8s.io",resource="leases"} [2-9]', re.M)
    until(lambda: counted.search(client.raw("GET", "/metrics").text))
    assert "apiserver_resource_objects{" not in never.raw("GET", "/metrics").text


def test_hidden_metrics_are_shown_where_the_flag_says_so(flagged, client, connect):
    hidden = "\nkube_apiserver_pod_logs_pods_logs_backend_tls_failure_total "
    assert hidden in connect(flagged).raw("GET", "/metrics").text and hidden not in client.raw("GET", "/metrics").text


def test_watches_end_one_after_another_in_their_time(kas_server):
    """At 200 a second, where they have an hour. Without the flag all end at once."""
    server, count = kas_server("--controllers=none", "--shutdown-watch-termination-grace-period=1h"), 120
    url, headers = f"{server.url}{CONFIG_MAPS}?watch=1&resourceVersion=0", {"Authorization": f"Bearer {server.token}"}
    watches = [requests.get(url, headers=headers, verify=server.ca, stream=True, timeout=LIMIT_S) for _ in range(count)]
    assert {w.status_code for w in watches} == {200}
    signalled = time.monotonic()
    os.kill(server.pid, signal.SIGTERM)
    assert [list(w.iter_lines()) for w in watches] == [[]] * count
    assert time.monotonic() - signalled >= (count - 1) / 200
    assert server.process.wait(LIMIT_S) == 0


def test_requests_get_429_only_until_the_server_has_been_ready_once(kas_server, connect, tmp_path):
    plugin = Plugin(tmp_path / "kms.sock")
    config = tmp_path / "encryption.yaml"
    kms = {"kms": {"apiVersion": "v2", "name": "plug", "endpoint": plugin.target, "timeout": "1s"}}
    kind = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration"}
    config.write_text(json.dumps({**kind, "resources": [{"resources": ["secrets"], "providers": [kms]}]}))
    flags = (f"--encryption-provider-config={config}", "--send-retry-after-while-not-ready-once", "--controllers=none")
    client = connect(kas_server(*flags))
    assert client("GET", "/readyz")[0] == 500 and client("GET", "/livez") == (200, "ok")
    refused = client.raw("GET", CONFIG_MAPS)
    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "5")
    with plugin:
        until(lambda: client("GET", "/readyz") == (200, "ok"))
        assert client("GET", CONFIG_MAPS)[0] == 200
    until(lambda: client("GET", "/readyz")[0] == 500)
    assert client("GET", CONFIG_MAPS)[0] == 200


def test_a_start_waits_for_etcd_as_long_as_the_flag_says(tmp_path):
    with socket.socket() as unconnected:
        unconnected.bind(("127.0.0.1", 0))  # and does not listen
        url = f"http://127.0.0.1:{unconnected.getsockname()[1]}"
        where = ("--data-dir", str(tmp_path), "--secure-port=auto", "--storage-backend=etcd3", f"--etcd-servers={url}")
        command = [sys.executable, "-m", "kas", "serve", *where, "--storage-initialization-timeout=1500ms"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 1 and "waiting for etcd, for up to 1.5s: " in done.stderr
    assert re.search(r"^kas: --etcd-servers: .*Connection refused", done.stderr, re.M)


def test_spans_are_sent_where_the_file_says(kas_server, connect, tmp_path):
    collector, config = Collector(), tmp_path / "tracing.yaml"
    kind = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "TracingConfiguration"}
    config.write_text(json.dumps({**kind, "endpoint": collector.endpoint, "samplingRatePerMillion": 1_000_000}))
    try:
        client = connect(kas_server(f"--tracing-config-file={config}", "--controllers=none", workers=2))
        assert client("POST", CONFIG_MAPS, {"metadata": {"name": "traced"}})[0] == 201
        name = "POST /api/v1/namespaces/{:namespace}/configmaps"
        until(lambda: name in {span.name for span in collector.wait_for(1)})
    finally:
        collector.close()


def test_events_of_a_log_are_truncated_or_legacy_where_flags_say_so(kas_server, connect, tmp_path):
    for name, flags in (
        ("json", ("--audit-log-truncate-enabled", "--audit-log-truncate-max-event-size=2000", "--audit-log-truncate-max-batch-size=4000")),
        ("legacy", ("--audit-log-format=legacy",)),
    ):
        log = tmp_path / name
        client = connect(kas_server("--controllers=none", policy(tmp_path, "Request"), f"--audit-log-path={log}", *flags))
        for n, size in enumerate((1, 3000)):
            assert client("POST", CONFIG_MAPS, {"metadata": {"name": f"c{n}"}, "data": {"a": "x" * size}}, Audit_ID=f"a{n}")[0] == 201
    events = [json.loads(line) for line in (tmp_path / "json").read_text().splitlines()]
    assert ["requestObject" in e for e in events] == [True, False]
    assert [(e.get("annotations") or {}).get("audit.k8s.io/truncated") for e in events] == [None, "true"]
    lines = (tmp_path / "legacy").read_text().splitlines()
    assert [re.fullmatch(r'\S+Z AUDIT: id="(a\d)" stage="ResponseComplete" .* response="201"', line)[1] for line in lines] == ["a0", "a1"]


@pytest.mark.parametrize("form", ["json", "text"])
def test_a_split_log_waits_in_its_buffer_for_the_end(tmp_path: Path, form: str):
    """Nothing else writes it: the buffer is larger than what is logged, and is flushed once an hour."""
    out, err = tmp_path / "out", tmp_path / "err"
    flags = (f"--logging-format={form}", f"--log-{form}-split-stream", f"--log-{form}-info-buffer-size=1Mi", "--log-flush-frequency=1h")
    command = [sys.executable, "-m", "kas", "serve", "--data-dir", str(tmp_path / "d"), "--secure-port=auto", "--workers=1", "-v=1"]
    with out.open("w") as to_out, err.open("w") as to_err:
        more = (*flags, "--controllers=none", "--feature-gates=LoggingAlphaOptions=true")
        running = subprocess.Popen([*command, *more], stdout=to_out, stderr=to_err)
    try:
        until(lambda: READY.search(out.read_text()) or running.poll() is not None)
        assert "store open after" not in out.read_text()
    finally:
        running.terminate()
    assert running.wait(LIMIT_S) == 0
    assert "store open after" in out.read_text() and "store open after" not in err.read_text()
