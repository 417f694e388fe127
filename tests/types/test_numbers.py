"""Numbers of maps as Go's FromUnstructured converts them to integers."""

from __future__ import annotations

import pytest

from kas._codecs import go_numbers
from kas.types.scheme import BUILTIN

DEPLOYMENT = BUILTIN.kind("apps", "v1", "Deployment").type
CONFIG_MAP = BUILTIN.kind("", "v1", "ConfigMap").type


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        (3, 3), (3.0, 3), (-0.0, 0), (3.5, 3.5), (2**31 - 1, 2**31 - 1), (2**31, -(2**31)), (-(2**31) - 1, 2**31 - 1), (2**32 + 5, 5),
        (3e9, -1294967296), (2**63, 0), (1e300, 0), (True, True), (None, None), ("3", "3"),
    ],
)  # fmt: skip
def test_an_int32_keeps_its_lower_bits(given, taken):
    found = go_numbers(DEPLOYMENT, {"spec": {"replicas": given}})["spec"]["replicas"]
    assert (type(found), found) == (type(taken), taken)


@pytest.mark.parametrize(("given", "taken"), [(2**63 - 1, 2**63 - 1), (2**63, -(2**63)), (1e300, -(2**63)), (7.0, 7), (-(2**63), -(2**63))])
def test_an_int64_that_does_not_fit_becomes_the_smallest(given, taken):
    found = go_numbers(DEPLOYMENT, {"metadata": {"generation": given}})["metadata"]["generation"]
    assert (type(found), found) == (type(taken), taken)


def test_other_fields_drop_a_zero_fraction():
    assert repr(go_numbers(CONFIG_MAP, {"data": {"a": 1.0, "b": 1.5, "c": 1e21}})) == "{'data': {'a': 1, 'b': 1.5, 'c': 1e+21}}"


def test_the_document_is_unchanged_and_parts_without_such_numbers_are_shared():
    ports = [{"containerPort": 80}, {"containerPort": 81.0}]
    doc = {
        "spec": {"template": {"spec": {"containers": [{"ports": ports}, {"name": "b"}]}}},
        "metadata": {"labels": {"a": "b"}},
        "more": 1.0,
    }
    found = go_numbers(DEPLOYMENT, doc)
    containers = found["spec"]["template"]["spec"]["containers"]
    assert repr(containers[0]["ports"]) == "[{'containerPort': 80}, {'containerPort': 81}]" and repr(ports[1]["containerPort"]) == "81.0"
    assert containers[1] is doc["spec"]["template"]["spec"]["containers"][1] and found["metadata"] is doc["metadata"]
    assert repr(found["more"]) == "1.0"  # not a field: the decoder reports it
    assert go_numbers(DEPLOYMENT, found) is found
