"""The JobValidation plug-in alone."""

from __future__ import annotations

import pytest

from kas.admission.plugins import job_validation
from kas.config import features
from tests.admission.admission_fakes import Request, refused


def job(parallelism: int, **pod_spec: object) -> dict[str, object]:
    meta = {"name": "j", "namespace": "ns1", "uid": "uid-j"}
    return {"metadata": meta, "spec": {"parallelism": parallelism, "template": {"spec": pod_spec}}}


@pytest.fixture
def plugin(server):
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "uid-j", "controller": True}
    for name, policy, owners in (("gang", {"gang": {"minCount": 2}}, []), ("basic", {"basic": {}}, []), ("own", {"gang": {}}, [owner])):
        meta = {"name": name, "namespace": "ns1", "ownerReferences": owners}
        server.add("scheduling.k8s.io", "podgroups", {"metadata": meta, "spec": {"schedulingPolicy": policy}})
    with features.DEFAULT.overridden(GenericWorkload=True):
        yield server.plugin(job_validation)


def request(plugin, old, new):
    return Request(plugin, operation="UPDATE", group="batch", resource="jobs", obj=new, old=old)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (job(1, schedulingGroup={"podGroupName": "gang"}), job(1, schedulingGroup={"podGroupName": "gang"})),
        (job(1, schedulingGroup={"podGroupName": "basic"}), job(2, schedulingGroup={"podGroupName": "basic"})),
        (job(1, schedulingGroup={"podGroupName": "none"}), job(2, schedulingGroup={"podGroupName": "none"})),
    ],
)
def test_valid_jobs(plugin, old, new):
    assert request(plugin, old, new).run() == new


@pytest.mark.parametrize(("spec", "name"), [({"schedulingGroup": {"podGroupName": "gang"}}, "gang"), ({}, "own")])
def test_the_parallelism_of_a_gang_is_immutable(plugin, spec, name):
    error = refused(request(plugin, job(1, **spec), job(2, **spec)))
    said = f'cannot change parallelism for a Job referencing gang-scheduled PodGroup "{name}"'
    assert (error.code, error.message) == (403, f'jobs.batch "j" is forbidden: {said}')


def test_without_the_gate(plugin):
    with features.DEFAULT.overridden(GenericWorkload=False):
        assert request(plugin, job(1), job(2)).run()
