"""Writes by kubectl: patches, scale, rollout, replace, delete, server-side apply, dry runs, waits."""

from __future__ import annotations

import json
import threading
import uuid

import pytest

from tests.clients.kubectl import MANIFESTS, Kubectl

pytestmark = pytest.mark.client
every_version = pytest.mark.every_version


@pytest.fixture
def name() -> str:
    return "x" + uuid.uuid4().hex[:8]


def configmap(name: str, data: dict[str, str], **metadata) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}, "data": data})


def deployed(k: Kubectl, name: str, replicas: int = 2) -> dict:
    k("create", "deployment", name, "--image=nginx:1", f"--replicas={replicas}")
    return k.get("deployment", name)


def rolled_out(k: Kubectl, kind: str, name: str) -> None:
    """Writes the status that the controllers of a cluster would write in the end."""
    obj = k.get(kind, name)
    n = obj["spec"].get("replicas", 0)
    status = {
        "observedGeneration": obj["metadata"]["generation"],
        "replicas": n,
        "updatedReplicas": n,
        "readyReplicas": n,
        "availableReplicas": n,
    }
    if kind == "statefulset":
        status |= {"currentRevision": "r1", "updateRevision": "r1"}
    if kind == "daemonset":
        status = {
            "observedGeneration": status["observedGeneration"],
            "desiredNumberScheduled": 1,
            "updatedNumberScheduled": 1,
            "numberAvailable": 1,
        }
        status |= {"currentNumberScheduled": 1, "numberMisscheduled": 0, "numberReady": 1}
    if kind == "deployment":
        status["conditions"] = [{"type": "Available", "status": "True", "reason": "MinimumReplicasAvailable"}]
    k("patch", kind, name, "--subresource=status", "--type=merge", "-p", json.dumps({"status": status}))


def replica_set(k: Kubectl, deployment: dict, revision: int, cause: str, image: str) -> None:
    """A revision as the deployment controller would create it."""
    name, labels = deployment["metadata"]["name"], {**deployment["spec"]["selector"]["matchLabels"], "pod-template-hash": f"h{revision}"}
    template = json.loads(json.dumps(deployment["spec"]["template"]))
    template["metadata"]["labels"] = labels
    template["spec"]["containers"][0]["image"] = image
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name, "uid": deployment["metadata"]["uid"], "controller": True}
    k.create(
        {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {
                "name": f"{name}-h{revision}",
                "labels": labels,
                "ownerReferences": [owner],
                "annotations": {"deployment.kubernetes.io/revision": str(revision), "kubernetes.io/change-cause": cause},
            },
            "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": template},
        }
    )


# --- apply


@every_version
def test_apply_merges_three_ways(k: Kubectl, name: str):
    assert k.out("apply", "-f", "-", stdin=configmap(name, {"a": "1", "b": "2"})) == f"configmap/{name} created\n"
    k("patch", "configmap", name, "--type=merge", "-p", '{"data":{"theirs":"3"}}')
    assert k.out("apply", "-f", "-", stdin=configmap(name, {"a": "9"})) == f"configmap/{name} configured\n"
    assert k.get("configmap", name)["data"] == {"a": "9", "theirs": "3"}
    assert json.loads(k.out("apply", "view-last-applied", "configmap", name, "-o", "json"))["data"] == {"a": "9"}


@every_version
def test_apply_server_side(k: Kubectl, name: str):
    def apply(manager: str, data: dict, *flags: str, **kw):
        return k("apply", "--server-side", f"--field-manager={manager}", *flags, "-f", "-", stdin=configmap(name, data), **kw)

    assert apply("a", {"x": "1", "y": "1"}).stdout == f"configmap/{name} serverside-applied\n"
    refused = apply("b", {"x": "2"}, code=1).stderr
    assert 'conflict with "a": .data.x' in refused and "--force-conflicts" in refused
    apply("b", {"x": "2"}, "--force-conflicts")
    owners = {
        e["manager"]: e["fieldsV1"]["f:data"]
        for e in json.loads(k.out("get", "cm", name, "-o", "json", "--show-managed-fields"))["metadata"]["managedFields"]
    }
    assert set(owners["a"]) - {"."} == {"f:y"} and set(owners["b"]) - {"."} == {"f:x"}
    # A field that one manager alone applied is removed when it applies it no more.
    apply("b", {})
    assert k.get("configmap", name)["data"] == {"y": "1"}


