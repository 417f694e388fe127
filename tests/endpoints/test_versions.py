"""A kind in several versions: written in one, stored in another, read in any."""

from __future__ import annotations

TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}
CPU = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}


def test_a_default_of_one_version_exists_in_the_other(client, namespace):
    """The CPU target of autoscaling/v1 is a metric of v2, in which it is stored. The creator of the object owns the default."""
    v1, v2 = (f"/apis/autoscaling/{v}/namespaces/{namespace}/horizontalpodautoscalers" for v in ("v1", "v2"))
    given = {"metadata": {"name": "h"}, "spec": {"scaleTargetRef": TARGET, "maxReplicas": 3}}
    code, made = client("POST", v1, given)
    assert code == 201 and made["spec"]["targetCPUUtilizationPercentage"] == 80, made
    assert "f:targetCPUUtilizationPercentage" in str(made["metadata"]["managedFields"])
    assert client("GET", f"{v1}/h")[1] == made
    assert client("GET", f"{v2}/h")[1]["spec"]["metrics"] == [CPU]
    code, patched = client("PATCH", f"{v1}/h", {"spec": {"targetCPUUtilizationPercentage": 50}}, "application/merge-patch+json")
    assert code == 200 and patched["spec"]["targetCPUUtilizationPercentage"] == 50
    code, back = client("PATCH", f"{v1}/h", {"spec": {"targetCPUUtilizationPercentage": None}}, "application/merge-patch+json")
    assert code == 200 and back["spec"]["targetCPUUtilizationPercentage"] == 80


def test_every_metric_of_v2_survives_v1(client, namespace):
    v1, v2 = (f"/apis/autoscaling/{v}/namespaces/{namespace}/horizontalpodautoscalers" for v in ("v1", "v2"))
    name = {"name": "m", "selector": {"matchLabels": {"a": "b"}}}
    metrics = [
        CPU,
        {"type": "Pods", "pods": {"metric": name, "target": {"type": "AverageValue", "averageValue": "5"}}},
        {"type": "Object", "object": {"describedObject": TARGET, "metric": name, "target": {"type": "Value", "value": "2"}}},
        {"type": "External", "external": {"metric": name, "target": {"type": "AverageValue", "averageValue": "7"}}},
        {"type": "ContainerResource", "containerResource": {
            "name": "memory", "container": "c", "target": {"type": "AverageValue", "averageValue": "1Mi"}}},
    ]  # fmt: skip
    spec = {"scaleTargetRef": TARGET, "maxReplicas": 3, "metrics": metrics}
    code, made = client("POST", v2, {"metadata": {"name": "m"}, "spec": spec})
    assert code == 201, made
    current = [
        {"type": "Pods", "pods": {"metric": name, "current": {"averageValue": "4"}}},
        {"type": "Object", "object": {"describedObject": TARGET, "metric": name, "current": {"value": "3"}}},
        {"type": "External", "external": {"metric": name, "current": {"value": "3"}}},
    ]
    code, made = client("PUT", f"{v2}/m/status", {**made, "status": {"desiredReplicas": 1, "currentMetrics": current}})
    assert code == 200, made
    code, shown = client("GET", f"{v1}/m")
    assert shown["spec"]["targetCPUUtilizationPercentage"] == 80
    code, body = client("PUT", f"{v1}/m", shown)
    assert code == 200, body
    back = client("GET", f"{v2}/m")[1]
    ordered = sorted(back["spec"]["metrics"], key=lambda m: metrics.index(m))
    assert ordered == metrics and back["status"]["currentMetrics"] == current


def test_unusable_annotations_are_ignored(client, namespace):
    v1, v2 = (f"/apis/autoscaling/{v}/namespaces/{namespace}/horizontalpodautoscalers" for v in ("v1", "v2"))
    kept = "autoscaling.alpha.kubernetes.io/"
    wrong = [
        '{"ScaleUp":5}', '{"ScaleUp":{"Policies":[5]}}', '{"ScaleUp":{"StabilizationWindowSeconds":"x"}}', '{"ScaleUp":{"Tolerance":{}}}',
        "[1]", "{", "null", '[{"type":5}]', '[{"type":"Resource","resource":{"targetAverageValue":"bogus"}}]',
    ]  # fmt: skip
    for part in ("metrics", "current-metrics", "conditions", "behavior"):
        for i, text in enumerate(wrong):
            meta = {"name": f"{part}-{i}", "annotations": {kept + part: text}}
            code, made = client("POST", v1, {"metadata": meta, "spec": {"scaleTargetRef": TARGET, "maxReplicas": 3}})
            assert code == 201, (part, text, made)
            shown = client("GET", f"{v2}/{part}-{i}")[1]
            assert shown["spec"]["metrics"] == [CPU] and "behavior" not in shown["spec"], (part, text)
    good = '{"ScaleUp":{"StabilizationWindowSeconds":5,"Policies":[{"Type":"Pods","Value":4,"PeriodSeconds":60}],"Nope":1}}'
    meta = {"name": "good", "annotations": {kept + "behavior": good}}
    assert client("POST", v1, {"metadata": meta, "spec": {"scaleTargetRef": TARGET, "maxReplicas": 3}})[0] == 201
    up = client("GET", f"{v2}/good")[1]["spec"]["behavior"]["scaleUp"]
    assert (up["stabilizationWindowSeconds"], up["policies"]) == (5, [{"type": "Pods", "value": 4, "periodSeconds": 60}])


def test_versions_to_be_removed_are_deprecated(kas_server, connect):
    """Beta kinds warn from the third release after theirs on, in every verb, also for their status."""
    client = connect(kas_server("--runtime-config=api/beta=true,api/alpha=true", "--feature-gates=AllAlpha=true,AllBeta=true"))
    beta = "resource.k8s.io/v1beta1 ResourceClaim is deprecated in v1.35+, unavailable in v1.38+"
    for path, warning in (
        ("/apis/resource.k8s.io/v1beta1/namespaces/default/resourceclaims", beta),
        ("/apis/resource.k8s.io/v1beta1/namespaces/default/resourceclaims/none/status", beta),
        ("/apis/storage.k8s.io/v1beta1/volumeattributesclasses",
         "storage.k8s.io/v1beta1 VolumeAttributesClass is deprecated in v1.34+, unavailable in v1.37+"),
        ("/apis/coordination.k8s.io/v1alpha2/leasecandidates", "coordination.k8s.io/v1alpha2 LeaseCandidate is deprecated in v1.35+"),
        ("/apis/resource.k8s.io/v1/namespaces/default/resourceclaims", None),
        ("/apis/storagemigration.k8s.io/v1beta1/storageversionmigrations", None),
    ):  # fmt: skip
        answer = client.raw("GET", path)
        assert answer.status_code in (200, 404)
        assert answer.headers.get("Warning") == (f'299 - "{warning}"' if warning else None), path
