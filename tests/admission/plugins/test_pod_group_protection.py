"""The PodGroupProtection plug-in alone."""

from __future__ import annotations

import pytest

from kas.admission.plugins import pod_group_protection
from kas.config import features
from tests.admission.admission_fakes import Request

OURS = pod_group_protection.FINALIZER


@pytest.mark.parametrize(
    ("gate", "have", "then"),
    [(True, {}, [OURS]), (True, {"finalizers": ["a/b"]}, ["a/b", OURS]), (True, {"finalizers": [OURS]}, [OURS]), (False, {}, None)],
)
def test_finalizers(server, gate, have, then):
    obj = {"metadata": {"name": "g", **have}, "spec": {}}
    with features.DEFAULT.overridden(GenericWorkload=gate):
        out = Request(server.plugin(pod_group_protection), group="scheduling.k8s.io", resource="podgroups", obj=obj).run()
    assert out["metadata"].get("finalizers") == then
