"""The most common commands, with every installed kubectl: apply and get in all its forms, over real manifests."""

from __future__ import annotations

import json
import re

import pytest
import yaml

from tests.clients.kubectl import MANIFESTS, Kubectl, table, tables

pytestmark = pytest.mark.client
every_version = pytest.mark.every_version

# kind -> columns of `get -o wide`
WIDE = {
    "deployment.apps": "NAME READY UP-TO-DATE AVAILABLE AGE CONTAINERS IMAGES SELECTOR",
    "statefulset.apps": "NAME READY AGE CONTAINERS IMAGES",
    "daemonset.apps": "NAME DESIRED CURRENT READY UP-TO-DATE AVAILABLE NODE_SELECTOR AGE CONTAINERS IMAGES SELECTOR",
    "job.batch": "NAME STATUS COMPLETIONS DURATION AGE CONTAINERS IMAGES SELECTOR",
    "cronjob.batch": "NAME SCHEDULE TIMEZONE SUSPEND ACTIVE LAST_SCHEDULE AGE CONTAINERS IMAGES SELECTOR",
    "service": "NAME TYPE CLUSTER-IP EXTERNAL-IP PORT(S) AGE SELECTOR",
    "ingress.networking.k8s.io": "NAME CLASS HOSTS ADDRESS PORTS AGE",
    "configmap": "NAME DATA AGE",
    "secret": "NAME TYPE DATA AGE",
    "persistentvolumeclaim": "NAME STATUS VOLUME CAPACITY ACCESS_MODES STORAGECLASS VOLUMEATTRIBUTESCLASS AGE VOLUMEMODE",
    "horizontalpodautoscaler.autoscaling": "NAME REFERENCE TARGETS MINPODS MAXPODS REPLICAS AGE",
    "poddisruptionbudget.policy": "NAME MIN_AVAILABLE MAX_UNAVAILABLE ALLOWED_DISRUPTIONS AGE",
    "networkpolicy.networking.k8s.io": "NAME POD-SELECTOR AGE",
    "role.rbac.authorization.k8s.io": "NAME CREATED_AT",
    "rolebinding.rbac.authorization.k8s.io": "NAME ROLE AGE USERS GROUPS SERVICEACCOUNTS",
    "pod": "NAME READY STATUS RESTARTS AGE IP NODE NOMINATED_NODE READINESS_GATES",
    "resourcequota": "NAME REQUEST LIMIT AGE",
    "limitrange": "NAME CREATED_AT",
    "serviceaccount": "NAME AGE",
}
ALL = ",".join(k.partition(".")[0] for k in WIDE)


def documents() -> list[dict]:
    return [d for f in sorted(MANIFESTS.glob("*.yaml")) for d in yaml.safe_load_all(f.read_text())]


@every_version
def test_apply_again_changes_nothing(applied: Kubectl):
    lines = applied.apply("network-config.yaml", "workloads.yaml", "policy.yaml", "pods.yaml")
    assert len(lines) == len(documents())
    # stringData is never returned, and kubectl can only replace some parts as a whole (lists that the server completes, selectors):
    # those it patches each time.
    again = {"secret/credentials", "statefulset.apps/db", "limitrange/containers", "poddisruptionbudget.policy/web"}
    assert [line for line in lines if not line.endswith(" unchanged") and line.partition(" ")[0] not in again] == []


@every_version
def test_get_wide(applied: Kubectl):
    got = tables(applied.out("get", ALL, "-o", "wide"))
    wrong = {}
    for kind, columns in WIDE.items():
        # One space separates words within a column name, more separate the columns.
        have = " ".join(c.replace(" ", "_") for c in got[kind][0]) if kind in got else "no table"
        if have != columns:
            wrong[kind] = have
    assert not wrong
    by_name = {r[0]: r for rows in got.values() for r in rows[1:]}
    assert by_name["deployment.apps/web"][1] == "0/3"
    assert by_name["deployment.apps/web"][5:] == ["nginx,log-shipper", "nginx:1.27,busybox:1.36", "app=web"]
    assert by_name["configmap/settings"][1] == "2"
    assert by_name["service/db"][2] == "None" and re.fullmatch(r"10\.0\.0\.\d+", by_name["service/web"][2])
    assert by_name["cronjob.batch/report"][1] == "*/5 * * * *"
    assert by_name["ingress.networking.k8s.io/web"][3] == "80, 443"


