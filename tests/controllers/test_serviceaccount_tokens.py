"""Secrets of type kubernetes.io/service-account-token: filled, used, marked, and gone with their account."""

from __future__ import annotations

import base64
import time

import pytest

from tests.controllers.waiting import until

MERGE = "application/merge-patch+json"
TYPE, NAME, UID = "kubernetes.io/service-account-token", "kubernetes.io/service-account.name", "kubernetes.io/service-account.uid"
LAST_USED, INVALID = "kubernetes.io/legacy-token-last-used", "kubernetes.io/legacy-token-invalid-since"


@pytest.fixture
def namespace(call, request):
    name = "n-" + request.node.name.replace("_", "-")[5:60].strip("-")
    assert call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})[0] == 201
    return f"/api/v1/namespaces/{name}"


def account(call, namespace: str, name: str = "robot") -> dict:
    code, obj = call("POST", f"{namespace}/serviceaccounts", {"metadata": {"name": name}})
    assert code == 201, obj
    return obj


def secret(call, namespace: str, name: str, of: str = "robot", **annotations: str) -> None:
    body = {"metadata": {"name": name, "annotations": {NAME: of, **annotations}}, "type": TYPE}
    code, obj = call("POST", f"{namespace}/secrets", body)
    assert code == 201, obj


def filled(call, path: str) -> dict:
    def token() -> dict | None:
        obj = call("GET", path)[1]
        return obj if (obj.get("data") or {}).get("token") else None

    return until(token)


def text(obj: dict, key: str) -> str:
    return base64.b64decode(obj["data"][key]).decode()


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_a_token_is_filled_in(call, namespace):
    made = account(call, namespace)
    secret(call, namespace, "s")
    obj = filled(call, f"{namespace}/secrets/s")
    assert obj["metadata"]["annotations"] == {NAME: "robot", UID: made["metadata"]["uid"]}
    assert set(obj["data"]) == {"ca.crt", "namespace", "token"}
    assert text(obj, "namespace") == made["metadata"]["namespace"]
    assert text(obj, "ca.crt").startswith("-----BEGIN CERTIFICATE-----")
    assert "kube-controller-manager" in [f["manager"] for f in obj["metadata"]["managedFields"]]

    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    code, answer = call("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", review, **bearer(text(obj, "token")))
    assert code == 201, answer
    assert answer["status"]["userInfo"]["username"] == f"system:serviceaccount:{made['metadata']['namespace']}:robot"
    assert answer["status"]["userInfo"]["uid"] == made["metadata"]["uid"]

    used = until(lambda: (call("GET", f"{namespace}/secrets/s")[1]["metadata"].get("labels") or {}).get(LAST_USED))
    assert time.strptime(used, "%Y-%m-%d")


def test_what_is_taken_out_is_put_back(call, namespace):
    account(call, namespace)
    secret(call, namespace, "s")
    first = text(filled(call, f"{namespace}/secrets/s"), "token")
    assert call("PATCH", f"{namespace}/secrets/s", {"data": {"ca.crt": "eA==", "namespace": None}}, MERGE)[0] == 200
    until(lambda: "namespace" in call("GET", f"{namespace}/secrets/s")[1]["data"])
    obj = call("GET", f"{namespace}/secrets/s")[1]
    assert text(obj, "ca.crt").startswith("-----BEGIN CERTIFICATE-----")
    assert text(obj, "token") == first
    assert call("PATCH", f"{namespace}/secrets/s", {"data": {"token": None}}, MERGE)[0] == 200
    filled(call, f"{namespace}/secrets/s")


def test_secrets_go_with_their_account(call, namespace):
    account(call, namespace)
    secret(call, namespace, "s")
    token = text(filled(call, f"{namespace}/secrets/s"), "token")
    assert call("POST", f"{namespace}/secrets", {"metadata": {"name": "other", "annotations": {NAME: "robot"}}})[0] == 201
    assert call("DELETE", f"{namespace}/serviceaccounts/robot")[0] == 200
    until(lambda: call("GET", f"{namespace}/secrets/s")[0] == 404)
    assert call("GET", f"{namespace}/secrets/other")[0] == 200
    until(lambda: call("GET", "/api", **bearer(token))[0] == 401)


def test_without_an_account_there_is_no_secret(call, namespace):
    secret(call, namespace, "nobody", of="nobody")
    until(lambda: call("GET", f"{namespace}/secrets/nobody")[0] == 404)
    account(call, namespace)
    secret(call, namespace, "another", **{UID: "of-another-account"})
    until(lambda: call("GET", f"{namespace}/secrets/another")[0] == 404)


def test_a_deleted_secret_is_no_longer_listed(call, namespace):
    account(call, namespace)
    secret(call, namespace, "s")
    filled(call, f"{namespace}/secrets/s")
    refs = {"secrets": [{"name": "s"}, {"name": "kept"}]}
    assert call("PATCH", f"{namespace}/serviceaccounts/robot", refs, MERGE)[0] == 200
    assert call("DELETE", f"{namespace}/secrets/s")[0] == 200
    until(lambda: call("GET", f"{namespace}/serviceaccounts/robot")[1].get("secrets") == [{"name": "kept"}])


def test_a_token_out_of_use_is_refused(call, namespace):
    account(call, namespace)
    secret(call, namespace, "s")
    token = text(filled(call, f"{namespace}/secrets/s"), "token")
    assert call("PATCH", f"{namespace}/secrets/s", {"metadata": {"labels": {INVALID: "2024-01-02"}}}, MERGE)[0] == 200
    assert until(lambda: call("GET", "/api", **bearer(token))[0] == 401)
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
    status = call("POST", "/apis/authentication.k8s.io/v1/tokenreviews", review)[1]["status"]
    assert "has been marked invalid" in status["error"] and "user" in status
    assert call("PATCH", f"{namespace}/secrets/s", {"metadata": {"labels": {INVALID: None}}}, MERGE)[0] == 200
    assert until(lambda: call("GET", "/api", **bearer(token))[0] == 200)
