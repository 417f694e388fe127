"""Secrets of type kubernetes.io/service-account-token: filled in, used, tracked, and deleted with their account."""

from __future__ import annotations

import asyncio
import base64
import time
from types import SimpleNamespace
from typing import Any

import pytest

from kas.auth.credentials import ServiceAccountKeys
from kas.controllers.serviceaccounttokens import Tokens
from tests.controllers.stored import stored
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


def test_removed_data_are_restored(call, namespace):
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


def test_secrets_are_deleted_with_their_account(call, namespace):
    account(call, namespace)
    secret(call, namespace, "s")
    token = text(filled(call, f"{namespace}/secrets/s"), "token")
    assert call("POST", f"{namespace}/secrets", {"metadata": {"name": "other", "annotations": {NAME: "robot"}}})[0] == 201
    assert call("DELETE", f"{namespace}/serviceaccounts/robot")[0] == 200
    until(lambda: call("GET", f"{namespace}/secrets/s")[0] == 404)
    assert call("GET", f"{namespace}/secrets/other")[0] == 200
    until(lambda: call("GET", "/api", **bearer(token))[0] == 401)


def test_a_secret_without_an_account_is_deleted(call, namespace):
    secret(call, namespace, "nobody", of="nobody")
    until(lambda: call("GET", f"{namespace}/secrets/nobody")[0] == 404)
    account(call, namespace)
    secret(call, namespace, "another", **{UID: "of-another-account"})
    until(lambda: call("GET", f"{namespace}/secrets/another")[0] == 404)


def test_a_deleted_secret_is_removed_from_the_account(call, namespace):
    account(call, namespace)
    secret(call, namespace, "s")
    filled(call, f"{namespace}/secrets/s")
    refs = {"secrets": [{"name": "s"}, {"name": "kept"}]}
    assert call("PATCH", f"{namespace}/serviceaccounts/robot", refs, MERGE)[0] == 200
    assert call("DELETE", f"{namespace}/secrets/s")[0] == 200
    until(lambda: call("GET", f"{namespace}/serviceaccounts/robot")[1].get("secrets") == [{"name": "kept"}])


def test_an_invalidated_token_is_refused(call, namespace):
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


def test_a_deleted_account_concerns_only_its_own_secrets(tmp_path):
    """Others of the namespace, possibly thousands, are not read."""

    async def run() -> None:
        async with stored(tmp_path) as registries:
            (tmp_path / "ca.crt").write_text("ca")
            tokens = Tokens(registries, ServiceAccountKeys(["i"], tmp_path / "sa.key", own=True), tmp_path / "ca.crt")
            client = tokens.client
            for of in "ab":
                await client.create("", "serviceaccounts", {"kind": "ServiceAccount", "apiVersion": "v1", "metadata": meta(of)})
            for name, of in (("s1", "a"), ("s2", "b"), ("s3", "a")):
                made = {"kind": "Secret", "apiVersion": "v1", "type": TYPE, "metadata": {**meta(name), "annotations": {NAME: of}}}
                await client.create("", "secrets", made)
            await tokens._sync(("all", "", ""))
            assert tokens._of_account == {("n", "a"): {"s1", "s3"}, ("n", "b"): {"s2"}}
            await client.delete(tokens.accounts, "n", "a")
            tokens.client.pages = tokens.client.paced = None  # type: ignore[method-assign, assignment]
            await tokens._sync(("serviceaccounts", "n", "a"))
            assert [client.get("", "secrets", "n", name) is None for name in ("s1", "s2", "s3")] == [True, False, True]
            two = registries.store.get(f"{tokens.secrets.root}n/s2")
            gone: Any = SimpleNamespace(key=f"{tokens.secrets.root}n/s2", record=None, previous=two)
            tokens._secret_events([gone])
            assert ("n", "b") not in tokens._of_account and ("reference b", "n", "s2") in tokens.queue._order

    asyncio.run(run())


def meta(name: str) -> dict[str, str]:
    return {"name": name, "namespace": "n"}
