"""Garbage collection on a running server: what is deleted with its owner, what stays, and in which order."""

from __future__ import annotations

import time

from tests.controllers.waiting import until

TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
WORKLOAD = {"selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE}


def path(kind: str, namespace: str, name: str = "") -> str:
    group = {"Deployment": "/apis/apps/v1", "ReplicaSet": "/apis/apps/v1"}.get(kind, "/api/v1")
    plural = kind.lower() + "s"
    return f"{group}/namespaces/{namespace}/{plural}" + (f"/{name}" if name else "")


def make(call, kind: str, namespace: str, name: str, owner: dict | None = None, block: bool = True, **more) -> dict:
    meta: dict = {"name": name}
    if owner:
        ref = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]}
        meta["ownerReferences"] = [{**ref, "controller": True, "blockOwnerDeletion": block}]
    code, made = call("POST", path(kind, namespace), {"metadata": meta, **more})
    assert code == 201, made
    return made


def new_namespace(call, name: str) -> str:
    assert call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})[0] == 201
    until(lambda: call("GET", path("ServiceAccount", name, "default"))[0] == 200)
    return name


def chain(call, namespace: str) -> tuple[dict, dict, list[dict]]:
    deployment = make(call, "Deployment", namespace, "d", spec=WORKLOAD)
    replica_set = make(call, "ReplicaSet", namespace, "r", deployment, spec=WORKLOAD)
    pods = [make(call, "Pod", namespace, f"p{i}", replica_set, spec=TEMPLATE["spec"]) for i in range(3)]
    return deployment, replica_set, pods


def gone(call, kind: str, namespace: str, name: str) -> bool:
    return call("GET", path(kind, namespace, name))[0] == 404


def test_background_deletion_starts_with_the_owner(call):
    ns = new_namespace(call, "background")
    chain(call, ns)
    assert call("DELETE", path("Deployment", ns, "d"))[0] == 200
    assert gone(call, "Deployment", ns, "d")
    until(lambda: gone(call, "ReplicaSet", ns, "r"))
    until(lambda: all(gone(call, "Pod", ns, f"p{i}") for i in range(3)))


def test_foreground_deletion_starts_with_the_dependents(call):
    ns = new_namespace(call, "foreground")
    chain(call, ns)
    held = call("GET", path("Pod", ns, "p0"))[1]
    held["metadata"]["finalizers"] = ["example.com/hold"]
    assert call("PUT", path("Pod", ns, "p0"), held)[0] == 200
    code, answer = call("DELETE", path("Deployment", ns, "d") + "?propagationPolicy=Foreground")
    assert code == 200
    assert answer["metadata"]["finalizers"] == ["foregroundDeletion"]
    until(lambda: gone(call, "Pod", ns, "p1") and gone(call, "Pod", ns, "p2"))
    time.sleep(0.3)
    meta = call("GET", path("ReplicaSet", ns, "r"))[1]["metadata"]
    assert meta["finalizers"] == ["foregroundDeletion"]
    assert not gone(call, "Deployment", ns, "d")
    call("PATCH", path("Pod", ns, "p0"), {"metadata": {"finalizers": None}}, "application/merge-patch+json")
    until(lambda: gone(call, "Deployment", ns, "d"))
    assert gone(call, "ReplicaSet", ns, "r")
    assert gone(call, "Pod", ns, "p0")


def test_foreground_deletion_does_not_wait_for_nonblocking_dependents(call):
    ns = new_namespace(call, "unblocked")
    owner = make(call, "Deployment", ns, "d", spec=WORKLOAD)
    code, made = call(
        "POST",
        path("ConfigMap", ns),
        {
            "metadata": {
                "name": "c",
                "finalizers": ["example.com/hold"],
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "d", "uid": owner["metadata"]["uid"]}],
            }
        },
    )
    assert code == 201, made
    call("DELETE", path("Deployment", ns, "d") + "?propagationPolicy=Foreground")
    until(lambda: gone(call, "Deployment", ns, "d"))
    until(lambda: call("GET", path("ConfigMap", ns, "c"))[1]["metadata"].get("deletionTimestamp"))
    call("PATCH", path("ConfigMap", ns, "c"), {"metadata": {"finalizers": None}}, "application/merge-patch+json")
    until(lambda: gone(call, "ConfigMap", ns, "c"))