def test_apply_server_side_takes_over(k: Kubectl):
    """For objects applied client-side before, kubectl moves the ownership, without conflicts."""
    k.apply("pods.yaml", "network-config.yaml")
    lines = k.out("apply", "--server-side", "-f", str(MANIFESTS / "pods.yaml"), "-f", str(MANIFESTS / "network-config.yaml")).splitlines()
    assert {line.rpartition(" ")[2] for line in lines} == {"serverside-applied"}
    managers = {
        e["manager"]: e["operation"]
        for e in json.loads(k.out("get", "cm", "settings", "-o", "json", "--show-managed-fields"))["metadata"]["managedFields"]
    }
    # kubectl-last-applied is the manager of the annotation that kubectl updates.
    managers.pop("kubectl-last-applied", None)
    assert managers == {"kubectl": "Apply"}


def test_apply_prunes(k: Kubectl, name: str):
    objects = [json.loads(configmap(name + suffix, {}, labels={"set": name})) for suffix in "ab"]
    k("apply", "-f", "-", "-l", f"set={name}", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    out = k.out("apply", "-f", "-", "--prune", "-l", f"set={name}", "--prune-allowlist=core/v1/ConfigMap", stdin=json.dumps(objects[0]))
    assert f"configmap/{name}b pruned" in out
    assert k.out("get", "cm", "-l", f"set={name}", "-o", "name") == f"configmap/{name}a\n"


def test_dry_run_and_diff(k: Kubectl, name: str):
    assert "created (server dry run)" in k.out("apply", "--dry-run=server", "-f", "-", stdin=configmap(name, {"a": "1"}))
    assert "NotFound" in k.error("get", "configmap", name)
    k("apply", "-f", "-", stdin=configmap(name, {"a": "1"}))
    k("apply", "--dry-run=server", "-f", "-", stdin=configmap(name, {"a": "2"}))
    assert k.get("configmap", name)["data"] == {"a": "1"}
    assert k.out("diff", "-f", "-", stdin=configmap(name, {"a": "1"}), code=0) == ""
    changed = k.out("diff", "-f", "-", stdin=configmap(name, {"a": "3"}), code=1)
    assert '-  a: "1"' in changed and '+  a: "3"' in changed
    assert '+  a: "4"' in k.out("diff", "--server-side", "--force-conflicts", "-f", "-", stdin=configmap(name, {"a": "4"}), code=1)
    k("delete", "configmap", name, "--dry-run=server")
    k("get", "configmap", name)


# --- patch, replace, edit


def test_patches(k: Kubectl, name: str):
    deployed(k, name)
    k("set", "env", f"deployment/{name}", "A=1")
    path = "{.spec.template.spec.containers[*].image}/{.spec.template.spec.containers[0].env[0].name}"
    # Strategic: containers merge by name.
    k("patch", "deployment", name, "-p", '{"spec":{"template":{"spec":{"containers":[{"name":"side","image":"side:1"}]}}}}')
    assert sorted(k.out("get", "deploy", name, "-o", f"jsonpath={path}").split("/")[0].split()) == ["nginx:1", "side:1"]
    k("patch", "deployment", name, "-p", '{"spec":{"template":{"spec":{"containers":[{"name":"side","$patch":"delete"}]}}}}')
    assert k.out("get", "deploy", name, "-o", f"jsonpath={path}") == "nginx:1/A"
    # Merge: the list is replaced.
    k("patch", "deployment", name, "--type=merge", "-p", '{"spec":{"template":{"spec":{"containers":[{"name":"only","image":"only:1"}]}}}}')
    assert k.out("get", "deploy", name, "-o", f"jsonpath={path}") == "only:1/"
    # JSON: operations, with a test that fails.
    k(
        "patch",
        "deployment",
        name,
        "--type=json",
        "-p",
        '[{"op":"test","path":"/spec/replicas","value":2},{"op":"replace","path":"/spec/replicas","value":4}]',
    )
    assert k.get("deployment", name)["spec"]["replicas"] == 4
    k.error("patch", "deployment", name, "--type=json", "-p", '[{"op":"test","path":"/spec/replicas","value":2}]')
    assert "patched (no change)" in k.out("patch", "deployment", name, "-p", '{"spec":{"replicas":4}}')
    assert "is invalid" in k.error("patch", "deployment", name, "--type=merge", "-p", '{"spec":{"replicas":-1}}')


def test_status_is_another_resource(k: Kubectl, name: str):
    deployed(k, name)
    k("patch", "deployment", name, "--subresource=status", "--type=merge", "-p", '{"spec":{"replicas":9},"status":{"replicas":7}}')
    obj = k.get("deployment", name)
    assert (obj["spec"]["replicas"], obj["status"]["replicas"]) == (2, 7)
    assert json.loads(k.out("get", "deployment", name, "--subresource=scale", "-o", "json"))["status"]["replicas"] == 7


def test_replace(k: Kubectl, name: str):
    k("create", "configmap", name, "--from-literal=a=1")
    stale = k.get("configmap", name)
    stale["data"]["a"] = "2"
    assert k.out("replace", "-f", "-", stdin=json.dumps(stale)) == f"configmap/{name} replaced\n"
    stale["data"]["a"] = "3"
    assert "the object has been modified; please apply your changes to the latest version" in k.error(
        "replace", "-f", "-", stdin=json.dumps(stale)
    )
    uid = k.get("configmap", name)["metadata"]["uid"]
    k("replace", "--force", "-f", "-", stdin=configmap(name, {"a": "4"}))
    fresh = k.get("configmap", name)
    assert fresh["metadata"]["uid"] != uid and fresh["data"] == {"a": "4"}


def test_edit(k: Kubectl, name: str):
    k("create", "configmap", name, "--from-literal=a=before")
    assert "edited" in k.out("edit", "configmap", name, env={"KUBE_EDITOR": "sed -i s/before/after/"})
    assert k.get("configmap", name)["data"] == {"a": "after"}
    assert "no changes made" in k("edit", "configmap", name, env={"KUBE_EDITOR": "true"}).stderr
    deployed(k, name)
    k("edit", "deployment", name, env={"KUBE_EDITOR": "sed -i s/replicas:.2/replicas:\\ 6/"})
    assert k.get("deployment", name)["spec"]["replicas"] == 6


def test_label_and_annotate(k: Kubectl, name: str):
    k("create", "configmap", name)
    k("label", "configmap", name, "a=1", "b=2")
    assert "already has a value" in k.error("label", "configmap", name, "a=2")
    k("label", "configmap", name, "a=2", "b-", "--overwrite")
    k("annotate", "configmap", name, "note=some text")
    obj = k.get("configmap", name)["metadata"]
    assert obj["labels"] == {"a": "2"} and obj["annotations"] == {"note": "some text"}
    assert "the object has been modified" in k.error("label", "configmap", name, "c=1", "--resource-version=1")


# --- scale and rollout


def test_scale(k: Kubectl, name: str):
    deployed(k, name)
    assert k.out("scale", "deployment", name, "--replicas=5") == f"deployment.apps/{name} scaled\n"
    assert k.get("deployment", name)["spec"]["replicas"] == 5
    assert "Expected replicas to be 3, was 5" in k.error("scale", "deployment", name, "--replicas=1", "--current-replicas=3")
    k.apply("workloads.yaml")
    k("scale", "statefulset/db", "--replicas=0")
    assert k.get("statefulset", "db")["spec"]["replicas"] == 0
    assert k.get("statefulset", "db")["metadata"]["generation"] >= 2


def test_rollout_status(k: Kubectl, name: str):
    deployed(k, name)
    assert "exceeded its progress deadline" not in k("rollout", "status", f"deployment/{name}", "--watch=false").stdout
    rolled_out(k, "deployment", name)
    assert "successfully rolled out" in k.out("rollout", "status", f"deployment/{name}", "--timeout=60s")


def test_rollout_status_of_others(k: Kubectl):
    k.apply("workloads.yaml")
    k("scale", "statefulset/db", "--replicas=2")
    rolled_out(k, "statefulset", "db")
    assert "roll out complete: 2 new pods" in k.out("rollout", "status", "statefulset/db", "--timeout=60s")
    rolled_out(k, "daemonset", "agent")
    assert "successfully rolled out" in k.out("rollout", "status", "daemonset/agent", "--timeout=60s")


def test_rollout_status_follows_a_watch(k: Kubectl, name: str):
    deployed(k, name)
    timer = threading.Timer(1.0, rolled_out, (k, "deployment", name))
    timer.start()
    try:
        assert "successfully rolled out" in k.out("rollout", "status", f"deployment/{name}", "--timeout=60s")
    finally:
        timer.join()


def test_rollout_history_and_undo(k: Kubectl, name: str):
    deployment = deployed(k, name)
    replica_set(k, deployment, 1, "first", "nginx:0.9")
    replica_set(k, deployment, 2, "second", "nginx:1")
    history = k.out("rollout", "history", f"deployment/{name}")
    assert [line.split() for line in history.splitlines()[1:] if line.strip()] == [
        ["REVISION", "CHANGE-CAUSE"],
        ["1", "first"],
        ["2", "second"],
    ]
    assert "nginx:0.9" in k.out("rollout", "history", f"deployment/{name}", "--revision=1")
    assert "rolled back" in k.out("rollout", "undo", f"deployment/{name}", "--to-revision=1")
    assert k.get("deployment", name)["spec"]["template"]["spec"]["containers"][0]["image"] == "nginx:0.9"


def test_rollout_restart_pause_resume(k: Kubectl, name: str):
    before = deployed(k, name)
    k("rollout", "pause", f"deployment/{name}")
    assert k.get("deployment", name)["spec"]["paused"] is True
    k("rollout", "resume", f"deployment/{name}")
    k("rollout", "restart", f"deployment/{name}")
    after = k.get("deployment", name)
    assert "kubectl.kubernetes.io/restartedAt" in after["spec"]["template"]["metadata"]["annotations"] and "paused" not in after["spec"]
    assert after["metadata"]["generation"] == before["metadata"]["generation"] + 3


# --- delete


@every_version
def test_delete(k: Kubectl, name: str):
    k("create", "configmap", name + "a")
    k("create", "configmap", name + "b")
    k("label", "configmap", name + "a", name + "b", f"set={name}")
    assert k.out("delete", "configmap", "-l", f"set={name}").count("deleted") == 2
    assert "NotFound" in k.error("delete", "configmap", name + "a")
    assert k.out("delete", "configmap", name + "a", "--ignore-not-found") == ""
    k("apply", "-f", str(MANIFESTS / "pods.yaml"))
    assert k.out("delete", "-f", str(MANIFESTS / "pods.yaml"), "--now").count("deleted") == 2
    k("run", name, "--image=busybox", "--restart=Never")
    k("delete", "pod", name, "--force", "--grace-period=0")
    assert k.out("get", "pod", name, "--ignore-not-found") == ""


def owned(k: Kubectl, name: str) -> None:
    replica_set(k, deployed(k, name), 1, "only", "nginx:1")


def test_delete_without_cascade(k: Kubectl, name: str):
    owned(k, name)
    k("delete", "deployment", name, "--cascade=orphan", "--timeout=60s")
    left = k.get("replicaset", name + "-h1")["metadata"]
    assert "ownerReferences" not in left and "deletionTimestamp" not in left


@pytest.mark.parametrize("cascade", ["background", "foreground"])
def test_delete_with_cascade(k: Kubectl, name: str, cascade: str):
    owned(k, name)
    k("delete", "deployment", name, f"--cascade={cascade}", "--timeout=60s")
    k.until(lambda: k.out("get", "deployment,replicaset", "-o", "name").count(name) == 0)


def test_delete_namespace(k: Kubectl, name: str):
    k("create", "namespace", name)
    k("apply", "-n", name, "-f", str(MANIFESTS / "workloads.yaml"), "-f", str(MANIFESTS / "network-config.yaml"))
    k("delete", "namespace", name, "--timeout=60s")
    assert "NotFound" in k.error("get", "namespace", name)


def test_wait(k: Kubectl, name: str):
    deployed(k, name)
    assert "timed out waiting for the condition" in k.error("wait", f"deployment/{name}", "--for=condition=Available", "--timeout=1s")
    rolled_out(k, "deployment", name)
    assert "condition met" in k.out("wait", f"deployment/{name}", "--for=condition=Available", "--timeout=60s")
    k("wait", f"deployment/{name}", "--for=jsonpath={.status.readyReplicas}=2", "--timeout=60s")
    process = k.popen("wait", f"deployment/{name}", "--for=delete", "--timeout=60s")
    k("delete", "deployment", name, "--cascade=background")
    _, err = process.communicate(timeout=90)
    assert process.returncode == 0, err


# --- objects that kubectl itself creates


def test_create_and_expose(k: Kubectl, name: str):
    made = {
        "secret": ("create", "secret", "generic", name, "--from-literal=a=b"),
        "job": ("create", "job", name, "--image=busybox", "--", "true"),
        "cronjob": ("create", "cronjob", name, "--image=busybox", "--schedule=@hourly"),
        "ingress": ("create", "ingress", name, "--rule=foo.example.com/*=svc:80"),
        "role": ("create", "role", name, "--verb=get", "--resource=pods"),
        "rolebinding": ("create", "rolebinding", name, f"--role={name}", f"--serviceaccount={k.namespace}:default"),
        "poddisruptionbudget": ("create", "poddisruptionbudget", name, "--selector=app=x", "--min-available=50%"),
        "quota": ("create", "quota", name, "--hard=cpu=100"),
        "serviceaccount": ("create", "serviceaccount", name),
        "priorityclass": ("create", "priorityclass", k.namespace + name, "--value=10"),
    }
    for kind, args in made.items():
        k(*args)
        assert k.get(kind, args[3 if kind == "secret" else 2])["metadata"]["uid"]
    k("create", "job", name + "2", f"--from=cronjob/{name}")
    assert k.get("job", name + "2")["metadata"]["ownerReferences"][0]["kind"] == "CronJob"
    deployed(k, name)
    k("expose", "deployment", name, "--port=80", "--type=NodePort")
    assert 30000 <= k.get("service", name)["spec"]["ports"][0]["nodePort"] <= 32767
    k("autoscale", "deployment", name, "--max=5", "--cpu-percent=50")
    assert k.get("hpa", name)["spec"]["maxReplicas"] == 5
    k("set", "image", f"deployment/{name}", "nginx=nginx:2")
    assert k.get("deployment", name)["metadata"]["generation"] == 2
