"""A tenant that may write CustomResourceDefinitions and nothing else: it cannot write objects, change others' groups, or affect others'
requests."""

from __future__ import annotations

import concurrent.futures
import socket
import time

import pytest

from tests.endpoints.customs import DEFINITIONS, definition, version

PATIENCE_S = 60
RULES = [{"apiGroups": ["apiextensions.k8s.io"], "resources": ["customresourcedefinitions"], "verbs": ["*"]}]


@pytest.fixture
def tenant(mallory, admin, grant):
    """mallory, who may write definitions; all of them are deleted afterwards."""
    grant("mallory", RULES)
    yield mallory
    names = [d["metadata"]["name"] for d in admin("GET", DEFINITIONS)[1]["items"]]
    for name in names:
        admin("DELETE", f"{DEFINITIONS}/{name}")
    waited(lambda: not admin("GET", DEFINITIONS)[1]["items"], "the definitions are gone")


def waited(check, what: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while not check():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def established(admin, name: str) -> bool:
    conditions = admin("GET", f"{DEFINITIONS}/{name}")[1]["status"].get("conditions") or []
    return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)


def test_a_right_to_definitions_is_no_right_to_their_objects(tenant, admin, room):
    crd = definition(f"{room}.example.com")
    assert tenant("POST", DEFINITIONS, crd)[0] == 201
    waited(lambda: established(admin, crd["metadata"]["name"]), "it is established")
    path = f"/apis/{room}.example.com/v1/namespaces/{room}/widgets"
    obj = {"apiVersion": f"{room}.example.com/v1", "kind": "Widget", "metadata": {"name": "a"}}
    assert admin("POST", path, obj)[0] == 201
    for method, where, body in (("GET", path, None), ("GET", f"{path}/a", None), ("POST", path, obj), ("DELETE", f"{path}/a", None)):
        assert tenant(method, where, body)[0] == 403
    assert tenant("GET", path + "?watch=1")[0] == 403
    assert tenant("PUT", f"{path}/a/status", obj)[0] == 403
    # Deleting a definition deletes its objects: that is what the right means, and it reaches no further.
    assert tenant("DELETE", f"{DEFINITIONS}/{crd['metadata']['name']}")[0] == 200
    waited(lambda: admin("GET", f"{path}/a")[0] == 404, "its objects go")
    assert admin("GET", f"/api/v1/namespaces/{room}")[0] == 200


def test_definitions_cannot_replace_existing_resources(tenant, admin, room):
    """Neither a built-in resource, nor a group of Kubernetes, nor what another definition serves."""
    service = "/apis/apiregistration.k8s.io/v1/apiservices/v1.storage.k8s.io"
    before, services = admin("GET", "/apis/storage.k8s.io/v1")[1], admin("GET", service)[1]
    status, body = tenant("POST", DEFINITIONS, definition("apps", plural="deployments", kind="Deployment"))
    assert status == 422 and [c["field"] for c in body["details"]["causes"]] == ["spec.group"]
    for plural, kind in (("storageclasses", "StorageClass"), ("gadgets", "Gadget")):
        crd = definition("storage.k8s.io", plural=plural, kind=kind)
        status, body = tenant("POST", DEFINITIONS, crd)
        assert status == 422 and "api-approved.kubernetes.io" in body["message"]
        crd["metadata"]["annotations"] = {"api-approved.kubernetes.io": "unapproved, mine"}
        assert tenant("POST", DEFINITIONS, crd)[0] == 201
    group = f"{room}.example.com"
    assert admin("POST", DEFINITIONS, definition(group))[0] == 201
    waited(lambda: established(admin, f"widgets.{group}"), "the first is established")
    assert tenant("POST", DEFINITIONS, definition(group, plural="others", kind="Widget", shortNames=["pods"]))[0] == 201
    waited(lambda: len(admin("GET", f"{DEFINITIONS}/others.{group}")[1]["status"].get("conditions") or []) >= 2, "the other is accepted")
    assert not established(admin, f"others.{group}") and established(admin, f"widgets.{group}")
    assert [r["name"] for r in admin("GET", f"/apis/{group}/v1")[1]["resources"]] == ["widgets"]
    assert admin("GET", "/apis/storage.k8s.io/v1")[1] == before
    assert admin("GET", "/apis/storage.k8s.io/v1/storageclasses")[1]["kind"] == "StorageClassList"
    now = admin("GET", service)[1]
    assert now["spec"] == services["spec"] and now["metadata"]["uid"] == services["metadata"]["uid"]


def test_a_hanging_conversion_affects_its_definition_only(tenant, admin, as_user, target, room, bystander):
    """The tenant's webhook hangs at every conversion: reads of that version fail at their deadline, others do not wait."""
    with socket.create_server(("127.0.0.1", 0)) as hanging:  # connections are accepted by the kernel, and never read
        port = hanging.getsockname()[1]
        crd = definition(f"{room}.example.com", version("v1"), version("v2", storage=False))
        client = {"url": f"https://127.0.0.1:{port}/convert"}
        crd["spec"]["conversion"] = {"strategy": "Webhook", "webhook": {"clientConfig": client, "conversionReviewVersions": ["v1"]}}
        assert tenant("POST", DEFINITIONS, crd)[0] == 201
        waited(lambda: established(admin, crd["metadata"]["name"]), "it is established")
        path = f"/apis/{room}.example.com/%s/namespaces/{room}/widgets"
        for i in range(20):
            obj = {"apiVersion": f"{room}.example.com/v1", "kind": "Widget", "metadata": {"name": f"a{i}"}}
            assert admin("POST", path % "v1", obj)[0] == 201


        def convert() -> set[int]:
            with concurrent.futures.ThreadPoolExecutor(16) as pool:
                waiting = [pool.submit(as_user(target.token), "GET", path % "v2" + "?timeout=3s") for _ in range(16)]
                for _ in range(30):
                    assert admin("GET", path % "v1" + "/a1")[0] == 200
                return {w.result()[0] for w in waiting}

        assert bystander.beside(convert) <= {500, 504}
