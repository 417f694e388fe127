"""Equality by type: the effect of pointers, lists, quantities, times and raw JSON on differences in the text."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kas.meta.equality import semantic_equal
from kas.types.scheme import BUILTIN, Field, TypeDesc, decode, encode_protobuf, schema_type

CRDS = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1."
META = "io.k8s.apimachinery.pkg.apis.meta.v1."


@pytest.mark.parametrize(
    ("type", "a", "b", "same"),
    [
        ("core.v1.ResourceRequirements", {"limits": {"memory": "1Ki"}}, {"limits": {"memory": "1024"}}, True),
        ("core.v1.ResourceRequirements", {"limits": {"memory": "1Ki"}}, {"limits": {"memory": "1000"}}, False),
        ("core.v1.ResourceRequirements", {"limits": {"cpu": "0"}}, {"limits": {}}, False),
        ("core.v1.ResourceRequirements", {"limits": {}}, {}, True),
        ("core.v1.EmptyDirVolumeSource", {"sizeLimit": "0"}, {}, False),
        ("core.v1.VolumeSource", {"emptyDir": {}}, {}, False),
        ("core.v1.VolumeSource", {"emptyDir": {}}, {"emptyDir": {"medium": ""}}, True),
        ("core.v1.Container", {"name": "c", "resources": {}}, {"name": "c"}, True),
        ("core.v1.Container", {"name": "c", "resources": {"claims": []}}, {"name": "c"}, True),
        ("core.v1.Container", {"securityContext": {}}, {}, False),
        ("core.v1.Container", {"env": []}, {"tty": False}, True),
        ("core.v1.Container", {"args": ["a", "b"]}, {"args": ["b", "a"]}, False),
        ("core.v1.ContainerPort", {"hostPort": 0}, {}, True),
        ("core.v1.HTTPGetAction", {"port": 1}, {"port": "1"}, False),
        ("core.v1.HTTPGetAction", {"port": 0}, {}, True),
        ("core.v1.HTTPGetAction", {"port": ""}, {}, False),
        ("core.v1.PodSpec", {"nodeSelector": {"a": ""}}, {"nodeSelector": {}}, False),
        ("core.v1.PodSpec", {"nodeSelector": {"a": ""}}, {"nodeSelector": {"b": ""}}, False),
        ("core.v1.Secret", {"data": {"a": ""}}, {"data": {"a": None}}, True),
        ("apps.v1.DeploymentSpec", {"replicas": 0}, {}, False),
        ("core.v1.ContainerStateRunning", {"startedAt": "2024-01-02T03:04:05Z"}, {"startedAt": "2024-01-02T04:04:05+01:00"}, True),
        ("core.v1.ContainerStateRunning", {"startedAt": None}, {}, True),
        ("core.v1.ContainerStateRunning", {"startedAt": "2024-01-02T03:04:05Z"}, {}, False),
        ("core.v1.Event", {"eventTime": "2024-01-02T03:04:05.100000Z"}, {"eventTime": "2024-01-02T04:04:05.100000+01:00"}, True),
        ("apps.v1.ControllerRevision", {"data": {"a": 1}}, {"data": {"a": True}}, False),
        ("apps.v1.ControllerRevision", {"data": {"a": []}}, {"data": {}}, False),
        ("apps.v1.ControllerRevision", {"data": {"a": [1]}}, {"data": {"a": [1]}}, True),
        ("authorization.v1.SubjectAccessReviewSpec", {"extra": {"a": ["b"]}}, {"extra": {"a": ["c"]}}, False),
        (CRDS + "JSONSchemaProps", {"items": {"enum": [1]}}, {"items": {"enum": [True]}}, False),
        (CRDS + "JSONSchemaProps", {"items": {"required": []}}, {"items": {}}, True),
        (CRDS + "JSONSchemaProps", {"items": [{"title": ""}]}, {"items": [{}]}, True),
        (CRDS + "JSONSchemaProps", {"additionalProperties": False}, {"additionalProperties": True}, False),
        (CRDS + "JSONSchemaProps", {"default": False}, {"default": 0}, False),
    ],
)  # fmt: skip
def test_by_type(type: str, a: Any, b: Any, same: bool):
    of = BUILTIN.type(type)
    assert semantic_equal(a, b, of) is semantic_equal(b, a, of) is same


def test_a_field_knows_whether_absence_is_significant():
    pointer, value = BUILTIN.field("apps.v1.DeploymentSpec", "selector"), BUILTIN.field("apps.v1.DeploymentSpec", "strategy")
    assert not semantic_equal(None, {}, pointer)
    assert semantic_equal(None, {}, value)
    assert semantic_equal(None, [], BUILTIN.field("core.v1.PodSpec", "volumes"))
    assert semantic_equal(None, "", BUILTIN.field("core.v1.PodSpec", "nodeName"))
    assert semantic_equal(None, {}, BUILTIN.type("core.v1.PodSpec"))


def test_objects_of_custom_resources_are_compared_however_deep_they_are():
    """A patch of one was a panic."""
    of = schema_type("t", {"type": "object", "x-kubernetes-preserve-unknown-fields": True})

    def nested(value: Any) -> Any:
        for _ in range(400):
            value = {"a": [value]}
        return {"spec": value}

    assert semantic_equal(nested(1), nested(1), of) and not semantic_equal(nested(1), nested(2), of)


def test_custom_resources_are_compared_by_value():
    of = schema_type("t", {"type": "object", "properties": {"n": {"type": "integer"}, "l": {"type": "array", "items": {"type": "string"}}}})
    assert semantic_equal({"n": 1}, {"n": 1}, of)
    assert not semantic_equal({"n": 1}, {"n": 1.0}, of)
    assert not semantic_equal({"l": []}, {}, of)


# -- values with one wire form are equal, others are not ------------------------------------------------------------------

VALUES = {
    "string": st.sampled_from(["", "a", "b"]), "bytes": st.sampled_from(["", "YQ=="]), "bool": st.booleans(),
    "int32": st.integers(0, 2), "int64": st.integers(0, 2), "double": st.sampled_from([0.0, 1.5]),
    "Quantity": st.sampled_from(["0", "1", "1Ki", "1024", "500m"]), "IntOrString": st.sampled_from([0, 1, "", "1"]),
    "Time": st.sampled_from([None, "2024-01-02T03:04:05Z"]), "MicroTime": st.sampled_from([None, "2024-01-02T03:04:05.000000Z"]),
    "Duration": st.sampled_from(["0s", "1m0s"]), "RawExtension": st.sampled_from([{"a": 1}, {"a": [1]}]),
}  # fmt: skip


def _element(f: Field, depth: int) -> st.SearchStrategy[Any]:
    if f.message is None:
        return VALUES[f.type]
    return VALUES[f.message.kind_name] if f.message.kind_name in VALUES else _object(f.message, depth - 1)


def _value(f: Field, depth: int) -> st.SearchStrategy[Any]:
    element = _element(f, depth)
    if f.card == "list":
        return st.lists(element, max_size=2)
    return st.dictionaries(st.sampled_from("ab"), element, max_size=2) if f.card == "map" else element


def _object(type: TypeDesc, depth: int) -> st.SearchStrategy[dict[str, Any]]:
    fields = [f for f in type.json_fields if f.name != "managedFields" and not f.type_meta] if depth > 0 else []
    if not fields:
        return st.just({})
    some = st.lists(st.sampled_from(fields), max_size=3, unique_by=lambda f: f.name)
    return some.flatmap(lambda chosen: st.fixed_dictionaries({f.name: _value(f, depth) for f in chosen}))


def _amounts_alike(value: Any) -> Any:
    """Replaces both notations that ``VALUES`` has for a quantity by one, wherever quantities occur."""
    if isinstance(value, dict):
        return {k: _amounts_alike(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_amounts_alike(v) for v in value]
    return "1024" if value == "1Ki" else value


@pytest.mark.parametrize("name", ["core.v1.PodSpec", "core.v1.Service", "apps.v1.StatefulSetSpec", "core.v1.Event", "batch.v1.JobSpec"])
def test_equal_objects_have_the_same_protobuf(name: str):
    """Protobuf writes what is set and no more: nil and empty lists are alike, zero values are written, pointers are written if set.

    Not kind and apiVersion, which the envelope has.
    """
    type = BUILTIN.type(name)

    def wire(obj: dict[str, Any]) -> bytes:
        typed = _amounts_alike(decode(type, copy.deepcopy(obj))[0])
        return encode_protobuf(type, typed)

    @settings(max_examples=150, deadline=None)
    @given(st.data())
    def check(data: st.DataObject) -> None:
        a = data.draw(_object(type, 4))
        b = copy.deepcopy(a)
        at = data.draw(st.sampled_from([f for f in type.json_fields if not f.type_meta]))
        b[at.name] = data.draw(_value(at, 4))
        if data.draw(st.booleans()):
            a[at.name] = data.draw(_value(at, 4))
        left, right = (decode(type, copy.deepcopy(obj))[0] for obj in (a, b))
        assert semantic_equal(left, right, type) is (wire(a) == wire(b))
        assert semantic_equal(left, copy.deepcopy(left), type)

    check()
