"""The usage of objects for quotas, evaluator by evaluator."""

from __future__ import annotations

from typing import Any

from kas.admission.quota_usage import Evaluators
from kas.config import features
from tests.admission.admission_fakes import FakeServer, pod


def usage(server: FakeServer, group: str, resource: str, obj: dict[str, Any]) -> dict[str, str]:
    found = Evaluators(server.registries, server.registries).of(group, resource).usage(obj)
    return {name: str(amount) for name, amount in sorted(found.items())}


def container(name: str = "c", **requests: str) -> dict[str, Any]:
    return {"name": name, "resources": {"requests": requests}}


def test_an_overdue_pod_counts_as_an_object_only(server):
    stuck = pod()
    stuck["metadata"] |= {"deletionTimestamp": "2020-01-01T00:00:00Z", "deletionGracePeriodSeconds": 30}
    assert usage(server, "", "pods", stuck) == {"count/pods": "1"}
    stuck["metadata"]["deletionTimestamp"] = "2999-01-01T00:00:00Z"
    assert usage(server, "", "pods", stuck) == {"count/pods": "1", "pods": "1"}


def test_a_running_container_counts_its_allocated_resources(server):
    running = pod(containers=[container(cpu="1")])
    state = {"name": "c", "resources": {"requests": {"cpu": "3"}}, "allocatedResources": {"cpu": "2"}}
    running["status"] = {"containerStatuses": [state]}
    assert usage(server, "", "pods", running)["requests.cpu"] == "3"
    running["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "8"
    assert usage(server, "", "pods", running)["requests.cpu"] == "8"
    running["status"]["conditions"] = [{"type": "PodResizePending", "reason": "Infeasible"}]
    assert usage(server, "", "pods", running)["requests.cpu"] == "3"


def test_pod_level_resources_replace_required_ones_of_containers(server):
    pods = Evaluators(server.registries, server.registries).of("", "pods")
    whole = pod(resources={"requests": {"memory": "1Gi"}})
    assert pods.constraints(["requests.cpu", "limits.memory"], whole) == ""
    assert pods.constraints(["requests.cpu"], pod()) == "must specify requests.cpu for: c"


def test_devices_count_as_extended_resources_too(server, monkeypatch):
    for name, extended in (("gpu", "example.com/gpu"), ("nic", None)):
        spec = {"extendedResourceName": extended} if extended else {}
        server.add("resource.k8s.io", "deviceclasses", {"metadata": {"name": name}, "spec": spec})
    claims = Evaluators(server.registries, server.registries).of("resource.k8s.io", "resourceclaims")
    implicit = "requests.deviceclass.resource.kubernetes.io/"
    hard = ["requests.example.com/gpu", f"{implicit}gpu", f"{implicit}nic", f"{implicit}no", "requests.example.com/no", "requests.cpu"]
    assert claims.matching(hard) == hard[:3]

    def request(name: str, cls: str, count: int) -> dict[str, Any]:
        return {"name": name, "exactly": {"deviceClassName": cls, "allocationMode": "ExactCount", "count": count}}

    owner = {"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "uid-a", "controller": True}
    meta = {"name": "k", "namespace": "ns1", "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"}}
    claim = {"metadata": meta, "spec": {"devices": {"requests": [request("x", "gpu", 2), request("y", "nic", 1)]}}}
    everything = {
        "count/resourceclaims.resource.k8s.io": "1", "gpu.deviceclass.resource.k8s.io/devices": "2",
        "nic.deviceclass.resource.k8s.io/devices": "1", f"{implicit}gpu": "2", f"{implicit}nic": "1", "requests.example.com/gpu": "2",
    }  # fmt: skip
    assert usage(server, "resource.k8s.io", "resourceclaims", claim) == everything
    with features.DEFAULT.overridden(DRAExtendedResource=False):
        assert claims.matching([*hard, "gpu.deviceclass.resource.k8s.io/devices"]) == ["gpu.deviceclass.resource.k8s.io/devices"]
        assert set(usage(server, "resource.k8s.io", "resourceclaims", claim)) == set(list(everything)[:3])
    # The pod that the claim was made for has counted its request already.
    server.add("", "pods", pod(containers=[container(**{"example.com/gpu": "2", "deviceclass.resource.kubernetes.io/nic": "1"})]))
    meta["ownerReferences"] = [owner]
    left = {name: n for name, n in everything.items() if name not in ("requests.example.com/gpu", f"{implicit}nic")}
    assert usage(server, "resource.k8s.io", "resourceclaims", claim) == left
    # Except for one claim only, which is found without reading all claims for each pod.
    monkeypatch.setattr(server.registries, "list", None)
    server.add("resource.k8s.io", "resourceclaims", {"metadata": {**meta, "name": "i", "namespace": "ns2"}, "spec": claim["spec"]})
    assert usage(server, "resource.k8s.io", "resourceclaims", claim) == left
    first = {"metadata": {**meta, "name": "j"}, "spec": claim["spec"]}
    server.add("resource.k8s.io", "resourceclaims", first)
    assert usage(server, "resource.k8s.io", "resourceclaims", claim) == everything


def test_the_legacy_annotation_names_a_claims_class_even_when_it_is_empty(server):
    claim: dict[str, Any] = {"metadata": {"name": "c"}, "spec": {"storageClassName": "s", "resources": {"requests": {"storage": "1Gi"}}}}
    assert usage(server, "", "persistentvolumeclaims", claim)["s.storageclass.storage.k8s.io/requests.storage"] == "1Gi"
    claim["metadata"]["annotations"] = {"volume.beta.kubernetes.io/storage-class": ""}
    assert set(usage(server, "", "persistentvolumeclaims", claim)) == {
        "count/persistentvolumeclaims", "persistentvolumeclaims", "requests.storage",
    }  # fmt: skip