@every_version
def test_get_structured(applied: Kubectl):
    for d in documents():
        if d["kind"] in ("Deployment", "ConfigMap", "Secret", "ClusterRole"):
            obj = yaml.safe_load(applied.out("get", d["kind"], d["metadata"]["name"], "-o", "yaml"))
            assert (obj["apiVersion"], obj["kind"]) == (d["apiVersion"], d["kind"])
            assert "kubectl.kubernetes.io/last-applied-configuration" in obj["metadata"]["annotations"]
            if d["kind"] == "ConfigMap":
                assert obj["data"] == d["data"]
    listed = json.loads(applied.out("get", "configmaps,secrets", "-o", "json"))
    assert listed["kind"] == "List" and {"settings", "credentials"} <= {i["metadata"]["name"] for i in listed["items"]}
    assert "managedFields" not in listed["items"][0]["metadata"]
    shown = json.loads(applied.out("get", "configmap", "settings", "-o", "json", "--show-managed-fields"))
    assert shown["metadata"]["managedFields"][0]["manager"] == "kubectl-client-side-apply"


@every_version
def test_get_selected_output(applied: Kubectl):
    assert applied.out("get", "deploy,sts,ds", "-o", "name").split() == [
        "deployment.apps/web",
        "statefulset.apps/db",
        "daemonset.apps/agent",
    ]
    path = "{.spec.template.spec.containers[*].image}"
    assert applied.out("get", "deploy", "web", "-o", f"jsonpath={path}") == "nginx:1.27 busybox:1.36"
    columns = applied.out("get", "svc", "-o", "custom-columns=NAME:.metadata.name,PORT:.spec.ports[0].port", "--sort-by=.metadata.name")
    assert table(columns) == [["NAME", "PORT"], ["db", "5432"], ["web", "80"]]
    template = "{{range .items}}{{.metadata.name}}={{.spec.schedule}};{{end}}"
    assert applied.out("get", "cronjobs", "-o", f"go-template={template}") == "report=*/5 * * * *;"


def test_get_chosen_objects(applied: Kubectl):
    assert applied.out("get", "pods", "-l", "app=batch,part in (b,c)", "-o", "name") == "pod/two\n"
    assert applied.out("get", "pods", "--field-selector", "metadata.name!=two", "-o", "name") == "pod/one\n"
    rows = table(applied.out("get", "pods", "-L", "part", "--show-labels"))
    assert rows[0][-2:] == ["PART", "LABELS"] and rows[1][-2:] == ["a", "app=batch,part=a"]
    everywhere = table(applied.out("get", "pods", "-A", "--no-headers"))
    assert {applied.namespace} <= {r[0] for r in everywhere}
    assert applied.out("get", "roles", "-n", "kube-system", "--chunk-size=2", "-o", "name").count("\n") >= 6
    assert applied.out("get", "pod", "nosuch", "--ignore-not-found") == ""
    everything = applied.out("get", "all", "-o", "name").split()
    assert {"pod/one", "service/web", "deployment.apps/web", "job.batch/migrate", "horizontalpodautoscaler.autoscaling/web"} <= set(
        everything
    )
    assert applied.out("get", "-f", str(MANIFESTS / "pods.yaml"), "-o", "name").split() == ["pod/one", "pod/two"]


def test_get_raw(applied: Kubectl):
    assert applied.out("get", "--raw", "/readyz") == "ok"
    assert json.loads(applied.out("get", "--raw", f"/api/v1/namespaces/{applied.namespace}/pods/one"))["kind"] == "Pod"


