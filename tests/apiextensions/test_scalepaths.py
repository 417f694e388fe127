"""Where custom resources keep their replicas."""

from __future__ import annotations

import pytest

from kas.apiextensions import scalepaths

SCALE = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.selector"}


def test_values_at_paths():
    obj = {"spec": {"replicas": 3}, "status": {"selector": "a=b"}}
    assert scalepaths.value_at(obj, ".spec.replicas", int) == 3
    assert scalepaths.value_at(obj, ".status.replicas", int) is None
    assert scalepaths.errors(SCALE, obj) == []
    assert scalepaths.set_at(obj, ".spec.deep.er", 5)["spec"] == {"replicas": 3, "deep": {"er": 5}} and obj["spec"] == {"replicas": 3}


@pytest.mark.parametrize(("obj", "says"), [
    ({"spec": {"replicas": -1}}, ".spec.replicas: Invalid value: -1: should be a non-negative integer"),
    ({"spec": {"replicas": 2**31}}, ".spec.replicas: Invalid value: 2147483648: should be less than or equal to 2147483647"),
    ({"status": {"replicas": -1}}, ".status.replicas: Invalid value: -1: should be a non-negative integer"),
])  # fmt: skip
def test_replicas_that_no_scale_can_show(obj, says):
    assert [str(e) for e in scalepaths.errors(SCALE, obj)] == [says]


@pytest.mark.parametrize("obj", [{"spec": {"replicas": "3"}}, {"spec": 5}, {"spec": {"replicas": True}}])
def test_what_is_no_number_is_told(obj):
    with pytest.raises(scalepaths.PathError, match="accessor error"):
        scalepaths.value_at(obj, ".spec.replicas", int)
    assert [e.field for e in scalepaths.errors(SCALE, obj)] == [".spec.replicas"]
