"""Conversions keep, in both directions, what the other version can express."""

from __future__ import annotations

import json

import pytest

from kas.types.conversion import convert
from kas.types.scheme import BUILTIN, decode, encode_json

META = {"name": "x", "uid": "u", "creationTimestamp": "2024-01-02T03:04:05Z"}


def typed(group: str, version: str, kind: str, **fields) -> dict:
    record = BUILTIN.kind(group, version, kind)
    obj, unknown = decode(record.type, {"kind": kind, "apiVersion": record.api_version, "metadata": META, **fields})
    assert unknown == []
    return obj


def there_and_back(obj: dict, group: str, one: str, other: str) -> dict:
    before = json.dumps(obj)
    there = convert(obj, group, one, other, obj["kind"])
    assert json.dumps(obj) == before, "the source was changed"
    assert there["apiVersion"] == f"{group}/{other}"
    assert BUILTIN.kind(group, other, obj["kind"]) is not None
    encode_json(BUILTIN.kind(group, other, obj["kind"]).type, there)
    back, own = convert(there, group, other, one, obj["kind"]), BUILTIN.kind(group, one, obj["kind"]).type
    assert encode_json(own, back) == encode_json(own, obj)
    return there


def test_multi_version_resources_all_convert():
    for resource in BUILTIN.resources:
        storage = resource.storage_gvk
        if storage and storage[:2] != (resource.group, resource.version):
            obj, _ = decode(resource.type, {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": META})
            stored = convert(obj, (resource.group, resource.version, resource.kind), storage)
            back = convert(stored, storage, (resource.group, resource.version, resource.kind))
            assert encode_json(resource.type, back) == encode_json(resource.type, obj), resource


SPEC = {"scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"}, "minReplicas": 1, "maxReplicas": 3}
POLICY = {"type": "Pods", "value": 4, "periodSeconds": 15}
METRICS = [
    {"type": "Resource", "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}}},
    {"type": "Pods",
     "pods": {"metric": {"name": "p", "selector": {"matchLabels": {"a": "b"}}}, "target": {"type": "AverageValue", "averageValue": "5"}}},
    {"type": "Object",
     "object": {"describedObject": {"kind": "Ingress", "name": "i"}, "metric": {"name": "o"}, "target": {"type": "Value", "value": "2k"}}},
    {"type": "External", "external": {"metric": {"name": "e"}, "target": {"type": "AverageValue", "averageValue": "30"}}},
    {"type": "ContainerResource",
     "containerResource": {"name": "cpu", "container": "c", "target": {"type": "Utilization", "averageUtilization": 50}}},
    {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}}},
]  # fmt: skip


KEPT = "autoscaling.alpha.kubernetes.io/"


