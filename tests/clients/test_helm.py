"""What helm 3 and 4 ask of a server for a release: its Secrets, existence checks, three-way merges, server-side apply, waits and its end
(helm's ``pkg/kube/client.go`` and ``pkg/storage/driver/secrets.go``)."""

from __future__ import annotations

import base64
import contextlib
import copy
import gzip
import json
from typing import Any

import pytest

from tests.conftest import Client

Obj = dict[str, Any]
pytestmark = pytest.mark.client

STRATEGIC, APPLY = "application/strategic-merge-patch+json", "application/apply-patch+yaml"
LABELS = {"app.kubernetes.io/managed-by": "Helm", "app.kubernetes.io/instance": "web"}


def chart(namespace: str, tag: str) -> list[tuple[str, Obj]]:
    """Paths of collections and what a chart makes of ``tag``, in the order in which helm installs kinds."""
    meta = {
        "name": "web",
        "namespace": namespace,
        "labels": LABELS,
        "annotations": {"meta.helm.sh/release-name": "web", "meta.helm.sh/release-namespace": namespace},
    }
    container = {
        "name": "web",
        "image": f"web:{tag}",
        "env": [{"name": "TAG", "value": tag}, {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        "ports": [{"name": "http", "containerPort": 80, "protocol": "TCP"}],
    }
    template = {"metadata": {"labels": LABELS}, "spec": {"serviceAccountName": "web", "containers": [container]}}
    core, apps = f"/api/v1/namespaces/{namespace}", f"/apis/apps/v1/namespaces/{namespace}"
    ports = [{"name": "http", "port": 80, "targetPort": "http", "protocol": "TCP"}]
    return [
        (f"{core}/serviceaccounts", {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta}),
        (f"{core}/configmaps", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"tag": tag, tag: "only here"}}),
        (f"{core}/services", {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": {"ports": ports, "selector": LABELS}}),
        (
            f"{apps}/deployments",
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": meta,
                "spec": {"replicas": 2, "selector": {"matchLabels": LABELS}, "template": template},
            },
        ),
    ]


def release(version: int, status: str) -> Obj:
    """The Secret that helm keeps a release in: JSON, compressed, in base64 twice."""
    text = gzip.compress(json.dumps({"name": "web", "version": version, "info": {"status": status}, "manifest": "x" * 500_000}).encode())
    labels = {"name": "web", "owner": "helm", "status": status, "version": str(version)}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": f"sh.helm.release.v1.web.v{version}", "labels": labels},
        "type": "helm.sh/release.v1",
        "data": {"release": base64.b64encode(base64.b64encode(text)).decode()},
    }


def three_way(old: Obj, new: Obj) -> Obj:
    """The strategic merge patch of an upgrade: all that is new, and null for what is there no more."""
    patch = copy.deepcopy(new)
    for key in old.get("data", {}).keys() - new.get("data", {}).keys():
        patch["data"][key] = None
    return patch


def done(answer: tuple[int, Any], code: int = 200) -> Obj:
    assert answer[0] == code, answer[1]
    return answer[1]


