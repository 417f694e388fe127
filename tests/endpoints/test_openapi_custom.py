"""OpenAPI of custom resources: generated from a definition as apiextensions-apiserver 1.36.4 does."""

from __future__ import annotations

import pytest

from kas.endpoints.openapi.custom import describe, structural_v2
from kas.endpoints.openapi.operations import operations, version_operations
from tests.endpoints.customs import definition, version

PRESERVE = "x-kubernetes-preserve-unknown-fields"


@pytest.mark.parametrize(
    ("schema", "left"),
    [
        ({"type": "object", PRESERVE: True, "properties": {"a": {"type": "string"}}}, {PRESERVE: True}),
        ({"type": "array", PRESERVE: True, "items": {"type": "string"}}, {PRESERVE: True}),
        ({"type": "string", PRESERVE: True}, {"type": "string", PRESERVE: True}),
        (
            {"type": "object", "additionalProperties": {"type": "string", "nullable": True}, "required": ["a"]},
            {"type": "object", "additionalProperties": {}},
        ),
    ],
)
def test_schemas_in_v2(schema, left):
    assert structural_v2(schema) == left


def test_lists_name_the_selectable_fields_too():
    crd = definition("example.com", {**version(spec={"a": {"type": "string"}}), "selectableFields": [{"jsonPath": ".spec.a"}]})
    _, found = describe(crd)
    assert [schema.get("x-kubernetes-selectable-fields") for schema in found.values()] == [[{"fieldPath": "spec.a"}]] * 2


@pytest.mark.parametrize(
    ("group", "tag", "id"),
    [
        ("cert-manager.io", "certManagerIo_v1", "listCertManagerIoV1NamespacedWidget"),
        ("a-b.c.k8s.io", "aBC_v1", "listABCV1NamespacedWidget"), ("3d.example.com", "DExampleCom_v1", "listDExampleComV1NamespacedWidget"),
        ("x.2go.io", "x2goIo_v1", "listX2goIoV1NamespacedWidget"),
    ],
)  # fmt: skip
def test_operation_ids_have_letters_and_digits_only(group, tag, id):
    served, _ = describe(definition(group))
    found = {o.path: o for o in operations(served[0]) if o.method == "get"}
    listed = found[f"/apis/{group}/v1/namespaces/{{namespace}}/widgets"]
    assert (listed.tag, listed.id) == (tag, id)
    assert [o.tag for o in version_operations(group, "v1")] == [tag]


def test_every_operation_but_patch_takes_json_and_yaml():
    served, _ = describe(definition("example.com"))
    for o in operations(served[0]):
        assert (o.consumes == ("application/json", "application/yaml")) is (o.method != "patch"), o.path
