"""The replica paths of custom resources."""

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
def test_replicas_beyond_the_range_of_a_scale(obj, says):
    assert [str(e) for e in scalepaths.errors(SCALE, obj)] == [says]


@pytest.mark.parametrize(("spec", "says"), [
    ({"replicas": "3"}, ".spec.replicas accessor error: 3 is of the type string, expected int64"),
    ({"replicas": True}, ".spec.replicas accessor error: true is of the type bool, expected int64"),
    ({"replicas": 1.5}, ".spec.replicas accessor error: 1.5 is of the type float64, expected int64"),
    ({"replicas": {"b": [1], "a": None}},
     ".spec.replicas accessor error: map[a:<nil> b:[1]] is of the type map[string]interface {}, expected int64"),
    ({"replicas": None}, ".spec.replicas accessor error: <nil> is of the type <nil>, expected int64"),
    (5, ".spec.replicas accessor error: 5 is of the type int64, expected map[string]interface{}"),
    ([5], ".spec.replicas accessor error: [5] is of the type []interface {}, expected map[string]interface{}"),
])  # fmt: skip
def test_a_value_that_is_not_a_number_is_reported(spec, says):
    with pytest.raises(scalepaths.PathError) as e:
        scalepaths.value_at({"spec": spec}, ".spec.replicas", int)
    assert str(e.value) == says
    assert [e.field for e in scalepaths.errors(SCALE, {"spec": spec})] == [".spec.replicas"]
