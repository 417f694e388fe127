"""The ExtendedResourceToleration plug-in alone."""

from __future__ import annotations

from kas.admission.plugins import extended_resource_toleration
from tests.admission.admission_fakes import Request, pod


def test_extended_resource_toleration(server):
    obj = pod(containers=[{"name": "c", "resources": {"requests": {"vendor.com/gpu": "1", "cpu": "1"}}}])
    out = Request(server.plugin(extended_resource_toleration), obj=obj).run()
    assert out["spec"]["tolerations"] == [{"key": "vendor.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
