"""decode, encode_json, protobuf: what is checked, dropped, filled and refused."""

from __future__ import annotations

import calendar
import contextlib
import json
import math
from collections.abc import Iterator

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kas import _codecs
from kas.meta import quantity, scalars
from kas.types.conversion import convert
from kas.types.scheme import (
    BUILTIN,
    DecodeError,
    EncodeError,
    decode,
    decode_plain,
    decode_protobuf,
    default,
    encode_json,
    encode_json_split,
    encode_protobuf,
    envelope,
    envelope_head,
    open_envelope,
    pretty_json,
    protobuf_list,
    transcode_json_to_protobuf,
    write_json,
    zero,
)
from tests.types.protobufs import field

POD = BUILTIN.kind("", "v1", "Pod").type
CONFIG_MAP = BUILTIN.kind("", "v1", "ConfigMap").type
DEPLOYMENT = BUILTIN.kind("apps", "v1", "Deployment").type
CRD = BUILTIN.kind("apiextensions.k8s.io", "v1", "CustomResourceDefinition").type
META = {"name": "a", "creationTimestamp": "2024-01-02T03:04:05Z"}


def canonical(type, obj) -> str:
    return encode_json(type, decode(type, obj)[0]).decode()


def refusal(type, obj, raw=None) -> str:
    with pytest.raises(DecodeError) as caught:
        decode(type, obj, raw)
    return str(caught.value)


@pytest.fixture
def looked_at() -> Iterator[list[str]]:
    """Returns the times that the fast check does not find canonical."""
    found: list[str] = []

    def time(text: str) -> str | None:
        found.append(text)
        return scalars.canonical_time(text)

    _codecs.install_scalars(quantity.canonical, time, scalars.canonical_micro_time, scalars.canonical_duration)
    yield found
    _codecs.install_scalars(quantity.canonical, scalars.canonical_time, scalars.canonical_micro_time, scalars.canonical_duration)


@pytest.mark.parametrize("year", [1900, 2000, 2023, 2024])
def test_valid_dates_are_canonical_in_the_fast_check_and_others_are_not(year: int, looked_at: list[str]) -> None:
    for month in range(14):
        for day in range(33):
            text, real = f"{year}-{month:02d}-{day:02d}T23:59:59Z", 1 <= month <= 12 and 1 <= day <= calendar.monthrange(year, month)[1]
            with contextlib.nullcontext() if real else pytest.raises(DecodeError, match="out of range"):
                assert decode(POD, {"metadata": {"creationTimestamp": text}})[0]["metadata"]["creationTimestamp"] == text
            assert looked_at == [] if real else looked_at == [text]
            looked_at.clear()


def test_zero_values_are_filled_in_and_omitempty_fields_dropped():
    obj = {"metadata": {"name": "a", "labels": {}, "generateName": ""}, "spec": {"containers": [{"name": "x", "ports": [{"hostPort": 0}]}]}}
    typed, unknown = decode(POD, obj)
    assert unknown == []
    assert typed["metadata"] == {"name": "a", "labels": {}}
    assert canonical(POD, obj).startswith('{"metadata":{"name":"a"},')
    assert typed["status"] == {}
    assert typed["spec"]["containers"] == [{"name": "x", "ports": [{"containerPort": 0}], "resources": {}}]


def test_empty_lists_and_maps_differ_from_absent_ones():
    obj = {"metadata": {"labels": {}, "annotations": None}, "spec": {"containers": None, "volumes": [], "nodeSelector": {}}}
    for typed in (decode(POD, obj)[0], decode_plain(POD, orjson.dumps(obj))):
        assert typed["metadata"] == {"labels": {}}
        assert typed["spec"] == {"volumes": [], "nodeSelector": {}}
        assert encode_json(POD, typed) == b'{"metadata":{},"spec":{"containers":null},"status":{}}'


def test_pointers_keep_a_zero():
    assert '"replicas":0' in canonical(DEPLOYMENT, {"spec": {"replicas": 0}})
    assert '"minReadySeconds"' not in canonical(DEPLOYMENT, {"spec": {"minReadySeconds": 0}})


def test_null_lists_are_written_as_null_and_are_absent_when_typed():
    typed, _ = decode(POD, {"spec": {"containers": None}})
    assert "containers" not in typed["spec"]
    assert encode_json(POD, typed) == b'{"metadata":{},"spec":{"containers":null},"status":{}}'


def test_stored_form_turns_empty_lists_into_null():
    role = BUILTIN.kind("rbac.authorization.k8s.io", "v1", "Role").type
    typed, _ = decode(role, {"rules": []})
    assert encode_json(role, typed) == b'{"metadata":{},"rules":[]}'
    assert encode_json(role, typed, stored=True) == b'{"metadata":{},"rules":null}'