def test_a_release_with_helm_3(client: Client, namespace: str) -> None:
    secrets, first, second = f"/api/v1/namespaces/{namespace}/secrets", chart(namespace, "1"), chart(namespace, "2")
    assert done(client("GET", f"{secrets}?labelSelector=name%3Dweb%2Cowner%3Dhelm"))["items"] == []
    done(client("POST", secrets, release(1, "pending-install")), 201)
    for path, obj in first:
        assert client("GET", f"{path}/web")[0] == 404
        done(client("POST", f"{path}?fieldManager=helm", obj), 201)
    done(client("PUT", f"{secrets}/sh.helm.release.v1.web.v1", release(1, "deployed")))  # with no resourceVersion
    assert client("POST", secrets, release(1, "deployed"))[0] == 409

    done(client("POST", secrets, release(2, "pending-upgrade")), 201)
    for (path, old), (_, new) in zip(first, second, strict=True):
        done(client("PATCH", f"{path}/web?fieldManager=helm", three_way(old, new), STRATEGIC))
    assert done(client("GET", f"{second[1][0]}/web"))["data"] == {"tag": "2", "2": "only here"}
    deployment = done(client("GET", f"{second[3][0]}/web"))
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert (container["image"], [e["name"] for e in container["env"]]) == ("web:2", ["TAG", "POD"])
    assert deployment["metadata"]["generation"] == 2

    # Once more changes nothing, which helm sees by the revision.
    again = done(client("PATCH", f"{second[3][0]}/web?fieldManager=helm", three_way(second[3][1], second[3][1]), STRATEGIC))
    assert again == deployment
    wanted = "labelSelector=name%3Dweb%2Cowner%3Dhelm%2Cstatus+in+%28deployed%2Cpending-upgrade%29"
    history = done(client("GET", f"{secrets}?{wanted}"))["items"]
    assert [json.loads(gzip.decompress(base64.b64decode(base64.b64decode(s["data"]["release"]))))["version"] for s in history] == [1, 2]

    for path, _ in reversed(second):
        done(client("DELETE", f"{path}/web", {"propagationPolicy": "Background"}))
        assert client("GET", f"{path}/web")[0] == 404


def test_a_release_with_helm_4_in_the_place_of_helm_3(client: Client, namespace: str) -> None:
    """It applies as the manager that has created, and takes what is in conflict."""
    for path, obj in chart(namespace, "1"):
        done(client("POST", f"{path}?fieldManager=helm", obj), 201)
    for path, obj in chart(namespace, "2"):
        query = f"{path}/web?fieldManager=helm&fieldValidation=Strict&force="
        code, answer = client("PATCH", query + "false", json.dumps(obj), APPLY)
        if obj["kind"] in ("ConfigMap", "Deployment"):
            assert code == 409 and {c["reason"] for c in answer["details"]["causes"]} == {"FieldManagerConflict"}
        assert done(client("PATCH", query + "true&dryRun=All", json.dumps(obj), APPLY))["metadata"]["name"] == "web"
        applied = done(client("PATCH", query + "true", json.dumps(obj), APPLY))
        assert {(m["manager"], m["operation"]) for m in applied["metadata"]["managedFields"]} == {("helm", "Apply"), ("helm", "Update")}
        assert done(client("PATCH", query + "true", json.dumps(obj), APPLY)) == applied
    deployment = done(client("GET", f"/apis/apps/v1/namespaces/{namespace}/deployments/web"))
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == "web:2"


def test_a_hook_is_waited_for(client: Client, namespace: str) -> None:
    """helm lists the one job by its name, and watches it until it is complete."""
    jobs, moment = f"/apis/batch/v1/namespaces/{namespace}/jobs", "2026-01-01T00:00:00Z"
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
    done(client("POST", jobs, {"metadata": {"name": "hook"}, "spec": {"template": template}}), 201)
    one = f"{jobs}?fieldSelector=metadata.name%3Dhook"
    listed = done(client("GET", f"{one}&limit=500&resourceVersion=0"))
    assert [job["metadata"]["name"] for job in listed["items"]] == ["hook"]
    watch = f"{one}&watch=true&timeoutSeconds=60&resourceVersion={listed['metadata']['resourceVersion']}"
    with contextlib.closing(client.session.get(client.server.url + watch, stream=True, timeout=60)) as answer:
        events = map(json.loads, answer.iter_lines(chunk_size=1))
        conditions = [{"type": kind, "status": "True"} for kind in ("SuccessCriteriaMet", "Complete")]
        counted = {"succeeded": 1, "ready": 0, "terminating": 0, "uncountedTerminatedPods": {}}
        status = {"startTime": moment, "completionTime": moment, "conditions": conditions, **counted}
        done(client("PATCH", f"{jobs}/hook/status", {"status": status}, STRATEGIC))
        event = next(events)
    assert event["type"] == "MODIFIED" and event["object"]["status"]["conditions"][1]["type"] == "Complete"
