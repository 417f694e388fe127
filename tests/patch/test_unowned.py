"""Configurations that are applied without managed fields."""

from __future__ import annotations

import pytest

from kas.patch.fieldmanager import UnfitError, apply_unowned, builtin


def test_merging():
    schema = builtin("", "v1", "Pod")
    live = {"metadata": {"name": "a", "labels": {"x": "y"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    config = {"metadata": {"labels": {"z": "w"}}, "spec": {"containers": [{"name": "d", "image": "j"}, {"name": "c", "image": "k"}]}}
    merged = apply_unowned(schema, live, config)
    assert merged["metadata"] == {"name": "a", "labels": {"x": "y", "z": "w"}}
    assert {c["name"]: c["image"] for c in merged["spec"]["containers"]} == {"c": "k", "d": "j"}
    assert live["spec"]["containers"] == [{"name": "c", "image": "i"}]


@pytest.mark.parametrize(("config", "says"), [
    ({"spec": {"tolerations": []}}, "may not mutate atomic arrays, maps or structs: .spec.tolerations"),
    ({"spec": {"nodeSelector": {"a": "b"}, "tolerations": []}}, "structs: .spec.nodeSelector, .spec.tolerations"),
    ({"spec": {"nobody": 1}}, ".spec.nobody: field not declared in schema"),
    ({"spec": 1}, ".spec: expected map"),
])  # fmt: skip
def test_configurations_that_do_not_fit_are_refused(config, says):
    with pytest.raises(UnfitError) as e:
        apply_unowned(builtin("", "v1", "Pod"), {"metadata": {"name": "a"}}, config)
    assert says in str(e.value)
