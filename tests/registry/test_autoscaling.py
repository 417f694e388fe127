"""HorizontalPodAutoscalers of both versions, stored as v2, and Scale."""

from __future__ import annotations

from kas.api.scheme import encode_json
from kas.registry import pipeline
from kas.registry.autoscaling.scale import validate_scale
from tests.registry.helpers import create, refused, resource

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
    assert fields(refused(create, V2, autoscaler(minReplicas=0)))[0] == "spec.minReplicas"
    assert fields(refused(create, V2, autoscaler(scaleTargetRef={"kind": "D", "name": "d", "apiVersion": "v1"}))) == [
        "spec.scaleTargetRef.apiVersion"
    ]
    metric = {"type": "Pods", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 1}}}
    assert fields(refused(create, V2, autoscaler(metrics=[metric]))) == ["spec.metrics[0].pods"]


def test_scale_is_not_negative():
    errs = validate_scale({"metadata": {"name": "d", "namespace": "n"}, "spec": {"replicas": -1}})
    assert [e.field for e in errs] == ["spec.replicas"]
