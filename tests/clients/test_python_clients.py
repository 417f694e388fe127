"""Common Python clients (kubernetes, lightkube and kopf) with one server that has two workers."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from tests import prerequisites

kubernetes = prerequisites.module("kubernetes")
lightkube = prerequisites.module("lightkube")

pytestmark = pytest.mark.client
NAMESPACE = "python-clients"


@pytest.fixture(scope="module")
def server(module_server):
    return module_server("--unsafe-no-fsync", workers=2)


@pytest.fixture
def name() -> str:
    return "x" + uuid.uuid4().hex[:8]


@pytest.fixture(scope="module")
def api(server):
    configuration = kubernetes.client.Configuration()
    kubernetes.config.load_kube_config(server.kubeconfig, client_configuration=configuration)
    with kubernetes.client.ApiClient(configuration) as client:
        core = kubernetes.client.CoreV1Api(client)
        core.create_namespace({"metadata": {"name": NAMESPACE}})
        yield client


# --- kubernetes


def test_kubernetes_crud(api, name):
    core = kubernetes.client.CoreV1Api(api)
    made = core.create_namespaced_config_map(NAMESPACE, {"metadata": {"name": name, "labels": {"a": "1"}}, "data": {"k": "v"}})
    assert made.metadata.uid and made.metadata.creation_timestamp
    assert core.read_namespaced_config_map(name, NAMESPACE).data == {"k": "v"}
    assert [
        o.metadata.name
        for o in core.list_namespaced_config_map(NAMESPACE, label_selector="a=1", field_selector=f"metadata.name={name}").items
    ] == [name]
    made.data["k"] = "w"
    replaced = core.replace_namespaced_config_map(name, NAMESPACE, made)
    assert replaced.data == {"k": "w"} and int(replaced.metadata.resource_version) > int(made.metadata.resource_version)
    with pytest.raises(kubernetes.client.ApiException) as refused:
        core.replace_namespaced_config_map(name, NAMESPACE, made)
    assert (refused.value.status, refused.value.reason) == (409, "Conflict")
    core.delete_namespaced_config_map(name, NAMESPACE)
    with pytest.raises(kubernetes.client.ApiException) as gone:
        core.read_namespaced_config_map(name, NAMESPACE)
    assert gone.value.status == 404 and '"reason":"NotFound"' in gone.value.body


def test_kubernetes_typed_objects_and_patches(api, name):
    c, apps = kubernetes.client, kubernetes.client.AppsV1Api(api)
    template = c.V1PodTemplateSpec(
        metadata=c.V1ObjectMeta(labels={"app": name}),
        spec=c.V1PodSpec(containers=[c.V1Container(name="a", image="a:1"), c.V1Container(name="b", image="b:1")]),
    )
    spec = c.V1DeploymentSpec(replicas=2, selector=c.V1LabelSelector(match_labels={"app": name}), template=template)
    apps.create_namespaced_deployment(NAMESPACE, c.V1Deployment(metadata=c.V1ObjectMeta(name=name), spec=spec))
    containers = {"spec": {"template": {"spec": {"containers": [{"name": "b", "image": "b:2"}]}}}}
    merged = apps.patch_namespaced_deployment(name, NAMESPACE, containers)
    assert [x.image for x in merged.spec.template.spec.containers] == ["b:2", "a:1"] or [
        x.image for x in merged.spec.template.spec.containers
    ] == ["a:1", "b:2"]
    replaced = apps.patch_namespaced_deployment(name, NAMESPACE, [{"op": "replace", "path": "/spec/replicas", "value": 7}])
    assert replaced.spec.replicas == 7
    scale = apps.read_namespaced_deployment_scale(name, NAMESPACE)
    scale.spec.replicas = 1
    assert apps.replace_namespaced_deployment_scale(name, NAMESPACE, scale).spec.replicas == 1
    applied = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": {"replicas": 4}}
    with pytest.raises(c.ApiException) as conflict:
        apps.patch_namespaced_deployment(name, NAMESPACE, applied, field_manager="t", _content_type="application/apply-patch+yaml")
    assert conflict.value.status == 409 and "conflict" in conflict.value.body
    forced = apps.patch_namespaced_deployment(
        name, NAMESPACE, applied, field_manager="t", force=True, _content_type="application/apply-patch+yaml"
    )
    assert forced.spec.replicas == 4


def test_kubernetes_invalid(api):
    with pytest.raises(kubernetes.client.ApiException) as refused:
        kubernetes.client.CoreV1Api(api).create_namespaced_service(
            NAMESPACE, {"metadata": {"name": "Not_A_Name"}, "spec": {"ports": [{"port": 1}]}}
        )
    assert (refused.value.status, refused.value.reason) == (422, "Unprocessable Entity")
    assert "metadata.name" in refused.value.body


def test_kubernetes_watch(api, name):
    core, watch = kubernetes.client.CoreV1Api(api), kubernetes.watch.Watch()
    revision = core.list_namespaced_secret(NAMESPACE).metadata.resource_version
    core.create_namespaced_secret(NAMESPACE, {"metadata": {"name": name}})
    core.patch_namespaced_secret(name, NAMESPACE, {"metadata": {"labels": {"a": "b"}}})
    core.delete_namespaced_secret(name, NAMESPACE)
    seen = []
    for event in watch.stream(core.list_namespaced_secret, NAMESPACE, resource_version=revision, timeout_seconds=30):
        seen.append((event["type"], event["object"].metadata.name))
        if event["type"] == "DELETED":
            watch.stop()
    assert seen == [("ADDED", name), ("MODIFIED", name), ("DELETED", name)]


def test_kubernetes_dynamic(api, name):
    from kubernetes.dynamic import DynamicClient

    cronjobs = DynamicClient(api).resources.get(api_version="batch/v1", kind="CronJob")
    job = {"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}}
    body = {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": name}, "spec": {"schedule": "@daily", "jobTemplate": job}}
    cronjobs.create(body=body, namespace=NAMESPACE)
    assert cronjobs.get(name=name, namespace=NAMESPACE).spec.concurrencyPolicy == "Allow"
    cronjobs.delete(name=name, namespace=NAMESPACE)


# --- lightkube


def test_lightkube(server, api, name):
    from lightkube.models.meta_v1 import ObjectMeta
    from lightkube.resources.core_v1 import ConfigMap
    from lightkube.types import PatchType

    client = lightkube.Client(config=lightkube.KubeConfig.from_file(server.kubeconfig), namespace=NAMESPACE, field_manager="lightkube")
    made = client.create(ConfigMap(metadata=ObjectMeta(name=name, labels={"l": name}), data={"a": "1"}))
    assert client.get(ConfigMap, name).data == {"a": "1"}
    assert [o.metadata.name for o in client.list(ConfigMap, labels={"l": name})] == [name]
    made.data["a"] = "2"
    made = client.replace(made)
    assert client.patch(ConfigMap, name, {"data": {"b": "3"}}, patch_type=PatchType.MERGE).data == {"a": "2", "b": "3"}
    assert client.apply(ConfigMap(metadata=ObjectMeta(name=name), data={"c": "4"}), force=True).data == {"a": "2", "b": "3", "c": "4"}
    client.delete(ConfigMap, name)
    with pytest.raises(lightkube.ApiError) as gone:
        client.get(ConfigMap, name)
    assert gone.value.status.code == 404 and gone.value.status.reason == "NotFound"
    seen = []
    for kind, obj in client.watch(ConfigMap, labels={"l": name}, resource_version=made.metadata.resourceVersion):
        seen.append((kind, sorted(obj.data)))
        if kind == "DELETED":
            break
    assert seen == [("MODIFIED", ["a", "b"]), ("MODIFIED", ["a", "b", "c"]), ("DELETED", ["a", "b", "c"])]


# --- kopf


def eventually(condition, log: Path, seconds: float = 200):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, log.read_text()[-4000:]
        time.sleep(0.1)


def test_kopf_operator(server, api, name, tmp_path):
    prerequisites.module("kopf")
    core, trace = kubernetes.client.CoreV1Api(api), tmp_path / "trace"
    operator = Path(__file__).with_name("kopf_operator.py")
    env = {**os.environ, "KUBECONFIG": server.kubeconfig, "TRACE": str(trace)}
    log = (tmp_path / "operator.log").open("w")
    process = subprocess.Popen(
        [sys.executable, "-m", "kopf", "run", "--standalone", "-n", NAMESPACE, str(operator)], env=env, stdout=log, stderr=log
    )
    try:
        core.create_namespaced_config_map(NAMESPACE, {"metadata": {"name": name, "labels": {"operated": "yes"}}, "data": {"word": "one"}})

        def says(text: str) -> bool:
            return (core.read_namespaced_config_map(name, NAMESPACE).data or {}).get("seen") == text

        eventually(lambda: says("created with one"), tmp_path / "operator.log")
        assert core.read_namespaced_config_map(name, NAMESPACE).metadata.finalizers
        core.patch_namespaced_config_map(name, NAMESPACE, {"data": {"word": "two"}})
        eventually(lambda: says("one became two"), tmp_path / "operator.log")
        core.delete_namespaced_config_map(name, NAMESPACE)

        def gone() -> bool:
            return not core.list_namespaced_config_map(NAMESPACE, field_selector=f"metadata.name={name}").items

        eventually(gone, tmp_path / "operator.log")
        assert trace.read_text() == f"{name} gone\n"
    finally:
        process.terminate()
        process.wait(60)
        log.close()
