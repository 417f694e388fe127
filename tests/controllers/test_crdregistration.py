"""The APIServices of versions that CustomResourceDefinitions serve."""

from __future__ import annotations

from tests.controllers.waiting import until

SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
MERGE = "application/merge-patch+json"
LABEL = "kube-aggregator.kubernetes.io/automanaged"
SPEC = {"groupPriorityMinimum": 1000, "versionPriority": 100}


def definition(plural: str, group: str, *versions: str, unserved: str = "") -> dict:
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    names = {"plural": plural, "singular": plural[:-1], "kind": plural[:-1].title()}
    shown = [{"name": v, "served": v != unserved, "storage": i == 0, "schema": schema} for i, v in enumerate(versions)]
    return {"metadata": {"name": f"{plural}.{group}"}, "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": shown}}


def get(call, name: str) -> dict:
    code, obj = call("GET", f"{SERVICES}/{name}")
    return obj if code == 200 else {}


def test_served_versions_have_an_api_service(call):
    group = "made.test"
    assert call("POST", DEFINITIONS, definition("apples", group, "v1", "v2", "v3", unserved="v3"))[0] == 201
    assert call("POST", DEFINITIONS, definition("pears", group, "v1"))[0] == 201
    for version in ("v1", "v2"):
        found = until(lambda v=version: get(call, f"{v}.{group}"))
        assert found["spec"] == {"group": group, "version": version, **SPEC}
        assert found["metadata"]["labels"] == {LABEL: "true"}
        assert found["status"]["conditions"][0]["reason"] == "Local"
        assert [f["manager"] for f in found["metadata"]["managedFields"]] == ["kube-apiserver"]
    assert not get(call, f"v3.{group}")
    assert call("DELETE", f"{DEFINITIONS}/apples.{group}")[0] == 200
    until(lambda: not get(call, f"v2.{group}"))
    assert get(call, f"v1.{group}"), "pears are still there"
    assert call("DELETE", f"{DEFINITIONS}/pears.{group}")[0] == 200
    until(lambda: not get(call, f"v1.{group}"))


def test_deleted_and_changed_ones_are_repaired(call):
    name = "v1.repaired.test"
    assert call("POST", DEFINITIONS, definition("plums", "repaired.test", "v1"))[0] == 201
    uid = until(lambda: get(call, name))["metadata"]["uid"]
    assert call("DELETE", f"{SERVICES}/{name}")[0] == 200
    until(lambda: get(call, name).get("metadata", {}).get("uid", uid) != uid)
    assert call("PATCH", f"{SERVICES}/{name}", {"spec": {"groupPriorityMinimum": 5}}, MERGE)[0] == 200
    until(lambda: get(call, name)["spec"]["groupPriorityMinimum"] == 1000)


def test_one_without_the_label_is_left_alone(call):
    name = "v1.kept.test"
    assert call("POST", DEFINITIONS, definition("grapes", "kept.test", "v1"))[0] == 201
    until(lambda: get(call, name))
    assert call("PATCH", f"{SERVICES}/{name}", {"metadata": {"labels": {LABEL: None}}}, MERGE)[0] == 200
    assert call("PATCH", f"{SERVICES}/{name}", {"spec": {"groupPriorityMinimum": 5}}, MERGE)[0] == 200
    # Another one that is repaired afterwards shows that this one was processed.
    assert call("POST", DEFINITIONS, definition("limes", "later.test", "v1"))[0] == 201
    until(lambda: get(call, "v1.later.test"))
    assert get(call, name)["spec"]["groupPriorityMinimum"] == 5
    assert call("DELETE", f"{DEFINITIONS}/grapes.kept.test")[0] == 200
    until(lambda: call("GET", f"{DEFINITIONS}/grapes.kept.test")[0] == 404)
    assert get(call, name)["spec"]["groupPriorityMinimum"] == 5
    call("DELETE", f"{SERVICES}/{name}")
    until(lambda: not get(call, name))
