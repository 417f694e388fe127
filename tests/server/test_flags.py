"""Flags that change what a running server returns or allows."""

from __future__ import annotations

import base64
import ipaddress
import json
import socket
import ssl
import time

import pytest
import requests

from kas.auth.tokens import Signer
from kas.config.address import host_address
from kas.config.flags import FLAGS
from kas.testing.server import KasServer
from tests.pki import generate_key


@pytest.fixture(scope="module")
def other_key(tmp_path_factory):
    path = tmp_path_factory.mktemp("keys") / "other.key"
    path.write_bytes(generate_key())
    return path


@pytest.fixture(scope="module")
def flagged(tmp_path_factory, other_key):
    flags = (
        "--unsafe-no-fsync", "--external-hostname=api.example.com", "--service-account-issuer=https://new.example",
        "--service-account-issuer=https://old.example", f"--service-account-key-file={other_key}", "--allow-privileged=false",
        "--service-account-jwks-uri=https://keys.example/jwks", "--disable-http2-serving", "--endpoint-reconciler-type=none",
        "--controllers=none", "--request-timeout=90s",
    )  # fmt: skip
    with KasServer(tmp_path_factory.mktemp("kas"), *flags) as server:
        yield server


def test_the_first_issuer_issues_and_all_are_accepted(flagged, connect, other_key):
    api = connect(flagged)
    assert api("POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}})[0] == 201
    made = api("POST", "/api/v1/namespaces/default/serviceaccounts/default/token", {"spec": {"expirationSeconds": 600}})
    assert made[0] == 201
    token = made[1]["status"]["token"]
    claims = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
    assert claims["iss"] == "https://new.example" and claims["aud"] == ["https://new.example", "https://old.example"]
    uid = api("GET", "/api/v1/namespaces/default/serviceaccounts/default")[1]["metadata"]["uid"]
    for issuer, right in (("https://old.example", True), ("https://new.example", True), ("https://third.example", False)):
        review = {"spec": {"token": _bound(other_key, issuer, uid)}}
        status, answer = api("POST", "/apis/authentication.k8s.io/v1/tokenreviews", review)
        assert status == 201 and answer["status"].get("authenticated", False) is right, (issuer, answer["status"])


def _bound(key, issuer: str, uid: str) -> str:
    now = int(time.time())
    return Signer(key.read_bytes(), issuer).sign({
        "iss": issuer, "aud": ["https://new.example"], "exp": now + 600, "iat": now, "nbf": now,
        "sub": "system:serviceaccount:default:default",
        "kubernetes.io": {"namespace": "default", "serviceaccount": {"name": "default", "uid": uid}},
    })  # fmt: skip


def test_discovery_names_the_external_host_and_the_given_keys(flagged, connect):
    api = connect(flagged)
    document = api("GET", "/.well-known/openid-configuration")[1]
    assert document["issuer"] == "https://new.example" and document["jwks_uri"] == "https://keys.example/jwks"
    assert len(api("GET", "/openid/v1/jwks")[1]["keys"]) == 2
    addresses = api("GET", "/api")[1]["serverAddressByClientCIDRs"]
    assert addresses == [{"clientCIDR": "0.0.0.0/0", "serverAddress": f"api.example.com:{flagged.port}"}]


def test_without_a_reconciler_the_endpoints_are_not_written(flagged, connect):
    assert connect(flagged)("GET", "/api/v1/namespaces/default/endpoints/kubernetes")[0] == 404


def test_the_endpoints_have_an_address_of_this_host(kas, client):
    (subset,) = client("GET", "/api/v1/namespaces/default/endpoints/kubernetes")[1]["subsets"]
    (address,) = subset["addresses"]
    assert address["ip"] == (host_address(4) or "127.0.0.1")
    assert not ipaddress.ip_address(address["ip"]).is_unspecified


def test_privileged_containers_are_refused(flagged, connect):
    api = connect(flagged)
    container = {"name": "c", "image": "i", "securityContext": {"privileged": True}}
    pod = {"metadata": {"name": "p", "namespace": "default"}, "spec": {"containers": [container]}}
    # a pod without one is answered with 403
    status, _ = api("POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}})
    assert status in (201, 409)
    status, answer = api("POST", "/api/v1/namespaces/default/pods", pod)
    assert status == 422
    assert answer["details"]["causes"] == [{
        "reason": "FieldValueForbidden", "message": "Forbidden: disallowed by cluster policy",
        "field": "spec.containers[0].securityContext.privileged",
    }]  # fmt: skip
    container["securityContext"] = {"privileged": False}
    assert api("POST", "/api/v1/namespaces/default/pods", pod)[0] == 201


def test_http2_can_be_disabled(flagged, kas):
    def chosen(server) -> str | None:
        context = ssl.create_default_context(cafile=server.ca)
        context.set_alpn_protocols(["h2", "http/1.1"])
        with socket.create_connection(("127.0.0.1", server.port)) as raw, context.wrap_socket(raw, server_hostname="127.0.0.1") as s:
            return s.selected_alpn_protocol()

    assert chosen(flagged) in ("http/1.1", None)
    assert chosen(kas) == "h2"


def test_flagz_shows_every_flag_with_its_value(flagged):
    answer = requests.get(f"{flagged.url}/flagz", headers={"Authorization": f"Bearer {flagged.token}"}, verify=flagged.ca, timeout=60)
    lines = answer.text.splitlines()
    assert {
        "request-timeout=1m30s", "allow-privileged=false", "service-account-issuer=[https://new.example,https://old.example]", "v=0",
        "endpoint-reconciler-type=none", "store-max-size=64Gi", "watch-cache=true", "service-node-port-range=30000-32767",
    } <= set(lines)  # fmt: skip
    assert sum("=" in line for line in lines) == len(FLAGS) - 2


def test_streams_of_a_connection_are_bounded(kas_server):
    server = kas_server("--http2-max-streams-per-connection=3")
    assert _settings(server)[3] == 3


def _settings(server) -> dict[int, int]:
    """Returns the settings in the server's first HTTP/2 frame, by number (3 is SETTINGS_MAX_CONCURRENT_STREAMS)."""
    context = ssl.create_default_context(cafile=server.ca)
    context.set_alpn_protocols(["h2"])
    with socket.create_connection(("127.0.0.1", server.port)) as raw, context.wrap_socket(raw, server_hostname="127.0.0.1") as s:
        s.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00")
        data = b""
        while len(data) < 9 or len(data) < 9 + int.from_bytes(data[:3], "big"):
            data += s.recv(4096)
    body = data[9 : 9 + int.from_bytes(data[:3], "big")]
    return {int.from_bytes(body[i : i + 2], "big"): int.from_bytes(body[i + 2 : i + 6], "big") for i in range(0, len(body), 6)}


@pytest.fixture(scope="module")
def gated(tmp_path_factory):
    gates = "AllBeta=false,GenericWorkload=true,HPAScaleToZero=true,HostnameOverride=true,APIServingWithRoutine=true"
    flags = ("--unsafe-no-fsync", f"--feature-gates={gates}", "--runtime-config=api/all=true", "--controllers=none")
    with KasServer(tmp_path_factory.mktemp("kas"), *flags) as server:
        yield server


def test_feature_gates_enable_and_disable_paths_and_resources(gated, connect):
    api = connect(gated)
    paths = api("GET", "/")[1]["paths"]
    assert not {"/flagz", "/statusz"} & set(paths)
    assert api("GET", "/flagz")[0] == api("GET", "/statusz")[0] == 404
    served = {r["name"] for r in api("GET", "/apis/scheduling.k8s.io/v1alpha2")[1]["resources"]}
    assert "workloads" in served
    assert api("GET", "/apis/certificates.k8s.io/v1beta1/clustertrustbundles")[0] == 404
    assert "storageVersionHash" not in api("GET", "/api/v1")[1]["resources"][0]
    assert api("GET", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases")[1]["items"] == []
    large = {"metadata": {"name": "large", "namespace": "default"}, "data": {"a": "x" * 300_000}}
    assert api("POST", "/api/v1/namespaces/default/configmaps", large)[0] == 201
    for i in range(4):  # a list of them is sent in several parts
        assert api("POST", "/api/v1/namespaces/default/configmaps", {**large, "metadata": {"name": f"large-{i}"}})[0] == 201
    for path in ("configmaps/large", "configmaps"):
        answer = api.raw("GET", f"/api/v1/namespaces/default/{path}", Accept_Encoding="gzip")
        assert answer.status_code == 200 and len(answer.content) > 300_000 and "content-encoding" not in answer.headers


def test_feature_gates_decide_which_fields_are_kept_and_valid(gated, connect):
    api = connect(gated)
    assert api("POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}})[0] in (201, 409)
    container = {"name": "c", "image": "i", "env": [{"name": "E", "value": "v"}], "resources": {"limits": {"cpu": "1"}}}
    spec = {"containers": [container], "hostnameOverride": "h", "resources": {"limits": {"cpu": "1"}}}
    status, made = api("POST", "/api/v1/namespaces/default/pods", {"metadata": {"name": "gated"}, "spec": spec})
    assert status == 201, made
    assert made["spec"]["hostnameOverride"] == "h" and "resources" not in made["spec"]
    service = {"metadata": {"name": "1st"}, "spec": {"ports": [{"port": 80}]}}
    assert api("POST", "/api/v1/namespaces/default/services", service)[0] == 422
    service = {"metadata": {"name": "first"}, "spec": {"ports": [{"port": 80}], "externalIPs": ["010.1.1.1"]}}
    assert api("POST", "/api/v1/namespaces/default/services", service)[0] == 201
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}
    metric = {"type": "External", "external": {"metric": {"name": "m"}, "target": {"type": "Value", "value": "1"}}}
    scaler = {"metadata": {"name": "zero"}, "spec": {"scaleTargetRef": target, "minReplicas": 0, "maxReplicas": 2, "metrics": [metric]}}
    assert api("POST", "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers", scaler)[0] == 201
    watched = api("GET", "/api/v1/configmaps?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=1")
    assert watched[0] == 422 and "unless the WatchList feature gate is enabled" in watched[1]["message"]


def test_gates_without_effect_are_reported(gated):
    lines = [line for line in gated.output.splitlines() if "feature-gates" in line]
    assert lines == ["kas: warning: --feature-gates: nothing here depends on APIServingWithRoutine"]


def test_the_bind_address_is_used(kas_server):
    server = kas_server("--bind-address=127.0.0.2", "--controllers=none")
    with socket.create_connection(("127.0.0.2", server.port), timeout=60):
        pass
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.port), timeout=60)