def test_null_elements_become_zero_values():
    assert '"args":["","x"]' in canonical(POD, {"spec": {"containers": [{"name": "c", "args": [None, "x"]}]}})
    assert canonical(CONFIG_MAP, {"data": {"a": None}}) == '{"metadata":{},"data":{"a":""}}'


def test_decode_is_idempotent_on_its_own_output():
    typed, _ = decode(DEPLOYMENT, {"metadata": META, "spec": {"selector": {}, "template": {"spec": {"containers": [{"name": "c"}]}}}})
    assert decode(DEPLOYMENT, orjson.loads(encode_json(DEPLOYMENT, typed)))[0] == typed


@pytest.mark.parametrize(
    ("type", "obj", "text"),
    [
        (
            DEPLOYMENT,
            {"spec": {"replicas": "3"}},
            "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32",
        ),
        (CONFIG_MAP, {"data": {"a": True}}, "json: cannot unmarshal bool into Go struct field ConfigMap.data of type string"),
        (CONFIG_MAP, {"data": []}, "json: cannot unmarshal array into Go struct field ConfigMap.data of type map[string]string"),
        (POD, {"spec": "x"}, "json: cannot unmarshal string into Go struct field Pod.spec of type v1.PodSpec"),
        (
            POD,
            {"spec": {"containers": {}}},
            "json: cannot unmarshal object into Go struct field PodSpec.spec.containers of type []v1.Container",
        ),
        (
            POD,
            {"spec": {"containers": [{"ports": [{"containerPort": 2147483648}]}]}},
            "json: cannot unmarshal number 2147483648 into Go struct field ContainerPort.spec.containers.ports.containerPort of type int32",
        ),
        (POD, {"spec": {"hostNetwork": 1}}, "json: cannot unmarshal number into Go struct field PodSpec.spec.hostNetwork of type bool"),
        (POD, [], "json: cannot unmarshal array into Go value of type v1.Pod"),
        (CONFIG_MAP, {"binaryData": {"a": "!"}}, "illegal base64 data at input byte 0"),
        (
            POD,
            {"metadata": {"creationTimestamp": "x"}},
            'parsing time "x" as "2006-01-02T15:04:05Z07:00": cannot parse "x" as "2006"',
        ),
    ],
)
def test_type_mismatches_have_gos_messages(type, obj, text):
    assert refusal(type, obj) == text


def test_the_notation_of_numbers_is_kept():
    raw = b'{"spec":{"replicas":1.0}}'
    assert "number 1.0 into" in refusal(DEPLOYMENT, orjson.loads(raw), raw)
    raw = b'{"spec":{"volumes":[{"name":"v","emptyDir":{"sizeLimit":1e3}}]}}'
    assert '"sizeLimit":"1e3"' in encode_json(POD, decode(POD, orjson.loads(raw), raw)[0]).decode()


def test_unknown_fields_are_dropped_and_named():
    typed, unknown = decode(POD, {"x": 1, "spec": {"containers": [{"name": "a"}, {"name": "b", "bogus": {"deep": 1}}]}, "Spec": {}})
    assert unknown == ['unknown field "x"', 'unknown field "spec.containers[1].bogus"', 'unknown field "Spec"']
    assert "x" not in typed


def test_at_most_a_hundred_unknown_fields_are_named():
    assert len(decode(POD, {f"x{i}": 1 for i in range(300)})[1]) == 100


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(), lambda c: st.lists(c) | st.dictionaries(st.text(), c)
)


def test_split_leaves_room_for_the_resource_version():
    typed, _ = decode(POD, {"kind": "Pod", "apiVersion": "v1", "metadata": {**META, "uid": "u", "resourceVersion": "9"}})
    head, tail, prefix, metadata_tail = encode_json_split(POD, typed)
    assert head[:prefix] == b'{"kind":"Pod","apiVersion":"v1",'
    assert tail[:metadata_tail] == b'"creationTimestamp":"2024-01-02T03:04:05Z"}'
    typed["metadata"]["resourceVersion"] = "123"
    assert head + b'"resourceVersion":"123",' + tail == encode_json(POD, typed, stored=True)


def test_split_of_metadata_that_ends_before_the_resource_version():
    for meta in ({}, {"name": "a", "uid": "u"}):
        typed, _ = decode(POD, {"kind": "Pod", "apiVersion": "v1", "metadata": {**meta, "resourceVersion": "9"}})
        head, tail, _, metadata_tail = encode_json_split(POD, typed)
        assert (tail[:1], metadata_tail) == (b"}", 1)
        assert head + b'"resourceVersion":"9"' + tail == encode_json(POD, typed, stored=True)


