"""Repeated fields, as Go reads them."""

from __future__ import annotations

import json

import pytest

from kas.types import repeated
from kas.types.repeated import read_repeated
from kas.types.scheme import DecodeError, builtin_kind, decode


@pytest.mark.parametrize("kind, text, read", [
    ("Secret", '{"metadata":{"name":"n"},"metadata":{"labels":{"a":"b"}}}', {"metadata": {"name": "n", "labels": {"a": "b"}}}),
    ("ConfigMap", '{"data":{"a":"1","b":"1"},"data":{"a":"2"}}', {"data": {"a": "2", "b": "1"}}),
    ("Namespace", '{"status":{"phase":"c","phase":null}}', {"status": {"phase": "c"}}),
    ("ConfigMap", '{"data":{"a":"1"},"data":null}', {"data": None}),
    ("ConfigMap", '{"immutable":true,"immutable":null}', {"immutable": None}),
    ("Pod", '{"spec":{"containers":[{"name":"a","image":"i"},{"name":"z"}],"containers":[{"name":"b"}]}}',
     {"spec": {"containers": [{"name": "b", "image": "i"}]}}),
    ("Pod", '{"spec":{"containers":[{"name":"a"}],"containers":[]}}', {"spec": {"containers": []}}),
    ("Pod", '{"x":[{"a":1,"a":2}],"x":{"b":1.5}}', {"x": {"b": 1.5}}),
])  # fmt: skip
def test_each_occurrence_is_merged_into_the_one_before(kind, text, read) -> None:
    assert read_repeated(builtin_kind("", "v1", kind).type, text.encode(), json.loads(text)) == read


@pytest.mark.parametrize("kind, text, why", [
    ("Pod", '{"metadata":{"name":"n","name":1},"metadata":{"name":"m"}}',
     "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.name of type string"),
    ("ConfigMap", '{"data":{"a":1,"a":"b"}}', "json: cannot unmarshal number into Go struct field ConfigMap.data of type string"),
    ("Pod", '{"spec":{"containers":[{"name":"c","name":"d"},{"name":[],"name":"e"}]}}',
     "json: cannot unmarshal array into Go struct field Container.spec.containers.name of type string"),
])  # fmt: skip
def test_every_occurrence_must_fit_its_type(kind, text, why) -> None:
    with pytest.raises(DecodeError) as caught:
        read_repeated(builtin_kind("", "v1", kind).type, text.encode(), json.loads(text))
    assert str(caught.value) == why


def test_many_repeats_are_read_once_each() -> None:
    text = '{"data":{' + ",".join(f'"k{i}":"v"' for i in range(2000)) + "}" + ',"data":{"a":"b"}' * 2000 + "}"
    type = builtin_kind("", "v1", "ConfigMap").type
    obj, _ = decode(type, read_repeated(type, text.encode(), {}))
    assert len(obj["data"]) == 2001


def test_a_repeat_deep_down_is_checked_without_its_parents(monkeypatch) -> None:
    crd = builtin_kind("apiextensions.k8s.io", "v1", "CustomResourceDefinition").type
    read: list[str] = []
    monkeypatch.setattr(repeated, "decode", lambda type, value: read.append(json.dumps(value)) or decode(type, value))

    def schema(innermost: str) -> bytes:
        chain = '{"not":' * 100 + innermost + "}" * 100
        return f'{{"spec":{{"versions":[{{}},{{"schema":{{"openAPIV3Schema":{chain}}}}}]}}}}'.encode()

    read_repeated(crd, schema('{"maxItems":1,"maxItems":2,"properties":{"p":{"maxItems":3},"p":{}},"not":{"maxItems":4},"not":{}}'), {})
    assert read == ['{"maxItems": 1}', '{"properties": {"p": {"maxItems": 3}}}', '{"not": {"maxItems": 4}}']
    with pytest.raises(DecodeError) as caught:
        read_repeated(crd, schema('{"title":1,"title":"b"}'), {})
    where = "JSONSchemaProps.spec.versions.schema.openAPIV3Schema." + "not." * 100 + "title"
    assert str(caught.value) == f"json: cannot unmarshal number into Go struct field {where} of type string"


def test_a_document_too_deep_to_parse_is_unchanged() -> None:
    text = '{"x":' * 100_000 + "1" + "}" * 100_000
    assert read_repeated(builtin_kind("", "v1", "ConfigMap").type, text.encode(), {"x": 1}) == {"x": 1}


def test_values_that_certainly_fit_are_not_decoded(monkeypatch) -> None:
    monkeypatch.setattr(repeated, "decode", lambda type, value: pytest.fail(f"{value} was decoded"))
    for kind, text in (
        ("ConfigMap", '{"data":{"a":"b","a":"c"},"data":null,"immutable":true,"immutable":false,"data":{},"u":1,"u":2}'),
        ("Pod", '{"spec":{"containers":[{"name":"a","args":["b"],"name":"c"}],"nodeSelector":{"a":"b"}},"spec":{},"spec":{"u":[]}}'),
    ):
        read_repeated(builtin_kind("", "v1", kind).type, text.encode(), {})


@pytest.mark.parametrize("wrong", [
    '"data":1', '"data":{"a":1}', '"data":{"a":[]}', '"data":[]', '"metadata":[]', '"metadata":{"name":1}', '"metadata":true',
    '"metadata":{"labels":{"a":true}}', '"metadata":{"finalizers":[1]}', '"metadata":{"finalizers":{}}', '"immutable":"a"',
    '"metadata":{"ownerReferences":["a"]}', '"metadata":{"ownerReferences":[{"blockOwnerDeletion":""}]}',
])  # fmt: skip
def test_values_that_do_not_fit_get_the_decoders_message(wrong) -> None:
    type = builtin_kind("", "v1", "ConfigMap").type
    with pytest.raises(DecodeError) as alone:
        decode(type, json.loads(f"{{{wrong}}}"))
    right = wrong.partition(":")[0] + ":null"
    with pytest.raises(DecodeError) as first:
        read_repeated(type, f"{{{wrong},{right}}}".encode(), {})
    assert str(first.value) == str(alone.value)
