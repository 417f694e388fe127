"""Fields of feature gates that are off are dropped, unless the stored object uses them."""

from __future__ import annotations

import copy

import pytest

from kas.config import features
from kas.registry.gated import GatedFields


def dropped(kind: tuple[str, str, str], obj, old=None, status: bool = False, **gates: bool):
    given, before = copy.deepcopy(obj), copy.deepcopy(old)
    with features.DEFAULT.overridden(**gates):
        GatedFields(*kind).drop(given, old, status)
    assert old == before, "what is stored is not touched"
    return given


POD = ("", "v1", "Pod")


def pod(**spec):
    return {"spec": {"containers": [{"name": "a"}], **spec}}


def test_a_field_follows_its_gate():
    obj = pod(hostnameOverride="x")
    assert dropped(POD, obj, HostnameOverride=False) == pod()
    assert dropped(POD, obj, HostnameOverride=True) == obj
    assert dropped(POD, obj, pod(hostnameOverride="y"), HostnameOverride=False) == obj
    assert dropped(POD, obj, pod(), HostnameOverride=False) == pod()


def test_fields_of_lists_are_dropped_if_unused_before():
    one, other = {"name": "a", "lifecycle": {"stopSignal": "SIGHUP"}}, {"name": "b", "lifecycle": {"stopSignal": "X", "preStop": {}}}
    obj = {"spec": {"containers": [one, other]}}
    without = {"spec": {"containers": [{"name": "a"}, {"name": "b", "lifecycle": {"preStop": {}}}]}}
    assert dropped(POD, obj) == without
    assert dropped(POD, obj, ContainerStopSignals=True) == obj
    used = {"spec": {"containers": [{"name": "z"}], "initContainers": [{"name": "i", "lifecycle": {"stopSignal": "SIGHUP"}}]}}
    assert dropped(POD, obj, used) == obj


def test_fields_of_maps_follow_their_gate():
    kind = ("resource.k8s.io", "v1", "ResourceSlice")
    obj = {"spec": {"devices": [{"name": "d", "attributes": {"a": {"ints": [1]}, "b": {"int": 1}}}]}}
    assert dropped(kind, obj) == {"spec": {"devices": [{"name": "d", "attributes": {"a": {}, "b": {"int": 1}}}]}}
    assert dropped(kind, obj, DRAListTypeAttributes=True) == obj


def test_nested_fields_with_different_gates():
    kind = ("resource.k8s.io", "v1", "ResourceClaim")
    one = {"name": "a", "tolerations": [{"operator": "Exists"}], "capacity": {"requests": {"c": "1"}}}
    obj = {"spec": {"devices": {"requests": [{"name": "r", "firstAvailable": [one]}]}}}

    def first(**gates: bool):
        return dropped(kind, obj, **gates)["spec"]["devices"]["requests"][0].get("firstAvailable")

    assert first() == [one]
    assert first(DRADeviceTaints=False) == [{"name": "a", "capacity": one["capacity"]}]
    assert first(DRADeviceTaints=False, DRAConsumableCapacity=False) == [{"name": "a"}]
    assert first(DRADeviceTaints=False, DRAPrioritizedList=False) is None
    told = {"status": {"devices": [{"driver": "d", "shareID": "x"}]}}
    assert dropped(kind, told, None, True, DRAConsumableCapacity=False) == {"status": {"devices": [{"driver": "d"}]}}
    resources = [{"resourceID": "i", "message": "m"}]
    health = {"status": {"containerStatuses": [{"allocatedResourcesStatus": [{"name": "n", "resources": resources}]}]}}
    got = dropped(POD, health, None, True, ResourceHealthStatusMessage=False)
    assert got["status"]["containerStatuses"][0]["allocatedResourcesStatus"][0]["resources"] == [{"resourceID": "i"}]


def test_the_health_of_resources_is_dropped_even_if_stored():
    told = {"status": {"containerStatuses": [{"name": "c", "allocatedResourcesStatus": [{"name": "n"}]}]}}
    assert dropped(POD, told, told, True, ResourceHealthStatus=False) == {"status": {"containerStatuses": [{"name": "c"}]}}


