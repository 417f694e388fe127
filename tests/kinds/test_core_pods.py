"""Pods through the write pipeline: what is stored, what is refused, what subresources may change."""

from __future__ import annotations

import copy

import pytest

from kas.config import features
from kas.kinds.core.pod import warnings as pod_warnings
from kas.kinds.core.pod.defaults import image_pull_policy
from kas.kinds.core.pod.qos import quality_of_service
from kas.kinds.core.pod.strategy import assign
from tests.kinds.helpers import create, pod, refused, resource, update

PODS = "v1/pods"
C0 = "spec.containers[0]."
EXEC = {"command": ["a"]}


def stored(**spec):
    return create(PODS, pod(**spec))[0]


def container(**more):
    return {"name": "c", "image": "nginx:1", **more}


def test_create_starts_pending_with_generation_one_and_defaults():
    got = stored()
    assert got["metadata"]["generation"] == 1
    assert got["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
    assert got["spec"]["enableServiceLinks"] is True
    assert got["spec"]["containers"][0]["imagePullPolicy"] == "IfNotPresent"


def test_requests_follow_limits_in_pods_only():
    limits = {"resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}
    got = stored(containers=[container(**limits)])
    assert got["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "1", "memory": "1Gi"}
    assert got["status"]["qosClass"] == "Guaranteed"


@pytest.mark.parametrize(
    "status,kept",
    [({"qosClass": "Burstable", "phase": "Running", "podIP": "10.0.0.1"}, "Burstable"), ({"qosClass": ""}, "BestEffort"),
     ({"qosClass": None}, "BestEffort"), ({"phase": "Running"}, "BestEffort"), (None, "BestEffort")],
)  # fmt: skip
def test_only_the_quality_of_service_of_a_created_status_is_kept(status, kept):
    got, _ = create(PODS, {**pod(), "status": status})
    assert got["status"] == {"phase": "Pending", "qosClass": kept}


@pytest.mark.parametrize(
    "image,policy",
    [("nginx", "Always"), ("nginx:latest", "Always"), ("nginx:1", "IfNotPresent"), ("host:5000/a/b", "Always"),
     ("a@sha256:" + "0" * 64, "IfNotPresent"), ("Not An Image", "IfNotPresent"), ("UPPER", "IfNotPresent")],
)  # fmt: skip
def test_image_pull_policy(image, policy):
    assert image_pull_policy(image) == policy


def test_scheduling_gate_leaves_a_condition():
    got = stored(schedulingGates=[{"name": "example.com/g"}])
    assert got["status"]["conditions"][0]["reason"] == "SchedulingGated"


@pytest.mark.parametrize("on", [True, False])
def test_label_keys_of_spread_constraints_follow_their_gate(on):
    constraint = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"x": "y"}}}
    body = pod(topologySpreadConstraints=[{**constraint, "matchLabelKeys": ["app"]}])
    body["metadata"]["labels"] = {"app": "web"}
    with features.DEFAULT.overridden(MatchLabelKeysInPodTopologySpread=on):
        (got,) = create(PODS, body)[0]["spec"]["topologySpreadConstraints"]
    assert got.get("matchLabelKeys") == (["app"] if on else None)
    assert ("matchExpressions" in got["labelSelector"]) is on


@pytest.mark.parametrize("on", [True, False])
def test_label_keys_of_spread_constraints_are_merged_with_a_gate_of_their_own(on):
    """Without it the selector may not contain them."""
    constraint = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "matchLabelKeys": ["app"]}
    body = pod(topologySpreadConstraints=[{**constraint, "labelSelector": {"matchLabels": {"x": "y"}}}])
    body["metadata"]["labels"] = {"app": "web"}
    named = {"matchExpressions": [{"key": "app", "operator": "In", "values": ["web"]}]}
    with features.DEFAULT.overridden(MatchLabelKeysInPodTopologySpreadSelectorMerge=on):
        got = create(PODS, copy.deepcopy(body))[0]["spec"]["topologySpreadConstraints"][0]
        assert got["labelSelector"] == {"matchLabels": {"x": "y"}, **(named if on else {})}
        body["spec"]["topologySpreadConstraints"][0]["labelSelector"] = named
        if on:
            del body["metadata"]["labels"]
            assert create(PODS, body)
        else:
            found = refused(create, PODS, body)
            assert found[0][0] == "spec.topologySpreadConstraints[0].matchLabelKeys[0]" and len(found) == 1


