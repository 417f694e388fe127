"""A group of kas that another kas serves.

The server behind allows everyone: it cannot require the certificate that would prove the user of a request.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
from pathlib import Path

import pytest

from kas.testing.server import KasServer
from tests.aggregator.conftest import PATIENCE_S, SERVICES
from tests.controllers.waiting import until
from tests.server.whole import EVERYBODY

NAME = "v1.batch"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
JOB = {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"}}}}


@pytest.fixture(scope="module")
def behind(tmp_path_factory):
    flags = ("--unsafe-no-fsync", "--controllers=none", "--tls-san=behind.default.svc", "--authorization-mode=ABAC",
             f"--authorization-policy-file={EVERYBODY['authorization_policy_file']}")  # fmt: skip
    with KasServer(tmp_path_factory.mktemp("behind"), *flags) as running:
        yield running


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("front")


def test_a_group_of_one_server_is_served_by_another(directory, behind, connect):
    flags = ("--unsafe-no-fsync", "--controllers=namespace-controller,garbage-collector-controller")
    with KasServer(directory, *flags) as whole:
        assert connect(whole)("GET", f"{SERVICES}/{NAME}")[0] == 200
    with KasServer(directory, *flags, "--runtime-config=batch/v1=false", workers=2) as server:
        call = connect(server)
        # The local APIService that the server registered when it served the group is deleted.
        until(lambda: call("GET", f"{SERVICES}/{NAME}")[0] == 404, PATIENCE_S)
        assert call("GET", JOBS)[0] == 404
        service = {"metadata": {"name": "behind"}, "spec": {"type": "ExternalName", "externalName": "localhost"}}
        assert call("POST", "/api/v1/namespaces/default/services", service)[0] == 201
        bundle = base64.b64encode(Path(behind.ca).read_bytes()).decode()
        reference = {"namespace": "default", "name": "behind", "port": behind.port}
        spec = {"group": "batch", "version": "v1", "groupPriorityMinimum": 17400, "versionPriority": 15, "caBundle": bundle}
        assert call("POST", SERVICES, {"metadata": {"name": NAME}, "spec": {**spec, "service": reference}})[0] == 201
        until(lambda: call("GET", JOBS)[0] == 200, PATIENCE_S)
        use(call, server)
        assert connect(behind)("GET", JOBS)[1]["items"][0]["metadata"]["name"] == "job"
        resources = call("GET", "/apis/batch/v1")[1]["resources"]
        assert "jobs" in [r["name"] for r in resources]
        assert "/apis/batch/v1/namespaces/{namespace}/jobs" in call("GET", "/openapi/v2")[1]["paths"]
        address = call("GET", "/openapi/v3")[1]["paths"]["apis/batch/v1"]["serverRelativeURL"]
        assert "/apis/batch/v1/namespaces/{namespace}/jobs" in call("GET", address)[1]["paths"]
        owns(call)
        empties(call, connect(behind), server)
        assert "panic" not in server.output


def use(call, server) -> None:
    """Starts a watch, and creates, changes and reads a job."""
    context = ssl.create_default_context(cafile=server.ca)
    watch = http.client.HTTPSConnection("127.0.0.1", server.port, context=context, timeout=PATIENCE_S)
    watch.request("GET", f"{JOBS}?watch=true", headers={"Authorization": f"Bearer {server.token}"})
    events = watch.getresponse()
    assert events.status == 200
    code, made = call("POST", JOBS, {"metadata": {"name": "job"}, **JOB})
    assert (code, made["kind"]) == (201, "Job")
    assert json.loads(events.readline())["object"]["metadata"]["uid"] == made["metadata"]["uid"]
    patch = {"metadata": {"labels": {"a": "b"}}}
    assert call("PATCH", f"{JOBS}/job", patch, "application/merge-patch+json")[1]["metadata"]["labels"]["a"] == "b"
    assert json.loads(events.readline())["type"] == "MODIFIED"
    watch.close()
    table = call("GET", JOBS, Accept="application/json;as=Table;v=v1;g=meta.k8s.io")[1]
    assert table["rows"][0]["cells"][0] == "job"


def owns(call) -> None:
    """An object is deleted when its owner on another server is deleted or was created again."""
    maps = "/api/v1/namespaces/default/configmaps"

    def owned(called: str, owner: dict, **reference) -> dict:
        ref = {"apiVersion": "batch/v1", "kind": "Job", "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"], **reference}
        return {"metadata": {"name": called, "ownerReferences": [ref]}}

    def names() -> set[str]:
        return {o["metadata"]["name"] for o in call("GET", maps)[1]["items"]}

    code, owner = call("POST", JOBS, {"metadata": {"name": "owner"}, **JOB})
    assert code == 201
    for made in (owned("kept", owner), owned("other", owner, uid="of-another"), owned("nobody", owner, name="no")):
        assert call("POST", maps, made)[0] == 201
    # Owned by a kind that no server has: whether the owner exists is unknown, and the object stays.
    assert call("POST", maps, owned("unknown", owner, kind="Workflow"))[0] == 201
    until(lambda: not names() & {"other", "nobody"}, PATIENCE_S)
    assert names() >= {"kept", "unknown"}
    assert call("DELETE", f"{JOBS}/owner", {"propagationPolicy": "Background"})[0] == 200
    # Its owner is looked up again after a while; at once when its references change.
    changed = owned("kept", owner, blockOwnerDeletion=True)
    assert call("PATCH", f"{maps}/kept", changed, "application/merge-patch+json")[0] == 200
    until(lambda: "kept" not in names(), PATIENCE_S)
    assert "unknown" in names()


def empties(call, other, server) -> None:
    """Deleting a namespace deletes its objects on the other server; while that one cannot be reached, the namespace stays, and says why."""
    spaces = "/api/v1/namespaces"
    for name in ("going", "stays"):
        assert call("POST", spaces, {"metadata": {"name": name}})[0] == other("POST", spaces, {"metadata": {"name": name}})[0] == 201
    held = {"metadata": {"name": "held", "finalizers": ["example.com/later"]}, **JOB}
    for job in ({"metadata": {"name": "a"}, **JOB}, held):
        assert call("POST", JOBS.replace("default", "going"), job)[0] == 201

    def condition(name: str, kind: str) -> dict:
        conditions = (call("GET", f"{spaces}/{name}")[1].get("status") or {}).get("conditions") or ()
        return next((c for c in conditions if c["type"] == kind and c["status"] == "True"), {})

    assert call("DELETE", f"{spaces}/going")[0] == 200
    remaining = until(lambda: condition("going", "NamespaceContentRemaining"), PATIENCE_S)
    assert remaining["message"] == "Some resources are remaining: jobs.batch has 1 resource instances"
    assert "example.com/later" in condition("going", "NamespaceFinalizersRemaining")["message"]
    free = {"metadata": {"finalizers": None}}
    assert call("PATCH", JOBS.replace("default", "going") + "/held", free, "application/merge-patch+json")[0] == 200
    until(lambda: call("GET", f"{spaces}/going")[0] == 404, PATIENCE_S)
    assert other("GET", JOBS.replace("default", "going"))[1]["items"] == []
    assert call("DELETE", f"{spaces}/default/services/behind")[0] == 200
    until(lambda: call("GET", JOBS)[0] == 503, PATIENCE_S)
    assert call("DELETE", f"{spaces}/stays")[0] == 200
    failed = until(lambda: condition("stays", "NamespaceDeletionDiscoveryFailure"), PATIENCE_S)
    assert failed["reason"] == "DiscoveryFailed" and failed["message"].endswith(": batch/v1: stale GroupVersion discovery: batch/v1")
    assert call("DELETE", f"{SERVICES}/{NAME}")[0] == 200
    until(lambda: call("GET", f"{spaces}/stays")[0] == 404, PATIENCE_S)