def test_autoscaler_v2_is_kept_in_annotations_of_v1():
    behavior = {"scaleUp": {"stabilizationWindowSeconds": 0, "selectPolicy": "Max", "policies": [POLICY]}}
    current = [{"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 7, "averageValue": "70m"}}}]
    conditions = [{"type": "AbleToScale", "status": "True", "lastTransitionTime": "2024-01-02T03:04:05Z"}]
    obj = typed("autoscaling", "v2", "HorizontalPodAutoscaler", spec={**SPEC, "metrics": METRICS, "behavior": behavior},
                status={"desiredReplicas": 1, "currentMetrics": current, "conditions": conditions})  # fmt: skip
    v1 = there_and_back(obj, "autoscaling", "v2", "v1")
    assert v1["spec"]["targetCPUUtilizationPercentage"] == 60
    assert v1["status"]["currentCPUUtilizationPercentage"] == 7
    annotations = v1["metadata"]["annotations"]
    assert json.loads(annotations["autoscaling.alpha.kubernetes.io/metrics"])[0] == {
        "type": "Resource", "resource": {"name": "memory", "targetAverageValue": "1Gi"}}  # fmt: skip
    assert annotations["autoscaling.alpha.kubernetes.io/behavior"] == (
        '{"ScaleUp":{"StabilizationWindowSeconds":0,"SelectPolicy":"Max","Policies":[{"Type":"Pods","Value":4,"PeriodSeconds":15}],'
        '"Tolerance":null},"ScaleDown":null}'
    )


def test_an_object_metric_with_an_average_survives_v1():
    source = {"describedObject": {"kind": "Ingress", "name": "i"}, "metric": {"name": "o"}}
    metric = {"type": "Object", "object": {**source, "target": {"type": "AverageValue", "averageValue": "5"}}}
    obj = typed("autoscaling", "v2", "HorizontalPodAutoscaler", spec={**SPEC, "metrics": [metric]})
    there_and_back(obj, "autoscaling", "v2", "v1")


def test_autoscaler_v1_loses_forged_annotations():
    forged = {**META, "annotations": {KEPT + "metrics": "not json", KEPT + "scale-up-tolerance": "1", "mine": "kept"}}
    obj, _ = decode(BUILTIN.kind("autoscaling", "v1", "HorizontalPodAutoscaler").type, {"metadata": forged, "spec": SPEC})
    v2 = convert(obj, "autoscaling", "v1", "v2", "HorizontalPodAutoscaler")
    assert v2["metadata"]["annotations"] == {"mine": "kept"}
    assert "metrics" not in v2["spec"]


def test_events():
    obj = typed("events.k8s.io", "v1", "Event", note="n", reason="r", eventTime="2024-01-02T03:04:05.000006Z", reportingController="c",
                regarding={"kind": "Pod", "name": "p"}, deprecatedCount=3)  # fmt: skip
    core = convert(obj, ("events.k8s.io", "v1", "Event"), ("", "v1", "Event"))
    assert (core["apiVersion"], core["message"], core["involvedObject"], core["count"]) == ("v1", "n", {"kind": "Pod", "name": "p"}, 3)
    assert core["reportingComponent"] == "c"
    assert convert(core, ("", "v1", "Event"), ("events.k8s.io", "v1", "Event")) == obj


def test_resource_claims_of_v1beta1():
    selectors = [{"cel": {"expression": "true"}}]
    request = {"name": "r", "deviceClassName": "c", "allocationMode": "ExactCount", "count": 2, "selectors": selectors}
    request |= {"adminAccess": False, "capacity": {}}
    either = {"name": "s", "firstAvailable": [{"name": "a", "deviceClassName": "c"}]}
    obj = typed("resource.k8s.io", "v1beta1", "ResourceClaim", spec={"devices": {"requests": [request, either]}})
    v1 = there_and_back(obj, "resource.k8s.io", "v1beta1", "v1")
    first = v1["spec"]["devices"]["requests"][0]
    assert first["exactly"]["deviceClassName"] == "c"
    assert "deviceClassName" not in first
    template = typed("resource.k8s.io", "v1beta1", "ResourceClaimTemplate", spec={"spec": {"devices": {"requests": [request]}}})
    there_and_back(template, "resource.k8s.io", "v1beta1", "v1beta2")


def test_resource_slices_of_v1beta1():
    device = {"name": "d", "basic": {"attributes": {"a": {"string": "x"}}, "capacity": {"m": {"value": "1Gi"}}}}
    obj = typed("resource.k8s.io", "v1beta1", "ResourceSlice", spec={"driver": "d", "nodeName": "n", "devices": [device],
                "pool": {"name": "p", "resourceSliceCount": 1, "generation": 1}})  # fmt: skip
    v1 = there_and_back(obj, "resource.k8s.io", "v1beta1", "v1")
    assert v1["spec"]["devices"][0]["attributes"] == {"a": {"string": "x"}}


@pytest.mark.parametrize("same", [True, False])
def test_custom_resource_definitions(same):
    def version(name: str, storage: bool, kind: str) -> dict:
        columns = [{"name": "c", "type": "string", "jsonPath": ".x"}]
        schema = {"openAPIV3Schema": {"type": "object", "description": kind}}
        return {"name": name, "served": True, "storage": storage, "schema": schema, "additionalPrinterColumns": columns}

    client = {"service": {"namespace": "n", "name": "s", "port": 443}}
    spec = {
        "group": "g.io", "scope": "Namespaced", "names": {"plural": "ws", "kind": "W"},
        "versions": [version("v1", True, "a"), version("v2", False, "a" if same else "b")],
        "conversion": {"strategy": "Webhook", "webhook": {"clientConfig": client, "conversionReviewVersions": ["v1"]}},
    }  # fmt: skip
    obj = typed("apiextensions.k8s.io", "v1", "CustomResourceDefinition", spec=spec)
    old = there_and_back(obj, "apiextensions.k8s.io", "v1", "v1beta1")
    assert ("validation" in old["spec"]) is same
    assert old["spec"]["additionalPrinterColumns"] == [{"name": "c", "type": "string", "JSONPath": ".x"}]
    assert old["spec"]["version"] == "v1"


def test_lists_convert_their_items():
    item = typed("autoscaling", "v1", "HorizontalPodAutoscaler", spec=SPEC)
    whole = {"kind": "HorizontalPodAutoscalerList", "apiVersion": "autoscaling/v1", "metadata": {}, "items": [item]}
    out = convert(whole, "autoscaling", "v1", "v2", "HorizontalPodAutoscalerList")
    assert out["items"][0]["apiVersion"] == "autoscaling/v2"


def test_unrelated_kinds_do_not_convert():
    with pytest.raises(LookupError):
        convert({"kind": "Pod"}, ("", "v1", "Pod"), ("apps", "v1", "Deployment"))