def test_strings_are_escaped_as_go_does():
    value = "<a>&\u2028\u2029\x00\x08\x0c\n\r\t\"\\é😀\x7f"
    assert write_json(value) == (
        '"\\u003ca\\u003e\\u0026\\u2028\\u2029\\u0000\\b\\f\\n\\r\\t\\"\\\\é😀\x7f"'.encode()
    )
    assert write_json("\ud800") == '"�"'.encode()


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.0, "1"), (0.5, "0.5"), (1e21, "1e+21"), (1e20, "100000000000000000000"), (1e-6, "0.000001"), (1e-7, "1e-7"), (-1.5e-10, "-1.5e-10"),
     (123456789.125, "123456789.125"), (0.0, "0"), (-0.0, "-0"), (5e-324, "5e-324"), (1.7976931348623157e308, "1.7976931348623157e+308")],
)  # fmt: skip
def test_floats_are_written_as_by_go(value, text):
    assert write_json(value) == text.encode()


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_floats_survive(value):
    assert math.isclose(float(write_json(value)), value, rel_tol=0)


@given(json_values)
def test_untyped_json_round_trips_and_is_sorted(value):
    data = write_json(value)
    assert json.loads(data) == value
    assert json.loads(pretty_json(data)) == value


def test_pretty_json_is_marshal_indent():
    assert pretty_json(b'{"a":[],"b":{},"c":[1,{"d":"x{[,:"}]}').decode() == json.dumps(
        {"a": [], "b": {}, "c": [1, {"d": "x{[,:"}]}, indent=2
    )


def test_schema_unions_of_crds():
    schema = {"items": [{"type": "string"}], "additionalProperties": False, "dependencies": {"a": ["b"], "c": {"type": "object"}}}
    root = {"openAPIV3Schema": {"properties": {"p": schema}, "maximum": 1.5}}
    versions = [{"name": "v1", "served": True, "storage": True, "schema": root}]
    typed, unknown = decode(CRD, {"spec": {"group": "g", "names": {}, "scope": "", "versions": versions}})
    assert unknown == []
    data = encode_json(CRD, typed)
    assert b'"additionalProperties":false' in data
    protobuf = encode_protobuf(CRD, typed)
    assert decode_protobuf(CRD, protobuf) == typed
    assert transcode_json_to_protobuf(CRD, data) == protobuf


def test_envelope_round_trip():
    data = envelope("apps/v1", "Deployment", b"raw")
    assert open_envelope(data) == ("apps/v1", "Deployment", b"raw", "")
    assert envelope_head("apps/v1", "Deployment", 3) + b"raw" + b"\x1a\x00\x22\x00" == data


def test_protobuf_list_frames_finished_items():
    list_type = BUILTIN.kind("", "v1", "ConfigMapList").type
    maps = [decode(CONFIG_MAP, {"metadata": {"name": n}, "data": {"k": n * 200}})[0] for n in "abc"]
    typed, _ = decode(list_type, {"metadata": {"resourceVersion": "7"}, "items": maps})
    meta = encode_protobuf(BUILTIN.type("io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta"), typed["metadata"])
    items = [encode_protobuf(CONFIG_MAP, m) for m in maps]
    want = encode_protobuf(list_type, typed, api_version="v1", kind="ConfigMapList")
    assert protobuf_list(meta, items, api_version="v1", kind="ConfigMapList") == want


@pytest.mark.parametrize(
    "data",
    [
        b"\xff" * 20, b"\x0a", b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\x0a\x05ab", b"\x08\x01", b"\x0b", b"\x0c", b"\x00",
        b"\x0a\xff\xff\xff\xff\x07", b"\x0d\x01",
    ],
)  # fmt: skip
def test_hostile_protobuf_is_refused(data):
    with pytest.raises(DecodeError):
        decode_protobuf(POD, data)


@pytest.mark.parametrize(
    ("raw", "read"),
    [
        (b'{"f:data":{}}', {"f:data": {}}), (b' {"f:data":{}} and more', {"f:data": {}}), (b'{"f:data":{}}{"f:x":{}}', {"f:data": {}}),
        (b'{"f:data":{}', '{"f:data":{}'), (b"\xff", "\ufffd"), (b"[" * 20_000, "[" * 20_000),
    ],
)  # fmt: skip
def test_managed_fields_end_after_their_first_value(raw, read):
    """As upstream reads them. An entry without a value is left to the field manager, and the object is accepted."""
    entry = field(1, b"m") + field(7, field(1, raw))
    typed = decode_protobuf(CONFIG_MAP, field(1, field(17, entry)))
    assert typed["metadata"]["managedFields"] == [{"manager": "m", "fieldsV1": read}]
    revision = BUILTIN.kind("apps", "v1", "ControllerRevision").type
    if raw != b'{"f:data":{}}':
        with pytest.raises(DecodeError):
            decode_protobuf(revision, field(2, field(1, raw)))


