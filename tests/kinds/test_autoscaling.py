"""HorizontalPodAutoscalers of both versions, stored as v2, and Scale."""

from __future__ import annotations

from kas.kinds.autoscaling.scale import validate_scale
from kas.registry import pipeline
from kas.types.scheme import encode_json
from tests.kinds.helpers import create, refused, resource, update

V1, V2 = "autoscaling/v1/horizontalpodautoscalers", "autoscaling/v2/horizontalpodautoscalers"
TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}


def autoscaler(**spec):
    return {"metadata": {"name": "h"}, "spec": {"scaleTargetRef": TARGET, "maxReplicas": 3, **spec}}


def fields(found):
    return [where for where, _ in found]


def test_a_version_one_request_is_stored_as_two_and_read_back():
    stored, _ = create(V1, autoscaler())
    assert stored["spec"]["metrics"][0]["resource"]["target"] == {"type": "Utilization", "averageUtilization": 80}
    shown = pipeline.from_storage(resource(V1), stored)
    assert shown["spec"]["targetCPUUtilizationPercentage"] == 80
    assert b'"targetCPUUtilizationPercentage":80' in encode_json(resource(V1).type, shown)


def test_behavior_is_filled_in_both_directions():
    stored, _ = create(V2, autoscaler(behavior={"scaleUp": {"stabilizationWindowSeconds": 5}}))
    behavior = stored["spec"]["behavior"]
    assert behavior["scaleUp"]["stabilizationWindowSeconds"] == 5 and len(behavior["scaleUp"]["policies"]) == 2
    assert behavior["scaleDown"]["selectPolicy"] == "Max"


def test_refused():
    assert fields(refused(create, V2, autoscaler(maxReplicas=0)))[0] == "spec.maxReplicas"
    text = "Invalid value: -1: must be greater than or equal to 1"
    assert refused(create, V2, autoscaler(maxReplicas=-1))[0] == ("spec.maxReplicas", text)
    assert fields(refused(create, V2, autoscaler(minReplicas=0)))[0] == "spec.minReplicas"
    assert fields(refused(create, V2, autoscaler(scaleTargetRef={"kind": "D", "name": "d", "apiVersion": "v1"}))) == [
        "spec.scaleTargetRef.apiVersion"
    ]
    metric = {"type": "Pods", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 1}}}
    assert fields(refused(create, V2, autoscaler(metrics=[metric]))) == ["spec.metrics[0].pods"]


def metric(kind, **source):
    key = kind[0].lower() + kind[1:]
    return {"type": kind, key: {"metric": {"name": "m"}, "target": {"type": "AverageValue", "averageValue": "1"}, **source}}


def test_the_api_version_of_references_is_validated():
    for version, kind in (("v1", "ReplicationController"), ("apps/v1", "D")):
        create(V2, autoscaler(scaleTargetRef={"kind": kind, "name": "d", "apiVersion": version}))
    create(V2, autoscaler(metrics=[metric("Object", describedObject={"kind": "Service", "name": "s", "apiVersion": "v1"})]))
    bad = autoscaler(metrics=[metric("Object", describedObject={"kind": "Service", "name": "s", "apiVersion": "a/b/c"})])
    where = "spec.metrics[0].object.describedObject.apiVersion"
    assert refused(create, V2, bad) == [(where, 'Invalid value: "a/b/c": unexpected GroupVersion string: a/b/c')]


def test_stored_references_are_not_validated_again():
    looked_at = {"kind": "Service", "name": "s", "apiVersion": "a/b/c"}
    stored, _ = create(V2, autoscaler(metrics=[metric("Object", describedObject={**looked_at, "apiVersion": "v1"})]))
    stored["spec"]["scaleTargetRef"] = {"kind": "D", "name": "d", "apiVersion": "v1"}
    stored["spec"]["metrics"][0]["object"]["describedObject"] = looked_at
    got, _ = update(V2, stored, lambda o: o["spec"]["scaleTargetRef"].update(name="e"))
    assert got["spec"]["scaleTargetRef"]["name"] == "e"
    found = refused(update, V2, stored, lambda o: o["spec"]["scaleTargetRef"].update(kind="E"))
    assert fields(found) == ["spec.scaleTargetRef.apiVersion"]


def test_metrics_of_containers_and_pods():
    def container(name, holder):
        return autoscaler(metrics=[metric("ContainerResource", name=name, container=holder)])

    at = "spec.metrics[0].containerResource"
    create(V2, container("cpu", "c"))
    assert refused(create, V2, container("cpu", "")) == [(f"{at}.container", "Required value: must specify a container")]
    assert fields(refused(create, V2, container("storage", "C"))) == [f"{at}.name", f"{at}.container"]
    none = autoscaler(metrics=[metric("Pods", target={"type": "AverageValue"})])
    text = "Required value: must specify a positive target averageValue"
    assert ("spec.metrics[0].pods.target.averageValue", text) in refused(create, V2, none)


def test_scale_is_not_negative():
    errs = validate_scale({"metadata": {"name": "d", "namespace": "n"}, "spec": {"replicas": -1}})
    assert [e.field for e in errs] == ["spec.replicas"]


def test_version_one_has_the_utilization_of_the_first_cpu_metric_alone():
    def cpu(**target):
        return {"type": "Resource", "resource": {"name": "cpu", "target": target}}

    used = cpu(type="Utilization", averageUtilization=50)
    for metrics, want in (
        ([used, cpu(type="Utilization", averageUtilization=60)], 50),
        ([cpu(type="AverageValue", averageValue="1"), used], None),
    ):
        stored, _ = create(V2, autoscaler(metrics=metrics))
        assert pipeline.from_storage(resource(V1), stored)["spec"].get("targetCPUUtilizationPercentage") == want