def test_restart_policies_follow_their_gate_except_those_of_sidecars():
    containers = [{"name": name, "restartPolicy": name} for name in ("Always", "Never")]
    obj = {"spec": {"initContainers": containers, "containers": containers}}
    bare = [{"name": name} for name in ("Always", "Never")]
    assert dropped(POD, obj, ContainerRestartRules=False) == {"spec": {"initContainers": [containers[0], bare[1]], "containers": bare}}
    sidecar = {"spec": {"initContainers": containers[:1]}}
    assert dropped(POD, obj, sidecar, ContainerRestartRules=False) != obj
    assert dropped(POD, obj, {"spec": {"initContainers": containers}}, ContainerRestartRules=False) == obj


def test_all_gates_of_a_field_must_be_on():
    kind = ("resource.k8s.io", "v1", "ResourceSlice")
    obj = {"spec": {"devices": [{"name": "d", "bindsToNode": True}]}}
    assert dropped(kind, obj) == obj
    for gate in ("DRADeviceBindingConditions", "DRAResourceClaimDeviceStatus"):
        assert dropped(kind, obj, **{gate: False}) == {"spec": {"devices": [{"name": "d"}]}}


@pytest.mark.parametrize("version", ["v1", "v1beta1", "v1beta2"])
def test_allocation_results_are_kept_except_binding_conditions(version):
    """Tolerations and allocation times: their gates apply to requests."""
    result = {"request": "r", "device": "d", "tolerations": [{"operator": "Exists"}], "bindingConditions": ["c"]}
    obj = {"status": {"allocation": {"allocationTimestamp": "2026-01-01T00:00:00Z", "devices": {"results": [result]}}}}
    got = dropped(("resource.k8s.io", version, "ResourceClaim"), obj, None, True, DRADeviceTaints=False, DRADeviceBindingConditions=False)
    del result["bindingConditions"]
    assert got == obj


def test_status_fields_are_checked_in_status_writes():
    obj = {"spec": {"hostnameOverride": "x"}, "status": {"resize": "x", "extendedResourceClaimStatus": {"resourceClaimName": "c"}}}
    off = {"DRAExtendedResource": False, "HostnameOverride": False}
    assert dropped(POD, obj, None, True, **off) == {"spec": {"hostnameOverride": "x"}, "status": {"resize": "x"}}
    assert dropped(POD, obj, None, False, **off) == {"spec": {}, "status": obj["status"]}


def test_status_fields_may_follow_the_stored_spec():
    claim = ("resource.k8s.io", "v1", "ResourceClaim")
    told = {"allocation": {"devices": {"results": [{"request": "r", "shareID": "x", "consumedCapacity": {"c": "1"}}]}}}
    asked = {"devices": {"requests": [{"name": "r", "exactly": {"capacity": {"requests": {"c": "1"}}}}]}}
    obj = {"spec": asked, "status": told}
    assert dropped(claim, obj, {"spec": asked}, True, DRAConsumableCapacity=False) == obj
    bare = {"allocation": {"devices": {"results": [{"request": "r"}]}}}
    assert dropped(claim, obj, {"spec": {}}, True, DRAConsumableCapacity=False) == {"spec": asked, "status": bare}
    group = ("scheduling.k8s.io", "v1alpha2", "PodGroup")
    claims = {"status": {"resourceClaimStatuses": [{"name": "a"}]}}
    assert dropped(group, claims, {"spec": {"resourceClaims": [{"name": "a"}]}}, True) == claims
    assert dropped(group, claims, {"spec": {}}, True) == {"status": {}}
    # And not the reverse.
    assert dropped(claim, {"spec": asked}, {"status": told}, False, DRAConsumableCapacity=False) != {"spec": asked}


@pytest.mark.parametrize("kind", ["Deployment", "ReplicaSet"])
def test_terminating_replicas_follow_their_gate(kind):
    obj = {"status": {"replicas": 2, "terminatingReplicas": 1}}
    assert dropped(("apps", "v1", kind), obj, {"status": {}}, True) == obj
    off = {"DeploymentReplicaSetTerminatingReplicas": False}
    assert dropped(("apps", "v1", kind), obj, {"status": {}}, True, **off) == {"status": {"replicas": 2}}
    assert dropped(("apps", "v1", kind), obj, {"status": {"terminatingReplicas": 0}}, True, **off) == obj


def test_values_shared_with_the_stored_object_are_copied():
    shared = [{"name": "a", "env": [{"name": "E", "valueFrom": {"fileKeyRef": {"key": "k"}}}]}]
    old = {"spec": {"containers": [{"name": "a"}]}}
    obj = {"spec": {"containers": shared}}
    with features.DEFAULT.overridden(EnvFiles=False):
        GatedFields(*POD).drop(obj, old)
    assert obj["spec"]["containers"][0]["env"] == [{"name": "E", "valueFrom": {}}]
    assert shared[0]["env"][0]["valueFrom"] == {"fileKeyRef": {"key": "k"}}