def test_match_label_keys_become_expressions():
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"x": "y"}}, "matchLabelKeys": ["app"]}
    body = pod(affinity={"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}})
    body["metadata"]["labels"] = {"app": "web"}
    got, _ = create(PODS, body)
    terms = got["spec"]["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert terms[0]["labelSelector"]["matchExpressions"] == [{"key": "app", "operator": "In", "values": ["web"]}]


@pytest.mark.parametrize(
    "spec,field",
    [
        ({"containers": []}, "spec.containers"),
        ({"containers": [container(image="")]}, "spec.containers[0].image"),
        ({"containers": [container(), container()]}, "spec.containers[1].name"),
        ({"containers": [container(ports=[{"containerPort": 0}])]}, C0 + "ports[0].containerPort"),
        ({"containers": [container(volumeMounts=[{"name": "v", "mountPath": "/a"}])]}, C0 + "volumeMounts[0].name"),
        ({"containers": [container(resources={"requests": {"cpu": "2"}, "limits": {"cpu": "1"}})]}, C0 + "resources.requests"),
        ({"containers": [container(livenessProbe={"successThreshold": 2, "exec": EXEC})]}, C0 + "livenessProbe.successThreshold"),
        ({"initContainers": [container(name="i", livenessProbe={"exec": EXEC})]}, "spec.initContainers[0].livenessProbe"),
        ({"volumes": [{"name": "v", "emptyDir": {}, "configMap": {"name": "c"}}]}, "spec.volumes[0].configMap"),
        ({"restartPolicy": "Sometimes"}, "spec.restartPolicy"),
        ({"dnsPolicy": "None"}, "spec.dnsConfig"),
        ({"tolerations": [{"key": "a", "tolerationSeconds": 1}]}, "spec.tolerations[0].effect"),
        ({"hostUsers": False, "hostNetwork": True}, "spec.hostNetwork"),
        ({"os": {"name": "windows"}, "securityContext": {"fsGroup": 1}}, "spec.securityContext.fsGroup"),
        ({"activeDeadlineSeconds": 0}, "spec.activeDeadlineSeconds"),
        ({"ephemeralContainers": [container(name="e")]}, "spec.ephemeralContainers"),
        ({"nodeName": "n", "schedulingGates": [{"name": "g"}]}, "spec.nodeName"),
    ],
)  # fmt: skip
def test_refused(spec, field):
    assert field in [where for where, _ in refused(create, PODS, pod(**spec))]


def test_update_may_change_images_and_add_tolerations():
    def change(obj):
        obj["spec"]["containers"][0]["image"] = "nginx:2"
        obj["spec"]["tolerations"] = [{"key": "a", "operator": "Exists"}]

    got, _ = update(PODS, stored(), change)
    assert got["metadata"]["generation"] == 2


def test_update_of_anything_else_shows_the_difference():
    def change(obj):
        obj["spec"]["schedulerName"] = "mine"

    ((where, message),) = refused(update, PODS, stored(), change)
    assert where == "spec"
    assert '- "SchedulerName": "default-scheduler",\n+ "SchedulerName": "mine",' in message


def test_update_never_touches_the_status():
    got, _ = update(PODS, stored(), lambda obj: obj["status"].update(phase="Running"))
    assert got["status"]["phase"] == "Pending"


def test_status_write_keeps_spec_and_refuses_another_class():
    def change(obj):
        obj["spec"]["nodeName"] = "n"
        obj["status"]["phase"] = "Running"

    got, _ = update(PODS, stored(), change, "status")
    assert got["status"]["phase"] == "Running"
    assert "nodeName" not in got["spec"]
    found = refused(update, PODS, stored(), lambda obj: obj["status"].update(qosClass="Burstable"), "status")
    assert found == [("status.qosClass", 'Invalid value: "Burstable": field is immutable')]


def test_ephemeral_containers_can_only_be_added():
    def add(obj):
        obj["spec"]["ephemeralContainers"] = [container(name="debug")]
        obj["spec"]["containers"][0]["image"] = "ignored:1"

    got, _ = update(PODS, stored(), add, "ephemeralcontainers")
    assert got["spec"]["containers"][0]["image"] == "nginx:1"
    assert got["metadata"]["generation"] == 2
    found = refused(update, PODS, got, lambda obj: obj["spec"].pop("ephemeralContainers"), "ephemeralcontainers")
    assert found[0][0] == "spec.ephemeralContainers"


def test_resize_changes_resources_within_the_class():
    old = stored(containers=[container(resources={"requests": {"cpu": "1"}})])

    def grow(obj):
        obj["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "2"
        obj["spec"]["containers"][0]["image"] = "ignored:1"

    got, _ = update(PODS, old, grow, "resize")
    assert got["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "2"}
    assert got["spec"]["containers"][0]["image"] == "nginx:1"

    def guarantee(obj):
        obj["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1", "memory": "1"}, "limits": {"cpu": "1", "memory": "1"}}

    assert "Pod QOS Class may not change" in str(refused(update, PODS, old, guarantee, "resize"))


def test_gated_pod_may_only_be_narrowed():
    old = stored(schedulingGates=[{"name": "g"}], nodeSelector={"a": "1"})
    got, _ = update(PODS, old, lambda obj: obj["spec"]["nodeSelector"].update(b="2"))
    assert got["spec"]["nodeSelector"] == {"a": "1", "b": "2"}
    found = refused(update, PODS, old, lambda obj: obj["spec"].update(nodeSelector={"b": "2"}))
    assert found[0][0] == "spec.nodeSelector"


def test_binding_assigns_the_node():
    target = {"metadata": {"name": "p", "annotations": {"x": "y"}}, "target": {"name": "node1"}}
    got = assign(stored(), target, "2024-01-02T03:04:05Z")
    assert got["spec"]["nodeName"] == "node1"
    assert got["metadata"]["annotations"] == {"x": "y"}
    assert got["metadata"]["generation"] == 1
    assert got["status"]["conditions"][-1]["status"] == "True"


@pytest.mark.parametrize(
    "requests,limits,expected",
    [({}, {}, "BestEffort"), ({"cpu": "1"}, {}, "Burstable"), ({"example.com/gpu": "1"}, {"example.com/gpu": "1"}, "BestEffort"),
     ({"cpu": "1", "memory": "1"}, {"cpu": "1000m", "memory": "1"}, "Guaranteed"), ({"cpu": "1"}, {"cpu": "1"}, "Burstable")],
)  # fmt: skip
def test_quality_of_service(requests, limits, expected):
    body = {"spec": {"containers": [{"resources": {"requests": requests, "limits": limits}}]}}
    assert quality_of_service(body) == expected


def test_warnings_of_doubtful_pods():
    ports = [{"name": "http", "containerPort": 80}]
    spec = {"containers": [container(ports=ports), container(name="d", ports=ports)], "nodeSelector": {"beta.kubernetes.io/os": "linux"}}
    _, warnings = create(PODS, pod(**spec))
    assert warnings[0] == 'spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use "kubernetes.io/os" instead'
    assert "spec.containers[1].ports[0]: duplicate port definition with spec.containers[0].ports[0]" in warnings


@pytest.mark.parametrize(
    "label,told",
    [
        ("beta.kubernetes.io/arch", 'deprecated since v1.14; use "kubernetes.io/arch" instead'),
        ("failure-domain.beta.kubernetes.io/zone", 'deprecated since v1.17; use "topology.kubernetes.io/zone" instead'),
        ("app.kubernetes.io/created-by", "deprecated since v1.9"),
        ("scheduler.alpha.kubernetes.io/preferAvoidPods", "deprecated since v1.22; use Taints and Tolerations instead"),
        ("node-role.kubernetes.io/master", 'use "node-role.kubernetes.io/control-plane" instead'),
    ],
)
def test_warnings_of_deprecated_node_labels(label, told):
    term = {"weight": 1, "preference": {"matchExpressions": [{"key": label, "operator": "Exists"}]}}
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}
    _, warnings = create(PODS, pod(affinity=affinity, nodeSelector={label: ""}))
    at = "spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].preference.matchExpressions[0].key"
    assert warnings == [f"spec.nodeSelector[{label}]: {told}", f"{at}: {label} is {told}"]


def test_a_negative_grace_period_warns_in_templates_only():
    stored, warnings = create(PODS, pod(terminationGracePeriodSeconds=-7))
    assert stored["spec"]["terminationGracePeriodSeconds"] == 1 and warnings == []
    stored, warnings = create("v1/podtemplates", {"metadata": {"name": "t"}, "template": pod(terminationGracePeriodSeconds=-7)})
    assert stored["template"]["spec"]["terminationGracePeriodSeconds"] == -7 and len(warnings) == 1


def test_graceful_deletion_period():
    from kas.registry.strategy import strategy_of

    strategy = strategy_of(resource(PODS))
    options: dict = {}
    assert strategy.check_graceful_delete(None, {"spec": {"terminationGracePeriodSeconds": 30}}, options)
    assert options == {"gracePeriodSeconds": 0}, "a pod without a node goes at once"
    options = {}
    strategy.check_graceful_delete(None, {"spec": {"terminationGracePeriodSeconds": 30, "nodeName": "n"}}, options)
    assert options == {"gracePeriodSeconds": 30}


@pytest.mark.parametrize(
    ("port", "told"),
    [
        (lambda i: {"containerPort": 1, "hostPort": 1 + i}, 0),
        (lambda i: {"containerPort": 1, "hostPort": 5, "hostIP": f"1.2.{i // 256}.{i % 256}"}, 0),
        (lambda i: {"containerPort": 1}, pod_warnings.MOST_WARNINGS),
    ],
)
def test_ports_are_compared_in_linear_time(monkeypatch, port, told):
    """60,000 ports with one number and different hostPorts kept a thread busy for an hour; equal ones caused warnings until memory ran
    out."""
    looks, address = [], pod_warnings._address
    monkeypatch.setattr(pod_warnings, "_address", lambda p: looks.append(0) or address(p))
    spec = {"containers": [{"ports": [port(i) for i in range(3000)]}]}
    assert len(pod_warnings.pod_warnings({}, spec, passed=False)) == told
    assert len(looks) < 5 * 3000


def test_files_are_compared_in_linear_time(monkeypatch):
    """10,000 files of one source and as many of another, without overlaps, kept a thread busy for more than a minute."""
    looks, merge = [], pod_warnings.merge
    monkeypatch.setattr(pod_warnings, "merge", lambda *lists, key: merge(*(looks.append(len(x)) or x for x in lists), key=key))
    items = [{"key": "k", "path": f"p{i}"} for i in range(2000)]
    below = [{"key": "k", "path": f"p{i}/x"} for i in range(0, 2000, 500)]
    sources = [{"secret": {"name": "s", "items": items}}, {"configMap": {"name": "c", "items": below}}]
    found = pod_warnings.pod_warnings({}, {"volumes": [{"name": "v", "projected": {"sources": sources}}]}, passed=False)
    assert len(found) == 4 and all("overlapping paths" in text for text in found)
    assert sum(looks) < 100


def test_overlapping_files_with_long_paths_take_little_memory():
    """Each compared part of a path takes 400 bytes, and each warning quotes two paths."""

    def warned(*paths: str) -> list[str]:
        items = [{"key": "k", "path": path} for path in paths]
        return pod_warnings.pod_warnings({}, {"volumes": [{"name": "v", "configMap": {"name": "c", "items": items}}]}, passed=False)

    assert len(warned("a/" + "b/" * (pod_warnings.MOST_PARTS // 2), "a")) == 1
    assert warned("a/" + "b/" * pod_warnings.MOST_PARTS, "a") == []
    most = pod_warnings.MOST_CHARACTERS
    assert most <= sum(map(len, warned("a/" + "b" * (most // 8), *["a"] * 100))) < most * 5 // 4
