"""The ExtendedResourceToleration plug-in alone."""

from __future__ import annotations

import pytest

from kas.admission.plugins import extended_resource_toleration
from tests.admission.admission_fakes import Request, pod


def test_extended_resource_toleration(server):
    obj = pod(containers=[{"name": "c", "resources": {"requests": {"vendor.com/gpu": "1", "cpu": "1"}}}])
    out = Request(server.plugin(extended_resource_toleration), obj=obj).run()
    assert out["spec"]["tolerations"] == [{"key": "vendor.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]


TAINTED = {"key": "vendor.com/gpu", "operator": "Exists", "effect": "NoSchedule"}


@pytest.mark.parametrize(("have", "then"), [
    ([TAINTED], [TAINTED]),
    ([TAINTED | {"tolerationSeconds": 5}], [TAINTED]),
    ([TAINTED, TAINTED | {"tolerationSeconds": 5}], [TAINTED, TAINTED]),
    ([TAINTED | {"effect": "NoExecute"}], [TAINTED | {"effect": "NoExecute"}, TAINTED]),
    ([TAINTED | {"operator": "Equal", "value": "x"}], [TAINTED | {"operator": "Equal", "value": "x"}, TAINTED]),
    ([{"operator": "Exists"}], [{"operator": "Exists"}, TAINTED]),
])  # fmt: skip
def test_the_same_toleration_is_replaced_and_others_stay(server, have, then):
    obj = pod(initContainers=[{"name": "c", "resources": {"requests": {"vendor.com/gpu": "1"}}}], tolerations=[dict(t) for t in have])
    assert Request(server.plugin(extended_resource_toleration), obj=obj).run()["spec"]["tolerations"] == then
