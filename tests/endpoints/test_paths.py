"""Unknown paths and methods: a path that does not exist is a 404, a known path with another method a 405."""

from __future__ import annotations

import pytest
import requests

NOT_FOUND = "the server could not find the requested resource"
NOT_ALLOWED = "the server does not allow this method on the requested resource"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/api/v1/bindings"),
        ("GET", "/api/v1/namespaces/{ns}/bindings/x"),
        ("POST", "/api/v1/namespaces/{ns}/bindings/x"),
        ("GET", "/api/v1/namespaces/{ns}/namespaces"),
        ("GET", "/api/v1/namespaces/{ns}/namespaces/{ns}"),
        ("GET", "/api/v1/namespaces/{ns}/namespaces/{ns}/status"),
        ("GET", "/api/v1/namespaces/{ns}/nodes"),
        ("GET", "/api/v1/configmaps/x"),
        ("GET", "/apis/authorization.k8s.io/v1/subjectaccessreviews/x"),
        ("POST", "/apis/authorization.k8s.io/v1/localsubjectaccessreviews"),
        ("GET", "/apis/authorization.k8s.io/v1/watch/subjectaccessreviews"),
        ("POST", "/apis/authentication.k8s.io/v1/tokenreviews/x"),
        ("GET", "/api/v1/proxy/nodes/x"),
        ("POST", "/api/v1/proxy/namespaces/{ns}/services/x/y"),
        ("GET", "/apis/authorization.k8s.io/v1/proxy/subjectaccessreviews"),
    ],
)
def test_no_such_path(client, namespace, method, path):
    code, body = client(method, path.format(ns=namespace), {} if method == "POST" else None)
    assert (code, body["reason"], body["message"], body["details"]) == (404, "NotFound", NOT_FOUND, {})


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/v1/namespaces/{ns}/bindings"),
        ("GET", "/apis/authentication.k8s.io/v1/tokenreviews"),
        ("POST", "/api/v1/componentstatuses"),
        ("DELETE", "/api/v1/componentstatuses/etcd-0"),
        ("POST", "/api/v1/configmaps"),
        ("POST", "/api/v1/namespaces/{ns}/configmaps/x"),
        ("POST", "/api/v1/watch/configmaps"),
        ("DELETE", "/api/v1/namespaces"),
        ("GET", "/api/v1/namespaces/{ns}/pods/p/eviction"),
    ],
)
def test_no_such_method(client, namespace, method, path):
    code, body = client(method, path.format(ns=namespace), {} if method == "POST" else None)
    assert (code, body["reason"], body["message"], body["details"]) == (405, "MethodNotAllowed", NOT_ALLOWED, {})


def test_head_is_only_for_paths_outside_of_the_router(client, namespace):
    """Upstream's router has no HEAD; paths outside of it accept any method, as the aggregator's documents do."""
    room = f"/api/v1/namespaces/{namespace}"
    for path in (room, f"{room}/status", f"{room}/configmaps", "/api", "/apis/apps/v1", "/version"):
        assert client.raw("HEAD", path).status_code == 405, path
    for path in ("/", "/healthz", "/livez/ping", "/apis", "/apis/apps"):
        assert client.raw("HEAD", path).status_code == 200, path


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS", "POST"])
@pytest.mark.parametrize("path", ["/openapi/v2", "/openapi/v3", "/openapi/v3/version", "/metrics", "/metrics/slis"])
def test_documents_and_metrics_accept_any_method(client, method, path):
    """The handlers of kube-openapi and Prometheus do not check it; a probe that sends HEAD succeeds."""
    answer = client.raw(method, path)
    read = client.raw("GET", path)
    assert (answer.status_code, answer.headers["content-type"]) == (200, read.headers["content-type"])
    assert bool(answer.content) == (method != "HEAD") and answer.headers.get("etag") == read.headers.get("etag")


def test_metrics_are_not_reset_without_profiling(client):
    for path in ("/metrics", "/metrics/slis"):
        answer = client.raw("DELETE", path)  # the handler does not check methods
        assert answer.status_code == 200 and answer.text.startswith("# HELP "), path


def test_a_path_with_two_leading_slashes_is_not_found(client):
    request = client.session.prepare_request(requests.Request("GET", client.server.url))
    request.url = f"{client.server.url}//api/v1/configmaps"  # set afterwards: requests would remove one
    answer = client.session.send(request, verify=client.server.ca)
    assert (answer.status_code, answer.text) == (404, "404 page not found\n")


def test_resources_that_cannot_be_watched(client):
    code, body = client("GET", "/api/v1/componentstatuses?watch=1")
    assert (code, body["message"], body["details"]) == (
        405, 'watch is not supported on resources of kind "componentstatuses"', {"kind": "componentstatuses"})  # fmt: skip


def test_connections_cannot_be_dry_runs(client, namespace):
    code, body = client("GET", f"/api/v1/namespaces/{namespace}/pods/none/exec?command=a&dryRun=All")
    assert (code, body["message"]) == (400, "dryRun is not supported")


def test_a_review_drops_server_set_metadata(client):
    body = {"metadata": {"uid": "x", "creationTimestamp": "2024-01-01T00:00:00Z", "namespace": "n"}, "spec": {"user": "u"}}
    body["spec"]["resourceAttributes"] = {"verb": "get", "resource": "pods"}
    code, answer = client("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", body)
    assert code == 201 and set(answer["metadata"]) == {"managedFields"}


@pytest.mark.parametrize(
    "flags", [(), ("--profiling", "--enable-logs-handler", "--enable-swagger-ui"), ("--service-account-issuer=tokens",)]
)
def test_paths_of_the_index_exist(kas_server, connect, flags):
    client = connect(kas_server(*flags, "--unsafe-no-fsync"))
    paths = client("GET", "/")[1]["paths"]
    assert len(paths) > 50 and len(set(paths)) == len(paths)
    answers = {path: client.raw("GET", path + ("?seconds=1" if path.endswith("/profile") else "")) for path in paths}
    assert {path: (a.status_code, a.text[:500]) for path, a in answers.items() if a.status_code != 200} == {}
    verifiable = "--service-account-issuer=tokens" not in flags
    for path in ("/.well-known/openid-configuration", "/openid/v1/jwks"):
        assert (path in paths) == (path[1:] in client("GET", "/openapi/v3")[1]["paths"]) == verifiable, path


def test_every_path_of_the_index_is_served(client):
    """And what kube-apiserver does not serve is not there: /configz belongs to the scheduler, the controller manager and the kubelet."""
    paths = client("GET", "/")[1]["paths"]
    answers = {path: client.raw("GET", path).status_code for path in paths}
    assert {path: status for path, status in answers.items() if status != 200} == {}
    assert "/configz" not in paths and client.raw("GET", "/configz").status_code == 404


def test_paths_of_the_documents_exist(client):
    """Generated clients use paths as the documents write them, with a slash at the end for discovery and the issuer's documents."""
    paths = client("GET", "/openapi/v2")[1]["paths"]
    named = [path for path, item in paths.items() if "get" in item and "{" not in path and "/watch/" not in path]
    assert {"/.well-known/openid-configuration/", "/openid/v1/jwks/", "/api/", "/version/", "/api/v1/pods"} <= set(named)
    assert [path for path in named if client.raw("GET", path).status_code != 200] == []
