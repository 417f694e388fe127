"""The PodGroupWorkloadExists plug-in alone."""

from __future__ import annotations

import pytest

from kas.admission.plugins import pod_group_workload_exists
from kas.config import features
from tests.admission.admission_fakes import Request, refused


def group(workload: str, template: str) -> dict[str, object]:
    reference = {"workload": {"workloadName": workload, "podGroupTemplateName": template}}
    return {"metadata": {"name": "g"}, "spec": {"podGroupTemplateRef": reference, "schedulingPolicy": {"basic": {}}}}


@pytest.fixture
def plugin(server):
    spec = {"podGroupTemplates": [{"name": "t"}]}
    server.add("scheduling.k8s.io", "workloads", {"metadata": {"name": "w", "namespace": "ns1"}, "spec": spec})
    gone = {"name": "gone", "namespace": "ns1", "deletionTimestamp": "2024-01-02T03:04:05Z"}
    server.add("scheduling.k8s.io", "workloads", {"metadata": gone, "spec": spec})
    with features.DEFAULT.overridden(GenericWorkload=True):
        yield server.plugin(pod_group_workload_exists)


def request(plugin, obj):
    return Request(plugin, group="scheduling.k8s.io", resource="podgroups", obj=obj)


@pytest.mark.parametrize("obj", [group("w", "t"), {"metadata": {"name": "g"}, "spec": {"schedulingPolicy": {"basic": {}}}}])
def test_accepted(plugin, obj):
    assert request(plugin, obj).run() == obj


@pytest.mark.parametrize(
    ("workload", "template", "why"),
    [
        ("x", "t", 'Workload "x" not found'),
        ("gone", "t", 'Workload "gone" is being deleted'),
        ("w", "u", 'PodGroupTemplate "u" not found in Workload "w"'),
    ],
)
def test_refused(plugin, workload, template, why):
    error = refused(request(plugin, group(workload, template)))
    assert (error.code, error.message) == (403, f'podgroups.scheduling.k8s.io "g" is forbidden: PodGroup rejected: {why}')


def test_without_the_gate(plugin):
    with features.DEFAULT.overridden(GenericWorkload=False):
        assert request(plugin, group("x", "t")).run()
