"""The quick check of containers and volumes never passes what the rules refuse or warn of, and passes common pods."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kas.admission.plugins.service_account import token_source
from kas.kinds.core.pod import scheduling
from kas.kinds.core.pod import warnings as podwarnings
from kas.kinds.core.pod._containers import quality_of_service
from kas.kinds.core.pod._quick import quick_containers, quick_tolerations, quick_volumes
from kas.kinds.core.pod.containers import PodFacts, init_containers, regular_containers
from kas.kinds.core.pod.strategy import class_of
from kas.kinds.core.pod.volumes import volumes as volume_rules

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

# What replaces a value somewhere in a common pod: names and paths gone wrong, numbers off their ranges, other shapes.
ODD = st.one_of(
    st.sampled_from([
        None, "", "a", "A", "-", "a-", "a--b", "a.b", "..", "../a", "a/../b", "a..b", "/a", " a ", "a=b", "é", "\ud800", "a" * 16,
        "a" * 64, "a" * 254, "80", "TCP", "http", "Always", "metadata.name", "CAP_SYS_ADMIN", "config", "token", "ca.crt", "namespace",
        "b", "b/c", "b/c/", "token/a",
        "A.b", ".a", "1", "0", "100m", "1500m", "2Ki", "1k", "1Mi", "65Mi", "1M", "1G", "9E", "1e3", "999999999999", "99999999Ti", "-1",
    ]),
    st.sampled_from([0, -1, 1, 2, 81, 599, 65535, 65536, 0o777, 0o1000, 1 << 31, 1 << 63, 1 << 70, True, False]),
    st.sampled_from([0, 1, 2, 3]).map(lambda i: [[], {}, ["a"], {"a": "b"}][i]),
    st.text(max_size=4), st.integers(),
)  # fmt: skip
KEYS = (
    "hostPort", "hostIP", "value", "valueFrom", "grpc", "exec", "sleep", "add", "privileged", "allowPrivilegeEscalation", "procMount",
    "nvidia.com/gpu", "hugepages-2Mi", "memory", "claims", "subPathExpr", "mountPropagation", "volumeDevices", "restartPolicy",
    "stopSignal", "terminationGracePeriodSeconds", "prefix", "localhostProfile", "gitRepo", "items", "mode", "path", "resizePolicy",
    "name", "resourceFieldRef", "sizeLimit", "ephemeral", "image", "serviceAccountToken", "secret", "fileKeyRef", "windowsOptions",
    "type", "lifecycle", "livenessProbe",
)  # fmt: skip


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every (dict or list, key or index) in a document."""
    pairs = list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else []
    return [place for key, below in pairs for place in [(value, key), *places(below)]]


@st.composite
def changed(draw: st.DrawFn, common: Any) -> Any:
    """The common document with up to three changes: a value replaced, one taken away, one copied from elsewhere, a field added."""
    doc = copy.deepcopy(common)
    for _ in range(draw(st.integers(1, 3))):
        there = places(doc)
        if not there:
            break
        owner, key = there[draw(st.integers(0, len(there) - 1))]
        what = draw(st.sampled_from(["odd", "drop", "copy", "add"]))
        if what == "odd":
            owner[key] = draw(ODD)
        elif what == "drop":
            del owner[key]
        elif what == "copy":
            source, at = there[draw(st.integers(0, len(there) - 1))]
            owner[key] = copy.deepcopy(source[at])
        elif isinstance(owner, dict):
            owner[draw(st.sampled_from(KEYS))] = draw(ODD)
    return doc


def container_findings(spec: Any, valid: dict[str, Any]) -> list[Any]:
    facts = PodFacts(valid, frozenset(), 30, "Always", True, None)
    regular, init = spec["containers"], spec["initContainers"]
    found: list[Any] = [*regular_containers(regular, facts, "c"), *init_containers(init, regular, facts, "i")]
    for container in regular + init:
        found += podwarnings._container_warnings(container, "c")
        if container["image"].strip() != container["image"]:
            found.append("padded")
    return found + list(podwarnings._port_warnings(spec, "s"))


@settings(max_examples=1500)
@given(changed({"containers": [CONTAINER, SECOND], "initContainers": [FIRST_STEP]}))
def test_containers_it_passes_are_valid(spec):
    valid = {v["name"]: v for v in VOLUMES}
    if quick_containers(spec.get("containers"), spec.get("initContainers"), valid):
        spec["initContainers"] = spec.get("initContainers") or []  # null is absent
        assert container_findings(spec, valid) == []


@settings(max_examples=1000)
@given(changed(VOLUMES))
def test_volumes_it_passes_are_valid(volumes):
    if quick_volumes(volumes):
        by_name, found = volume_rules(volumes, "pod", True, "v")
        assert found == [] and podwarnings._volume_warnings(volumes, "v") == []
        assert by_name == {v["name"]: v for v in volumes}


TOLERATIONS = [
    {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
    {"key": "node.kubernetes.io/disk-pressure", "operator": "Exists", "effect": "NoSchedule"},
]


@settings(max_examples=300)
@given(changed(TOLERATIONS))
def test_tolerations_it_passes_are_valid(items):
    if quick_tolerations(items):
        assert scheduling.tolerations(items, "t") == []


def test_common_pods_pass():
    valid = {v["name"]: v for v in VOLUMES}
    sidecar = {**FIRST_STEP, "name": "s", "restartPolicy": "Always", "livenessProbe": CONTAINER["livenessProbe"]}
    assert quick_volumes(VOLUMES) and quick_volumes([]) and quick_tolerations(TOLERATIONS)
    assert quick_containers([CONTAINER], None, valid) and quick_containers([CONTAINER, SECOND], [FIRST_STEP, sidecar], valid)
    assert quick_containers([CONTAINER], [], valid)
    assert not quick_containers([CONTAINER], None, {}), "mounts of volumes that are not there"
    assert not quick_containers([], None, valid) and not quick_containers(None, None, valid) and not quick_containers([1], None, valid)


@pytest.mark.parametrize(
    ("request_", "limit", "passes"),
    [
        ("1", "1000m", True), ("1001m", "1", False), ("1Ki", "1024", True), ("1Ki", "1k", False), ("1Gi", "1G", False), ("1G", "1Gi", True),
        ("1Ti", "1T", False), ("1T", "1Ti", True), ("1Mi", "1M", False), ("0", "0", True), ("1", "1Ei", False),
        ("999999999999", "1Ti", True),
    ],
)  # fmt: skip
def test_amounts_count_by_value(request_, limit, passes):
    container = {**FIRST_STEP, "resources": {"requests": {"cpu": request_}, "limits": {"cpu": limit}}}
    assert quick_containers([container], None, {}) is passes


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


def test_a_field_it_does_not_know_makes_it_look_again():
    valid = {v["name"]: v for v in VOLUMES}
    for common, passes in (
        ([CONTAINER], lambda doc: quick_containers(doc, None, valid)), (VOLUMES, quick_volumes), (TOLERATIONS, quick_tolerations),
    ):  # fmt: skip
        assert passes(common)
        for n in range(len(dicts(common))):
            doc = copy.deepcopy(common)
            dicts(doc)[n]["new"] = "x"
            assert not passes(doc), dicts(doc)[n]


def dicts(value: Any) -> list[dict[str, Any]]:
    below = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    return ([value] if isinstance(value, dict) else []) + [d for part in below for d in dicts(part)]