def test_nesting_is_bounded():
    schema = BUILTIN.type("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps")
    number = schema.by_name["not"].pb
    data = b""
    for _ in range(3000):
        size, prefix = len(data), bytearray()
        while size > 127:
            prefix.append(size & 127 | 128)
            size >>= 7
        prefix.append(size)
        tag = number << 3 | 2
        data = bytes([tag & 127 | 128, tag >> 7] if tag > 127 else [tag]) + bytes(prefix) + data
    with pytest.raises(DecodeError):
        decode_protobuf(schema, data)
    with pytest.raises(DecodeError):
        transcode_json_to_protobuf(schema, b'{"not":' * 3000 + b"{}" + b"}" * 3000)
    deep: dict = {}
    for _ in range(3000):
        deep = {"not": deep}
    with pytest.raises(DecodeError):
        decode(schema, deep)
    with pytest.raises(EncodeError):
        encode_json(schema, deep)


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_protobuf_decoder_never_crashes(data):
    try:
        typed = decode_protobuf(POD, data)
    except DecodeError:
        return
    assert transcode_json_to_protobuf(POD, encode_json(POD, typed)) == encode_protobuf(POD, typed)


@settings(deadline=None)
@given(st.integers(0, 400), st.binary(max_size=6))
def test_transcoder_never_crashes_on_damaged_json(at, noise):
    container = {"name": "c", "env": [{"name": "a", "value": "\n"}]}
    typed, _ = decode(POD, {"kind": "Pod", "metadata": META, "spec": {"containers": [container]}})
    data = encode_json(POD, typed)
    at %= len(data)
    with contextlib.suppress(DecodeError):
        transcode_json_to_protobuf(POD, data[:at] + noise + data[at + len(noise) :])


def test_values_of_a_wrong_type_are_refused_by_the_encoders():
    for bad in ({"spec": {"containers": {}}}, {"metadata": {"name": 5}}, {"spec": {"priority": "x"}}, {"status": []}):
        with pytest.raises(EncodeError):
            encode_json(POD, bad)
        with pytest.raises(EncodeError):
            encode_protobuf(POD, bad)


def test_constant_defaults_skip_conditional_ones():
    typed, _ = decode(DEPLOYMENT, {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}})
    default(DEPLOYMENT, typed)
    assert typed["spec"]["replicas"] == 1
    assert typed["spec"]["strategy"] == {"type": "RollingUpdate"}
    container = typed["spec"]["template"]["spec"]["containers"][0]
    assert container["terminationMessagePath"] == "/dev/termination-log"
    assert "imagePullPolicy" not in container


def test_the_zero_value_is_a_decoded_empty_object():
    assert zero(POD) == decode(POD, {})[0]


def test_same_version_is_not_converted():
    obj = {"kind": "Pod"}
    assert convert(obj, "", "v1", "v1", "Pod") is obj


@pytest.mark.parametrize("special", ['"', "\\", *"<>&", "\x00", "\x1f", "\n", "\u2028", "é", "\x7f", *" !#[];="])
def test_strings_are_scanned_correctly_in_blocks_of_sixteen_bytes(special):
    """A byte that must be escaped is found in every position, and its neighbours are not."""
    type_ = BUILTIN.known("", "v1", "ConfigMap").type
    written = json.dumps(special, ensure_ascii=False)[1:-1]
    written = {"\u2028": "\\u2028", "<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}.get(special, written)
    for size in (*range(1, 36), 63, 64, 65):
        for at in range(size):
            text = "a" * at + special + "b" * (size - at - 1)
            body = encode_json(type_, {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {}, "data": {"k": text}})
            assert f'"k":"{"a" * at}{written}{"b" * (size - at - 1)}"'.encode() in body
            plain = decode_plain(type_, body)
            assert plain is None or plain["data"]["k"] == text
            assert decode(type_, orjson.loads(body))[0]["data"]["k"] == text


def test_a_present_empty_map_of_lists_stays_present():
    user = BUILTIN.type("io.k8s.api.authentication.v1.UserInfo")
    message = encode_protobuf(user, {"extra": {"a": [], "b": ["x"]}})
    assert decode_protobuf(user, message) == {"extra": {"a": [], "b": ["x"]}}


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "empty data"),
        (b"k8s\0", "empty body"),
        (b"k8s\0\x02\x00", "proto: Unknown: illegal tag 0 (wire type 2)"),
        (b"k8s\0\x0c", "proto: Unknown: wiretype end group for non-group"),
        (b"k8s\0\x09", "proto: wrong wireType = 1 for field TypeMeta"),
        (b"k8s\0\x0a\x01\x12\x12\x00", "unexpected EOF"),
        (b"k8s\0\x0a\x01\x11", "proto: wrong wireType = 1 for field Kind"),
    ],
)
def test_invalid_envelopes(body, why):
    with pytest.raises(DecodeError) as caught:
        open_envelope(body)
    assert str(caught.value) == why