@pytest.mark.parametrize("kind", sorted(features.gated_fields()))
def test_every_row_of_the_table_can_be_dropped(kind):
    for path, gates in features.gated_fields()[kind]:
        value: object = {"x": 1}
        for step in reversed(path):
            value = [value] if step == "[]" else {"key": value} if step == "{}" else "x" if step[0] == "!" else {step: value}
        on = dict.fromkeys(gates, True)
        group, version, name = kind.split("/")
        status = path[0] == "status"
        assert dropped((group, version, name), value, None, status, **on) == value
        for gate in gates:
            assert dropped((group, version, name), value, None, status, **{**on, gate: False}) != value


FIELDS = [
    ("DRAPartitionableDevices", ("resource.k8s.io", "v1", "ResourceSlice"), "spec.sharedCounters", [{"name": "c"}]),
    ("DRAPartitionableDevices", ("resource.k8s.io", "v1", "ResourceSlice"), "spec.perDeviceNodeSelection", True),
    ("HPAConfigurableTolerance", ("autoscaling", "v2", "HorizontalPodAutoscaler"), "spec.behavior.scaleUp.tolerance", "100m"),
    ("HPAConfigurableTolerance", ("autoscaling", "v2", "HorizontalPodAutoscaler"), "spec.behavior.scaleDown.tolerance", "100m"),
    ("MaxUnavailableStatefulSet", ("apps", "v1", "StatefulSet"), "spec.updateStrategy.rollingUpdate.maxUnavailable", 2),
    ("VolumeLimitScaling", ("storage.k8s.io", "v1", "CSIDriver"), "spec.preventPodSchedulingIfMissing", True),
]


@pytest.mark.parametrize(("gate", "kind", "path", "value"), FIELDS)
def test_single_fields_follow_their_gates(gate, kind, path, value):
    *parents, last = path.split(".")

    def holding(**fields):
        for name in reversed(parents):
            fields = {name: fields}
        return fields

    obj, without = holding(**{last: value, "other": 1}), holding(other=1)
    assert dropped(kind, obj, **{gate: True}) == obj
    assert dropped(kind, obj, **{gate: False}) == dropped(kind, obj, without, **{gate: False}) == without
    assert dropped(kind, obj, obj, **{gate: False}) == obj


@pytest.mark.parametrize(
    ("kind", "stored", "added"),
    [
        (("coordination.k8s.io", "v1", "Lease"), {"preferredHolder": "a"}, {"strategy": "OldestEmulationVersion"}),
        (("coordination.k8s.io", "v1", "Lease"), {"strategy": "OldestEmulationVersion"}, {"preferredHolder": "a"}),
        (("scheduling.k8s.io", "v1alpha2", "PodGroup"), {"disruptionMode": "Pod"}, {"priority": 5, "priorityClassName": "high"}),
        (("scheduling.k8s.io", "v1alpha2", "PodGroup"), {"priority": 5}, {"disruptionMode": "Pod"}),
    ],
)
def test_a_stored_field_does_not_keep_others_where_each_is_dropped_alone(kind, stored, added):
    assert dropped(kind, {"spec": stored | added}, {"spec": stored}) == {"spec": stored}


def test_each_gated_field_of_the_templates_of_a_workload_is_dropped_alone():
    def workload(**template):
        return {"spec": {"podGroupTemplates": [{"name": "a", **template}]}}

    kind = ("scheduling.k8s.io", "v1alpha2", "Workload")
    assert dropped(kind, workload(priority=5, disruptionMode="Pod"), workload(priority=5)) == workload(priority=5)


def test_observed_generations_follow_their_gate():
    kind, gate = ("apiextensions.k8s.io", "v1", "CustomResourceDefinition"), "CRDObservedGenerationTracking"
    condition = {"type": "Established", "status": "True"}
    obj = {"status": {"observedGeneration": 3, "conditions": [{**condition, "observedGeneration": 3}]}}
    assert dropped(kind, obj, None, True, **{gate: True}) == obj
    assert dropped(kind, obj, {"status": {}}, True, **{gate: False}) == {"status": {"conditions": [condition]}}
    assert dropped(kind, obj, obj, True, **{gate: False}) == obj