def test_orphaning_removes_the_owner_references(call):
    ns = new_namespace(call, "orphans")
    chain(call, ns)
    assert call("DELETE", path("Deployment", ns, "d") + "?propagationPolicy=Orphan")[0] == 200
    until(lambda: gone(call, "Deployment", ns, "d"))
    assert "ownerReferences" not in call("GET", path("ReplicaSet", ns, "r"))[1]["metadata"]
    time.sleep(0.2)
    assert call("GET", path("Pod", ns, "p0"))[1]["metadata"]["ownerReferences"][0]["name"] == "r"


def test_an_orphaned_custom_resource_has_no_empty_list(call):
    ns, group = new_namespace(call, "orphaned-customs"), "garbage.example.com"
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    spec = {
        "group": group, "scope": "Namespaced", "names": {"plural": "foos", "kind": "Foo"},
        "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
    }  # fmt: skip
    definition = {"metadata": {"name": f"foos.{group}"}, "spec": spec}
    assert call("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)[0] == 201
    foos = f"/apis/{group}/v1/namespaces/{ns}/foos"
    until(lambda: call("GET", foos)[0] == 200)

    def foo(name: str, **meta) -> dict:
        code, made = call("POST", foos, {"apiVersion": f"{group}/v1", "kind": "Foo", "metadata": {"name": name, **meta}})
        assert code == 201, made
        return made

    owner = foo("owner")
    foo("owned", ownerReferences=[{"apiVersion": f"{group}/v1", "kind": "Foo", "name": "owner", "uid": owner["metadata"]["uid"]}])
    assert call("DELETE", f"{foos}/owner?propagationPolicy=Orphan")[0] == 200
    until(lambda: call("GET", f"{foos}/owner")[0] == 404)
    assert "ownerReferences" not in call("GET", f"{foos}/owned")[1]["metadata"]


def test_an_owner_that_never_existed(call):
    ns = new_namespace(call, "absent")
    ghost = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "ghost", "uid": "no-such-uid"}}
    make(call, "ConfigMap", ns, "c", ghost)
    until(lambda: gone(call, "ConfigMap", ns, "c"))


def test_an_owner_with_another_uid(call):
    ns = new_namespace(call, "otheruid")
    owner = make(call, "ConfigMap", ns, "owner")
    owner |= {"apiVersion": "v1", "kind": "ConfigMap"}
    owner["metadata"]["uid"] = "of-a-predecessor"
    make(call, "ConfigMap", ns, "c", owner)
    until(lambda: gone(call, "ConfigMap", ns, "c"))
    assert not gone(call, "ConfigMap", ns, "owner")


def test_one_of_two_owners_is_deleted(call):
    ns = new_namespace(call, "two")
    owners = [make(call, "ConfigMap", ns, f"o{i}") for i in range(2)]
    refs = [{"apiVersion": "v1", "kind": "ConfigMap", "name": o["metadata"]["name"], "uid": o["metadata"]["uid"]} for o in owners]
    assert call("POST", path("ConfigMap", ns), {"metadata": {"name": "c", "ownerReferences": refs}})[0] == 201
    call("DELETE", path("ConfigMap", ns, "o0"))
    until(lambda: len(call("GET", path("ConfigMap", ns, "c"))[1]["metadata"]["ownerReferences"]) == 1)
    call("DELETE", path("ConfigMap", ns, "o1"))
    until(lambda: gone(call, "ConfigMap", ns, "c"))


