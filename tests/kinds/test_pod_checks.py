"""The compiled checks of pod specs never pass what the rules refuse or warn of, and pass common pods."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kas.admission.plugins.service_account import token_source
from kas.kinds.core.pod import warnings as podwarnings
from kas.kinds.core.pod._containers import quality_of_service
from kas.kinds.core.pod.checks import PARTS, REST
from kas.kinds.core.pod.containers import PodFacts, init_containers, regular_containers
from kas.kinds.core.pod.qos import class_of
from kas.kinds.core.pod.spec import spec as spec_rules
from kas.kinds.core.pod.volumes import volumes as volume_rules
from tests.checks.mutations import changed, each_place, places

VOLUMES: list[dict[str, Any]] = [
    {"name": "empty", "emptyDir": {"sizeLimit": "1Gi"}},
    {"name": "config", "configMap": {"name": "c", "defaultMode": 420, "items": [{"key": "a", "path": "b/c", "mode": 256}]}},
    {"name": "secret", "secret": {"secretName": "s", "defaultMode": 420}},
    {"name": "claim", "persistentVolumeClaim": {"claimName": "p"}},
    {"name": "host", "hostPath": {"path": "/var/log", "type": "Directory"}},
    {"name": "down", "downwardAPI": {"items": [{"path": "p", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.labels"}}]}},
    {"name": "kube-api-access-bcdfg", "projected": token_source()},
]
PROBE = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
CONTAINER: dict[str, Any] = {
    "name": "c", "image": "registry.example/app:1", "imagePullPolicy": "IfNotPresent", "command": ["/app"], "args": ["-v"],
    "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
    "env": [
        {"name": "A", "value": "1"}, {"name": "B"},
        {"name": "C", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}},
        {"name": "D", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k.x"}}},
        {"name": "E", "valueFrom": {"configMapKeyRef": {"name": "s", "key": "k", "optional": True}}},
    ],
    "envFrom": [{"configMapRef": {"name": "c"}}, {"secretRef": {"name": "s"}}],
    "ports": [{"name": "http", "containerPort": 80, "protocol": "TCP"}, {"containerPort": 80, "protocol": "UDP"}],
    "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "1", "memory": "64Mi", "ephemeral-storage": "1G"}},
    "securityContext": {
        "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": True, "runAsUser": 1,
        "seccompProfile": {"type": "RuntimeDefault"},
    },
    "livenessProbe": {**PROBE, "httpGet": {"path": "/", "port": "http", "scheme": "HTTP"}},
    "readinessProbe": {**PROBE, "successThreshold": 2, "tcpSocket": {"port": 80}},
    "startupProbe": {**PROBE, "grpc": {"port": 80, "service": ""}},
    "lifecycle": {"preStop": {"exec": {"command": ["sleep", "1"]}}},
    "volumeMounts": [
        {"name": "empty", "mountPath": "/a", "readOnly": True}, {"name": "config", "mountPath": "/b", "subPath": "c/d"},
    ],
}  # fmt: skip
SECOND = {**CONTAINER, "name": "d", "ports": [{"name": "other", "containerPort": 81, "protocol": "TCP"}]}
FIRST_STEP = {key: CONTAINER[key] for key in ("image", "imagePullPolicy", "terminationMessagePolicy", "env", "resources")} | {"name": "i"}


def container_findings(spec: Any, valid: dict[str, Any]) -> list[Any]:
    facts = PodFacts(valid, frozenset(), 30, "Always", True, None)
    regular, init = spec["containers"], spec["initContainers"]
    found: list[Any] = [*regular_containers(regular, facts, "c"), *init_containers(init, regular, facts, "i")]
    for container in regular + init:
        found += podwarnings._container_warnings(container, "c")
        if container["image"].strip() != container["image"]:
            found.append("padded")
    return found + list(podwarnings._port_warnings(spec, "s"))


SIDECAR = {**FIRST_STEP, "name": "s", "restartPolicy": "Always", "livenessProbe": CONTAINER["livenessProbe"]}
SPEC: dict[str, Any] = {"containers": [CONTAINER, SECOND], "initContainers": [FIRST_STEP, SIDECAR], "volumes": VOLUMES}
REST_OF_IT: dict[str, Any] = {
    "restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst", "serviceAccountName": "default",
    "serviceAccount": "default", "securityContext": {"runAsUser": 1, "fsGroup": 2, "supplementalGroups": [3], "runAsNonRoot": True},
    "schedulerName": "default-scheduler", "tolerations": [
        {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
        {"key": "dedicated", "operator": "Equal", "value": "a", "effect": "NoSchedule"}, {"key": "a.b/c", "operator": "Exists"},
    ],
    "priority": 0, "enableServiceLinks": True, "preemptionPolicy": "PreemptLowerPriority", "nodeName": "n", "hostNetwork": False,
    "imagePullSecrets": [{"name": "a"}, {"name": "b"}], "hostname": "h", "subdomain": "s", "priorityClassName": "p",
    "activeDeadlineSeconds": 10, "runtimeClassName": "r", "nodeSelector": {"a.b/c": "d"},
}  # fmt: skip


def spec_findings(spec: Any) -> list[Any]:
    """Returns the errors and warnings of the rules for containers and volumes."""
    volumes = spec.get("volumes") or []
    by_name, found = volume_rules(volumes, "pod", True, "v")
    assert found or by_name == {v["name"]: v for v in volumes}
    spec = {**spec, "initContainers": spec.get("initContainers") or []}  # null is absent
    return [*found, *podwarnings._volume_warnings(volumes, "v"), *container_findings(spec, by_name)]


@settings(max_examples=2000)
@given(changed(SPEC))
def test_containers_and_volumes_that_pass_are_valid(spec):
    if PARTS.passes(spec):
        assert spec_findings(spec) == []


def test_containers_and_volumes_with_one_invalid_change():
    spec = copy.deepcopy(SPEC)
    assert PARTS.passes(spec) and PARTS.passes({**spec, "volumes": [*VOLUMES, *MORE_VOLUMES]})
    for what in each_place(spec):
        if PARTS.passes(spec):
            assert spec_findings(spec) == [], what


MORE_VOLUMES: list[dict[str, Any]] = [
    {"name": "whole", "projected": {"sources": [{"configMap": {"name": "a"}}, {"secret": {"name": "b"}}], "defaultMode": 420}},
    {"name": "one", "projected": {"sources": [{"secret": {"name": "a", "items": [
        {"key": "a", "path": "a"}, {"key": "b", "path": "b"},
    ]}}], "defaultMode": 420}},
    {"name": "files", "secret": {"secretName": "s", "items": [{"key": "a", "path": "a"}, {"key": "b", "path": "b"}]}},
    {"name": "two", "downwardAPI": {"defaultMode": 256, "items": [
        {"path": name, "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}} for name in ("x", "y")
    ]}},
]  # fmt: skip


def test_volumes_with_one_invalid_change():
    spec = {"containers": [{**FIRST_STEP, "name": "c"}], "volumes": copy.deepcopy(MORE_VOLUMES)}
    for what in each_place(spec["volumes"]):
        if PARTS.passes(spec):
            assert spec_findings(spec) == [], what


def rest_findings(rest: Any) -> list[Any]:
    """Returns the errors of the rules; warnings apart from containers and volumes are computed in any case."""
    return spec_rules({"containers": [{**FIRST_STEP, "name": "c"}], **rest}, "p", "spec", passed=False)


@settings(max_examples=1500)
@given(changed(REST_OF_IT))
def test_other_fields_that_pass_are_valid(rest):
    if REST.passes(rest):
        assert rest_findings(rest) == []


def test_other_fields_with_one_invalid_change():
    rest = copy.deepcopy(REST_OF_IT)
    assert REST.passes(rest)
    for what in each_place(rest):
        if REST.passes(rest):
            assert rest_findings(rest) == [], what


def passes(containers: Any, volumes: Any = ()) -> bool:
    return PARTS.passes({"containers": containers, "volumes": list(volumes)})


def test_common_pods_pass():
    assert passes([CONTAINER], VOLUMES) and passes([{**FIRST_STEP, "name": "c"}])
    assert PARTS.passes({"volumes": VOLUMES, "initContainers": [], "containers": [CONTAINER, SECOND], "nodeName": "n"})
    assert PARTS.passes({"containers": [CONTAINER], "volumes": VOLUMES}), "whatever comes first"
    assert not passes([CONTAINER]), "mounts of volumes that are not there"
    assert not passes([]) and not passes(None) and not passes([1]) and not PARTS.passes({})


@pytest.mark.parametrize(
    ("request_", "limit", "passed"),
    [
        ("1", "1000m", True), ("1001m", "1", False), ("1Ki", "1024", True), ("1Ki", "1k", False), ("1Gi", "1G", False), ("1G", "1Gi", True),
        ("1Ti", "1T", False), ("1T", "1Ti", True), ("1Mi", "1M", False), ("0", "0", True), ("1", "1Ei", False),
        ("999999999999", "1Ti", True),
    ],
)  # fmt: skip
def test_quantities_are_compared_by_value(request_, limit, passed):
    container = {**FIRST_STEP, "resources": {"requests": {"cpu": request_}, "limits": {"cpu": limit}}}
    assert PARTS.passes({"containers": [container]}) is passed


AMOUNTS = st.dictionaries(
    st.sampled_from(["cpu", "memory", "x"]),
    st.sampled_from(["0", "1", "1000m", "1u", "2", "1Ki", "1024", "9Ei", "1e3", "999999999999", "-1"]),
)


@settings(max_examples=600)
@given(st.lists(st.fixed_dictionaries({}, optional={"limits": AMOUNTS, "requests": AMOUNTS}), max_size=3), st.integers(0, 3))
def test_quality_of_service_is_that_of_the_rules(resources, regular):
    containers = [{"resources": r} for r in resources]
    quick = quality_of_service(containers[:regular], containers[regular:])
    assert quick is None or quick == class_of(resources)


def test_quality_of_service_of_common_pods():
    half = {"resources": {"requests": {"cpu": "500m", "memory": "512Mi"}, "limits": {"cpu": "500m", "memory": "512Mi"}}}
    assert quality_of_service([half, half], None) == "Guaranteed"
    assert quality_of_service([half], [{}]) == "Burstable" and quality_of_service([{}], None) == "BestEffort"
    assert quality_of_service([{"resources": {"limits": {"cpu": "1u"}}}], None) is None


def test_an_unknown_field_is_left_to_the_rules():
    for common, check in ((SPEC, PARTS), (REST_OF_IT, REST)):
        doc = copy.deepcopy(common)
        for owner in [*(owner[key] for owner, key in places(doc)), doc]:
            if isinstance(owner, dict) and owner is not doc.get("nodeSelector") and not (check is PARTS and owner is doc):
                owner["new"] = "x"
                assert not check.passes(doc), owner
                del owner["new"]