def test_describe(applied: Kubectl):
    done = applied("describe", ALL)
    # Versions before 1.31 describe a Service by its Endpoints.
    assert done.stderr in ("", "Warning: v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice\n")
    text = done.stdout
    for line in (
        r"Replicas:\s+3 desired \| 0 updated \| 0 total \| 0 available \| 0 unavailable",
        r"StrategyType:\s+RollingUpdate",
        r"Schedule:\s+\*/5 \* \* \* \*",
        r"password:\s+6 bytes",
        r"web\.example\.com",
        r"Min available:\s+1",
        r"Resource\s+Used\s+Hard",
        r"Container\s+cpu\s+-\s+4",
        r"deployments\.apps\s+\[\]\s+\[\]\s+\[get list watch update patch\]",
        r"Group\s+deployers",
        r"Allowing ingress traffic:",
        r"Pods Statuses:\s+0 Active",
        r"Access Modes:|StorageClass:\s+standard",
    ):
        assert re.search(line, text), line
    assert re.search(r"nodes\s+\[\]\s+\[\]\s+\[get list watch\]", applied.out("describe", "clusterrole", "node-watcher"))
    assert "No resource quota." not in applied.out("describe", "namespace", applied.namespace)


def test_explain(k: Kubectl):
    text = k.out("explain", "deployment.spec.strategy.rollingUpdate")
    assert "maxSurge" in text and "maxUnavailable" in text and re.search(r"KIND:\s+Deployment", text) and "apps" in text
    assert "terminationGracePeriodSeconds" in k.out("explain", "pods", "--recursive")
    assert "targetCPUUtilizationPercentage" in k.out("explain", "hpa.spec", "--api-version=autoscaling/v1")
    assert "metrics" in k.out("explain", "hpa.spec", "--api-version=autoscaling/v2")
    assert 'field "nosuch" does not exist' in k.error("explain", "pods.nosuch")
    # Schemas of openapi/v2, as kubectl read them before v3.
    assert "binaryData" in k.out("explain", "configmaps", "--output=plaintext-openapiv2")


@every_version
def test_discovery(k: Kubectl):
    rows = {r[0]: r for r in table(k.out("api-resources", "--no-headers"))}
    assert rows["pods"][1:] == ["po", "v1", "true", "Pod"]
    assert rows["deployments"][1:] == ["deploy", "apps/v1", "true", "Deployment"]
    assert rows["horizontalpodautoscalers"][1:] == ["hpa", "autoscaling/v2", "true", "HorizontalPodAutoscaler"]
    versions = k.out("api-versions").split()
    assert {"v1", "apps/v1", "batch/v1", "autoscaling/v1", "autoscaling/v2", "rbac.authorization.k8s.io/v1", "events.k8s.io/v1"} <= set(
        versions
    )
    assert not [v for v in versions if "alpha" in v or "beta" in v]


def test_discovery_chosen(k: Kubectl):
    assert "namespaces" not in k.out("api-resources", "--namespaced=true", "-o", "name").split()
    assert k.out("api-resources", "--api-group=apps", "-o", "name").split() == [
        f"{r}.apps" for r in ("controllerrevisions", "daemonsets", "deployments", "replicasets", "statefulsets")
    ]
    assert "create,delete,deletecollection,get,list,patch,update,watch" in k.out("api-resources", "-o", "wide")
    assert "pods" in k.out("api-resources", "--categories=all", "-o", "name").split()


def test_cluster_info(k: Kubectl):
    assert f"{k.server.url}" in k.out("cluster-info")
    assert re.search(r"Server Version: .*v1\.36", k.out("version"))


@every_version
def test_watch(applied: Kubectl):
    template = '{.type} {.object.metadata.name} {.object.metadata.labels.seen}{"\\n"}'
    process = applied.popen(
        "get", "configmaps", "--watch", "--output-watch-events", "-o", f"jsonpath={template}", "--field-selector", "metadata.name=watched"
    )
    try:
        applied("create", "configmap", "watched", "--from-literal=a=1")
        assert process.stdout.readline().split() == ["ADDED", "watched"]
        applied("label", "configmap", "watched", "seen=yes")
        assert process.stdout.readline().split() == ["MODIFIED", "watched", "yes"]
        applied("delete", "configmap", "watched")
        assert process.stdout.readline().split() == ["DELETED", "watched", "yes"]
    finally:
        process.kill()
        process.communicate()