def test_an_owner_in_another_namespace_is_invalid_and_causes_an_event(call):
    here, there = new_namespace(call, "here"), new_namespace(call, "there")
    owner = make(call, "ConfigMap", there, "owner")
    make(call, "ConfigMap", here, "c", owner)
    until(lambda: gone(call, "ConfigMap", here, "c"))
    events = until(lambda: call("GET", path("Event", here))[1]["items"])
    uid = owner["metadata"]["uid"]
    assert events[0]["reason"] == "OwnerRefInvalidNamespace"
    assert events[0]["message"] == (
        f'ownerRef [v1/ConfigMap, namespace: here, name: owner, uid: {uid}] does not exist in namespace "here"'
    )


def test_an_owner_in_another_namespace_causes_an_event_beside_a_valid_one(call):
    here, there = new_namespace(call, "besides"), new_namespace(call, "far")
    owners = [make(call, "ConfigMap", here, "good"), make(call, "ConfigMap", there, "bad")]
    refs = [{"apiVersion": "v1", "kind": "ConfigMap", "name": o["metadata"]["name"], "uid": o["metadata"]["uid"]} for o in owners]
    assert call("POST", path("ConfigMap", here), {"metadata": {"name": "c", "ownerReferences": refs}})[0] == 201
    until(lambda: len(call("GET", path("ConfigMap", here, "c"))[1]["metadata"]["ownerReferences"]) == 1)
    events = until(lambda: call("GET", path("Event", here))[1]["items"])
    assert f"uid: {owners[1]['metadata']['uid']}]" in events[0]["message"]


def test_namespaced_owner_of_a_cluster_scoped_object_is_ignored(call):
    ns = new_namespace(call, "cluster")
    owner = make(call, "ConfigMap", ns, "owner")
    ref = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
    body = {"metadata": {"name": "scoped", "ownerReferences": [ref]}, "value": 1}
    assert call("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", body)[0] == 201
    call("DELETE", path("ConfigMap", ns, "owner"))
    until(lambda: call("GET", path("Event", "default") + "?fieldSelector=reason=OwnerRefInvalidNamespace")[1]["items"])
    assert call("GET", "/apis/scheduling.k8s.io/v1/priorityclasses/scoped")[0] == 200


def test_a_cycle_of_blocking_owners_is_deleted(call):
    ns = new_namespace(call, "cycle")
    a = make(call, "ConfigMap", ns, "a")
    make(call, "ConfigMap", ns, "b", a)
    b = call("GET", path("ConfigMap", ns, "b"))[1]
    ref = {"apiVersion": "v1", "kind": "ConfigMap", "name": "b", "uid": b["metadata"]["uid"], "blockOwnerDeletion": True}
    call("PATCH", path("ConfigMap", ns, "a"), {"metadata": {"ownerReferences": [ref]}}, "application/merge-patch+json")
    call("DELETE", path("ConfigMap", ns, "a") + "?propagationPolicy=Foreground")
    until(lambda: gone(call, "ConfigMap", ns, "a") and gone(call, "ConfigMap", ns, "b"))


def test_owned_objects_from_before_a_restart_are_collected(tmp_path_factory, connect):
    from kas.testing.server import KasServer

    server = KasServer(tmp_path_factory.mktemp("kas"), "--unsafe-no-fsync", "--controllers", "none").start()
    try:
        call = connect(server)
        call("POST", "/api/v1/namespaces", {"metadata": {"name": "late"}})
        owner = make(call, "ConfigMap", "late", "owner")
        make(call, "ConfigMap", "late", "c", owner)
        call("DELETE", path("ConfigMap", "late", "owner"))
        time.sleep(0.3)
        assert not gone(call, "ConfigMap", "late", "c")
        server.stop()
        server.flags = ("--unsafe-no-fsync",)
        server.start()
        call = connect(server)
        until(lambda: gone(call, "ConfigMap", "late", "c"))
    finally:
        server.stop()
