"""Errors of CustomResourceDefinitions that cannot be decoded: messages of apiextensions-apiserver 1.36.4."""

from __future__ import annotations

import pytest

from kas.types.scheme import DecodeError, builtin_kind, decode
from kas.types.unstructured import conversion_error

CRD = builtin_kind("apiextensions.k8s.io", "v1", "CustomResourceDefinition").type
PLACE = "JSONSchemaProps.spec.versions.schema.openAPIV3Schema"


def crd(schema: dict) -> dict:
    return {"spec": {"versions": [{"schema": {"openAPIV3Schema": schema}}]}}


def refused(schema: dict) -> DecodeError:
    with pytest.raises(DecodeError) as caught:
        decode(CRD, crd(schema))
    return caught.value


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"items": {"type": 1}}, f"number into Go struct field {PLACE}.items.type of type string"),
        ({"properties": {"a": {"items": {"additionalProperties": {"required": "x"}}}}},
         f"string into Go struct field {PLACE}.properties.items.additionalProperties.required of type []string"),
        ({"items": {"x-kubernetes-validations": [{"rule": 1}]}},
         f"number into Go struct field {PLACE}.items.x-kubernetes-validations.rule of type string"),
        ({"items": [1]}, f"number into Go struct field {PLACE}.items of type v1.JSONSchemaProps"),
        ({"dependencies": {"a": [1]}}, f"number into Go struct field {PLACE}.dependencies of type string"),
        ({"definitions": []}, f"array into Go struct field {PLACE}.definitions of type v1.JSONSchemaDefinitions"),
        ({"dependencies": 1}, f"number into Go struct field {PLACE}.dependencies of type v1.JSONSchemaDependencies"),
        ({"x-kubernetes-validations": "x"}, f"string into Go struct field {PLACE}.x-kubernetes-validations of type v1.ValidationRules"),
        ({"$schema": 1}, f"number into Go struct field {PLACE}.$schema of type v1.JSONSchemaURL"),
    ],
)  # fmt: skip
def test_invalid_schemas(schema, text):
    assert str(refused(schema)) == f"json: cannot unmarshal {text}"


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"items": {"required": [True]}}, "json: cannot unmarshal bool into Go struct field JSONSchemaProps.required of type string"),
        ({"properties": {"a": {"items": {"not": {"items": {"type": 1}}}}}},
         "json: cannot unmarshal number into Go struct field JSONSchemaProps.not.items.type of type string"),
        ({"required": "x"}, "cannot restore slice from string"),
    ],
)  # fmt: skip
def test_invalid_schemas_in_a_strategic_merge_patch(schema, text):
    assert conversion_error(CRD, refused(schema)) == text


def test_unknown_fields_below_a_map_without_its_keys():
    schema = {"properties": {"a": {"properties": {"b": {"nobody": 1}}}}}
    place = "spec.versions[0].schema.openAPIV3Schema.properties"
    assert decode(CRD, crd(schema))[1] == [f'unknown field "{place}.a.properties.b.nobody"']
    assert decode(CRD, crd(schema), keyless=True)[1] == [f'unknown field "{place}.properties.nobody"']
