"""The audit log of a whole server, over HTTP."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.audit.sink import Sink

LIMIT_S = 60


def policy(directory: Path, *rules: dict, **more) -> str:
    path = directory / "policy.yaml"
    path.write_text(json.dumps({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": list(rules), **more}))
    return f"--audit-policy-file={path}"


def recorded(path: Path, wanted: Callable[[list[dict]], bool]) -> list[dict]:
    """Returns the events in the file once they are as wanted: the end of a watch is recorded after its client has gone."""
    until = time.monotonic() + LIMIT_S
    while True:
        whole = path.read_text().rpartition("\n")[0] if path.exists() else ""  # a line may be incomplete
        events = [json.loads(line) for line in whole.splitlines()]
        if wanted(events):
            return events
        assert time.monotonic() < until, events
        time.sleep(0.05)


def complete(*ids: str) -> Callable[[list[dict]], bool]:
    return lambda events: {e["auditID"] for e in events if e["stage"] == "ResponseComplete"} >= set(ids)


def test_requests_are_recorded_by_every_worker(kas_server, connect, tmp_path):
    log = tmp_path / "audit.log"
    rules = [
        {"level": "RequestResponse", "resources": [{"resources": ["configmaps"]}]}, {"level": "Metadata", "nonResourceURLs": ["/version*"]},
    ]  # fmt: skip
    server = kas_server("--workers", "2", policy(tmp_path, *rules), f"--audit-log-path={log}")
    path = "/api/v1/namespaces/default/configmaps"
    for n in range(4):  # a connection each: both workers get some
        client = connect(server)
        assert client("POST", path, {"metadata": {"name": f"c{n}"}, "data": {"a": "<b>"}}, Audit_ID=f"create-{n}")[0] == 201
    assert client("PATCH", f"{path}/c0", {"data": {"b": "1"}}, "application/merge-patch+json", Audit_ID="patch")[0] == 200
    assert client("GET", path, Audit_ID="list")[0] == 200
    assert client("GET", f"{path}/none", Audit_ID="none")[0] == 404
    assert client("DELETE", f"{path}/c0", {"propagationPolicy": "Background"}, Audit_ID="delete")[0] == 200
    assert client("GET", "/version", Audit_ID="version")[0] == 200
    escaped = "/version%3Fx=1&y%0A%2F"
    assert client("GET", escaped, Audit_ID="escaped")[0] == 404
    assert client("GET", "/api/v1/namespaces/default/secrets", Audit_ID="secrets")[0] == 200
    names = [*(f"create-{n}" for n in range(4)), "patch", "list", "none", "delete", "version", "escaped"]
    events = recorded(log, complete(*names))
    by = {(e["auditID"], e["stage"]): e for e in events}
    assert set(by) == {(name, stage) for name in names for stage in ("RequestReceived", "ResponseComplete")} and len(events) == len(by)
    assert by["escaped", "ResponseComplete"]["requestURI"] == escaped  # and not the rest, which would be a query or another line
    created = by["create-0", "ResponseComplete"]
    assert created["requestObject"] == {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "c0"}, "data": {"a": "<b>"}}
    assert created["responseObject"]["metadata"]["uid"] and created["responseStatus"] == {"metadata": {}, "code": 201}
    assert created["objectRef"]["name"] == "c0" and "name" not in by["create-0", "RequestReceived"]["objectRef"]
    assert created["annotations"]["authorization.k8s.io/decision"] == "allow" and created["sourceIPs"] == ["127.0.0.1"]
    assert by["patch", "ResponseComplete"]["requestObject"] == {"data": {"b": "1"}}
    assert len(by["list", "ResponseComplete"]["responseObject"]["items"]) >= 4
    assert by["none", "ResponseComplete"]["responseStatus"]["reason"] == "NotFound"
    assert by["delete", "ResponseComplete"]["requestObject"]["apiVersion"] == "meta.k8s.io/__internal"
    assert "responseObject" not in by["version", "ResponseComplete"]


def test_custom_resources_are_recorded_completely(kas_server, connect, tmp_path):
    log = tmp_path / "audit.log"
    flags = policy(tmp_path, {"level": "RequestResponse", "resources": [{"group": "audit.example.com"}]}), f"--audit-log-path={log}"
    client = connect(kas_server("--controllers", "none", *flags))
    properties = {"spec": {"type": "object", "properties": {"n": {"type": "integer"}, "d": {"type": "string", "default": "x"}}}}
    schema = {"openAPIV3Schema": {"type": "object", "properties": properties}}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "gs.audit.example.com"},
        "spec": {
            "group": "audit.example.com", "scope": "Namespaced", "names": {"plural": "gs", "kind": "G"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }  # fmt: skip
    assert client("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)[0] == 201
    path = "/apis/audit.example.com/v1/namespaces/default/gs"
    until = time.monotonic() + LIMIT_S
    while client("GET", path)[0] != 200:
        assert time.monotonic() < until
        time.sleep(0.05)
    sent = {"apiVersion": "audit.example.com/v1", "kind": "G", "metadata": {"name": "a"}, "spec": {"n": 1, "unknown": 2}}
    assert client("POST", path, sent, Audit_ID="create")[0] == 201
    assert client("PUT", f"{path}/a", {**sent, "spec": {"n": 2}}, Audit_ID="update")[0] in (200, 422)
    assert client("GET", path, Audit_ID="list")[0] == 200
    events = {e["auditID"]: e for e in recorded(log, complete("create", "update", "list")) if e["stage"] == "ResponseComplete"}
    created = events["create"]
    # As it was decoded: pruned and with defaults.
    assert created["requestObject"] == {**sent, "spec": {"n": 1, "d": "x"}}
    assert created["objectRef"]["name"] == "a" and created["responseObject"]["metadata"]["uid"]
    assert events["update"]["requestObject"]["spec"]["n"] == 2
    assert [item["metadata"]["name"] for item in events["list"]["responseObject"]["items"]] == ["a"]


def test_unauthenticated_and_forbidden_requests(kas_server, connect, tmp_path):
    log = tmp_path / "audit.log"
    client = connect(kas_server(policy(tmp_path, {"level": "Metadata"}, omitStages=["RequestReceived"]), f"--audit-log-path={log}"))
    assert client("GET", "/api/v1/pods", Audit_ID="bad", Authorization="Bearer no")[0] == 401
    assert client("GET", "/api/v1/pods?timeout=soon", Audit_ID="soon")[0] == 400
    assert client("GET", "/api/v1/pods", Audit_ID="jane", Impersonate_User="jane")[0] == 403
    events = {e["auditID"]: e for e in recorded(log, complete("jane")) if e["auditID"] in ("bad", "soon", "jane")}
    # The authorizer has not been asked yet.
    assert events["soon"]["stage"] == "ResponseStarted" and events["soon"]["user"] == {}
    assert events["soon"]["responseStatus"]["message"] == 'invalid timeout specified in the request URL - time: invalid duration "soon"'
    assert events["bad"]["stage"] == "ResponseStarted" and events["bad"]["user"] == {}
    assert events["bad"]["responseStatus"]["reason"] == "Unauthorized" and "annotations" not in events["bad"]
    assert events["jane"]["impersonatedUser"]["username"] == "jane"
    assert events["jane"]["annotations"]["authorization.k8s.io/decision"] == "forbid"


def test_a_watch_has_two_events(kas_server, connect, tmp_path):
    log = tmp_path / "audit.log"
    rule = {"level": "RequestResponse", "verbs": ["watch"]}
    client = connect(kas_server("--controllers", "none", policy(tmp_path, rule), f"--audit-log-path={log}"))
    url = f"{client.server.url}/api/v1/namespaces/default/configmaps?watch=1"
    with client.session.get(url, headers={"Audit-ID": "watch"}, stream=True, timeout=60) as r:
        assert r.status_code == 200
        recorded(log, lambda events: [e["stage"] for e in events] == ["RequestReceived", "ResponseStarted"])
    events = recorded(log, complete("watch"))
    assert [e["stage"] for e in events] == ["RequestReceived", "ResponseStarted", "ResponseComplete"]
    assert "responseObject" not in events[-1]


@pytest.fixture
def sink():
    made = Sink()
    yield made
    made.close()


def test_a_strict_webhook_fails_requests_that_it_cannot_record(kas_server, connect, sink, tmp_path):
    rule = {"level": "Request", "resources": [{"resources": ["configmaps"]}], "namespaces": ["default"]}
    mode = ("--audit-webhook-mode=blocking-strict", "--audit-webhook-initial-backoff=1ms")
    flags = (policy(tmp_path, rule), sink.kubeconfig(tmp_path), *mode)
    client = connect(kas_server("--controllers", "none", *flags))
    path = "/api/v1/namespaces/default/configmaps"
    assert client("POST", path, {"metadata": {"name": "a"}}, Audit_ID="a")[0] == 201
    # Both entries are there before the answer is.
    assert [e["stage"] for e in sink.events if e["auditID"] == "a"] == ["RequestReceived", "ResponseComplete"]
    assert sink.lists[0]["kind"] == "EventList" and "kind" not in sink.events[0]
    sink.fails = True
    r = client.raw("POST", path, {"metadata": {"name": "b"}})
    assert r.status_code == 500 and r.headers["Content-Type"].startswith("text/plain")
    assert sink.refused == 5, "whatever it answers, it is asked again, as upstream does"
    sink.fails = False
    assert client("GET", f"{path}/b")[0] == 404, "what could not be recorded has not happened"
    assert 'apiserver_audit_requests_rejected_total 1' in client.raw("GET", "/metrics").text


def test_batches_reach_the_webhook_at_the_end_too(kas_server, connect, sink, tmp_path):
    rule = {"level": "Metadata", "resources": [{"resources": ["configmaps"]}], "namespaces": ["default"], "verbs": ["list"]}
    flags = (policy(tmp_path, rule, omitStages=["RequestReceived"]), sink.kubeconfig(tmp_path), "--audit-webhook-batch-max-wait=300s")
    server = kas_server("--controllers", "none", *flags)
    client = connect(server)
    for n in range(5):
        assert client("GET", "/api/v1/namespaces/default/configmaps", Audit_ID=f"n{n}")[0] == 200
    assert not sink.lists
    assert server.stop() == 0
    assert [[e["auditID"] for e in found["items"]] for found in sink.lists] == [[f"n{n}" for n in range(5)]]


def test_events_that_the_webhook_did_not_accept_in_time_are_reported(kas_server, connect, sink, tmp_path):
    """Its retries take longer than the grace period: 10 s until the second one."""
    rule = {"level": "Metadata", "resources": [{"resources": ["configmaps"]}], "namespaces": ["default"], "verbs": ["list"]}
    flags = (policy(tmp_path, rule, omitStages=["RequestReceived"]), sink.kubeconfig(tmp_path), "--audit-webhook-batch-max-size=2")
    server = kas_server("--controllers", "none", "--shutdown-grace=1ms", *flags)
    client = connect(server)
    sink.fails = True
    for _ in range(3):
        assert client("GET", "/api/v1/namespaces/default/configmaps")[0] == 200
    assert server.stop() == 0
    lost = "events are lost: the server ends and the backend has not taken them"
    assert server.output.count(f"'webhook' affecting audit events: 2 {lost}") == 1
    assert server.output.count(f"'webhook' affecting audit events: 1 {lost}") == 1


def test_an_invalid_policy_prevents_the_start(tmp_path):
    from kas.testing.server import KasServer

    with pytest.raises(RuntimeError, match=r"loading audit policy file: rules\[0\]\.level: Required value: from file "):
        KasServer(tmp_path, policy(tmp_path, {"users": ["a"]}), "--audit-log-path=-").start()
