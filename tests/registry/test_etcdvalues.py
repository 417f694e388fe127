"""The value of an object in etcd: kube-apiserver's bytes, and how they are read."""

from __future__ import annotations

import orjson
import pytest

from kas.registry import pipeline
from kas.registry.etcdvalues import AS_JSON, StoredValues
from kas.registry.registries import Registries
from kas.store import Op, open_store
from kas.store.etcd.layout import Undecodable
from kas.types.scheme import BUILTIN, encode_protobuf, envelope, find_builtin_kind, open_envelope, transcode_json_to_protobuf
from tests.vectors import files

SAMPLES = files.lines("etcd-samples")
BUILT_IN = [v for v in SAMPLES if BUILTIN.resource(v["in"]["group"], v["in"]["version"], v["in"]["resource"]) is not None]


@pytest.fixture(scope="module")
def values() -> StoredValues:
    registries = Registries(None, lambda: "")  # type: ignore[arg-type]
    registries.add_stored(BUILTIN.resources, BUILTIN.resource, 0, {})
    return StoredValues(registries)


@pytest.fixture(scope="module")
def as_json(values: StoredValues) -> StoredValues:
    registries = Registries(None, lambda: "")  # type: ignore[arg-type]
    registries.add_stored(BUILTIN.resources, BUILTIN.resource, 0, {})
    return StoredValues(registries, as_json=True)


def stored(values: StoredValues, given: dict, path: str):
    """Returns the key and the draft of a sample, as a write would make them."""
    resource = BUILTIN.resource(given["group"], given["version"], given["resource"])
    obj, _ = pipeline.decode_input(resource, orjson.loads(orjson.dumps(given["object"])))
    registry = values.registry(path)
    storage = resource.storage_gvk if BUILTIN.kind(*resource.storage_gvk) else (resource.group, resource.version, resource.kind)
    kind = BUILTIN.known(*storage)
    obj["kind"], obj["apiVersion"] = kind.kind, kind.api_version
    obj["metadata"].update(uid="u-1", creationTimestamp="2024-01-02T03:04:05Z")
    if resource.namespaced:
        obj["metadata"]["namespace"] = "ns1"
    return kind, registry.draft(obj)


@pytest.mark.parametrize("sample", BUILT_IN, ids=lambda v: "{group}/{version}/{resource}".format(**v["in"]))
def test_a_sample_is_stored_in_upstreams_format_and_read_again(values: StoredValues, sample: dict) -> None:
    path, given = sample["out"]["etcdPath"], sample["in"]
    stored_as = sample["out"].get("storedAs", given)
    kind, draft = stored(values, sample["in"], path)
    value = values.encode(path, draft)
    if kind.group in AS_JSON:
        assert value == draft.json + b"\n"
        assert orjson.loads(value)["kind"] == stored_as["kind"]
    else:
        api_version, name, raw, content_type = open_envelope(value)
        assert (api_version, name, content_type) == (kind.api_version, stored_as["kind"], "")
        assert api_version == (f"{stored_as['group']}/{stored_as['version']}" if stored_as["group"] else stored_as["version"])
        assert raw == transcode_json_to_protobuf(kind.type, draft.json)
    again = values.decode(path, value)
    assert (again.json, again.label_map, again.field_map) == (draft.json, draft.label_map, draft.field_map)
    assert values.encode(path, again) == value


@pytest.mark.parametrize(
    "sample", [v for v in SAMPLES if v not in BUILT_IN], ids=lambda v: "{group}/{version}/{resource}".format(**v["in"])
)
def test_a_custom_resource_is_stored_as_upstreams_json(values: StoredValues, sample: dict) -> None:
    given, path = sample["in"], sample["out"]["etcdPath"]
    obj = orjson.loads(orjson.dumps(given["object"]))
    stored_as = {**given, "kind": obj["kind"], **sample["out"].get("storedAs", {})}
    obj.update(apiVersion=f"{stored_as['group']}/{stored_as['version']}", kind=stored_as["kind"])
    obj["metadata"].update(uid="u-1", creationTimestamp="2024-01-02T03:04:05Z")
    value = orjson.dumps(obj, option=orjson.OPT_SORT_KEYS) + b"\n"  # as Go writes a map
    draft = values.decode(path, value)
    assert values.registry(path) is None and path.startswith(f"/registry/{given['group']}/{given['resource']}/")
    assert values.encode(path, draft) == value


@pytest.mark.parametrize("sample", BUILT_IN, ids=lambda v: "{group}/{version}/{resource}".format(**v["in"]))
def test_json_if_configured(values: StoredValues, as_json: StoredValues, sample: dict) -> None:
    path = sample["out"]["etcdPath"]
    kind, draft = stored(values, sample["in"], path)
    value, message = as_json.encode(path, draft), values.encode(path, draft)
    assert value == draft.json + b"\n" and (orjson.loads(value)["apiVersion"], orjson.loads(value)["kind"]) == (kind.api_version, kind.kind)
    for reader in (values, as_json):
        again = reader.decode(path, value)
        assert (again.json, again.label_map, again.field_map) == (draft.json, draft.label_map, draft.field_map)
    assert (as_json.today(path, value), as_json.today(path, message)) == (value, value)
    assert (values.today(path, value), values.today(path, message)) == (message, message)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("/registry/ranges/servicenodeports", b'{"kind":"RangeAllocation","apiVersion":"v1","metadata":{},"range":"1-2","data":"AQ=="}\n'),
        ("/registry/masterleases/10.0.0.1",
         b'{"kind":"Endpoints","apiVersion":"v1","metadata":{},"subsets":[{"addresses":[{"ip":"10.0.0.1"}]}]}\n'),
    ],
)  # fmt: skip
def test_json_that_is_no_object(values: StoredValues, as_json: StoredValues, key: str, value: bytes) -> None:
    assert as_json.encode(key, values.decode(key, value)) == value
    message = values.encode(key, values.decode(key, value))
    assert as_json.encode(key, as_json.decode(key, message)) == value
    assert (as_json.today(key, value), as_json.today(key, message)) == (value, value)
    assert (values.today(key, value), values.today(key, message)) == (message, message)


def test_older_versions_and_json_are_read(values: StoredValues) -> None:
    key = "/registry/horizontalpodautoscalers/ns1/a"
    old = {
        "kind": "HorizontalPodAutoscaler", "apiVersion": "autoscaling/v1",
        "metadata": {"name": "a", "namespace": "ns1", "uid": "u", "creationTimestamp": "2024-01-02T03:04:05Z", "resourceVersion": "7"},
        "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "d"}, "maxReplicas": 3, "targetCPUUtilizationPercentage": 50},
    }  # fmt: skip
    kind = BUILTIN.known("autoscaling", "v1", "HorizontalPodAutoscaler")
    message = encode_protobuf(kind.type, old, api_version="autoscaling/v1", kind=kind.kind)
    for value in (orjson.dumps(old), message):
        found = orjson.loads(values.decode(key, value).json)
        assert (found["apiVersion"], found["spec"]["maxReplicas"]) == ("autoscaling/v2", 3)
        assert found["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"] == 50
        assert "resourceVersion" not in found["metadata"]


def test_custom_resources_are_json_and_selected_by_their_definition(values: StoredValues) -> None:
    crd = {
        "kind": "CustomResourceDefinition", "apiVersion": "apiextensions.k8s.io/v1",
        "metadata": {"name": "widgets.acme.io", "uid": "u", "creationTimestamp": "2024-01-02T03:04:05Z"},
        "spec": {
            "group": "acme.io", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": True, "storage": True, "selectableFields": [{"jsonPath": ".spec.color"}],
                          "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}}],
        },
    }  # fmt: skip
    values.decode("/registry/apiextensions.k8s.io/customresourcedefinitions/widgets.acme.io", orjson.dumps(crd))
    widget = {
        "apiVersion": "acme.io/v1", "kind": "Widget",
        "metadata": {"creationTimestamp": "2024-01-02T03:04:05Z", "labels": {"a": "b"}, "name": "w", "namespace": "ns1", "uid": "u"},
        "spec": {"color": "red", "n": 1.5},
    }  # fmt: skip
    value = orjson.dumps(widget) + b"\n"
    key = "/registry/acme.io/widgets/ns1/w"
    draft = values.decode(key, value)
    assert values.encode(key, draft) == value
    assert (draft.label_map, draft.field_map["spec.color"]) == ({"a": "b"}, "red")
    values.decode(key, value.replace(b"acme.io/v1", b"acme.io/v0"))  # a version that is no longer defined
    with pytest.raises(Undecodable) as e:
        values.decode(key, value.replace(b"acme.io/v1", b"other.io/v2").replace(b"Widget", b"Thing"))
    assert str(e.value) == 'other.io/v2, Kind=Thing is unstructured and is not suitable for converting to "acme.io/v1"'


@pytest.mark.parametrize("metadata", [b"{}", b'{"name":"a"}', b'{"labels":{"x":"y"},"name":"a"}'])
def test_objects_without_a_creation_time_are_read(values: StoredValues, metadata: bytes, tmp_path) -> None:
    store = open_store(str(tmp_path), sync=False)
    custom = b'{"apiVersion":"acme.io/v1","kind":"Widget","metadata":%b,"spec":{"a":1}}\n' % metadata
    config_map = transcode_json_to_protobuf(BUILTIN.type("io.k8s.api.core.v1.ConfigMap"), b'{"metadata":%b,"data":{"a":"1"}}' % metadata)
    for key, value in (("/registry/acme.io/widgets/a", custom), ("/registry/configmaps/ns1/a", envelope("v1", "ConfigMap", config_map))):
        draft = values.decode(key, value)
        assert values.encode(key, draft) == value
        store.commit_now(Op(key, draft))
        record = store.get(key)
        assert orjson.loads(record.json)["metadata"] == {**orjson.loads(metadata), "resourceVersion": str(record.revision)}
        if record.metadata_json is not None:
            assert orjson.loads(b"{%b}" % record.metadata_json)["metadata"] == orjson.loads(record.json)["metadata"]
    store.close()


@pytest.mark.parametrize("value", [b"", b"{", b"[]", b"k8s\0\xff", b'{"kind":"Pod"}', b'{"kind":"Node","apiVersion":"v1"}'])
def test_values_that_are_no_objects_are_reported(values: StoredValues, value: bytes) -> None:
    for key in ("/registry/pods/ns1/a", "/registry/acme.io/widgets/ns1/a"):
        with pytest.raises(Undecodable):
            values.decode(key, value)


@pytest.mark.parametrize(
    ("value", "why"),
    [(b"garbage", "invalid character 'g' looking for beginning of value"), (b"", "unexpected end of JSON input"),
     (b"k8s\0x", "invalid character 'k' looking for beginning of value"), (b'{"a":1}x', "invalid character 'x' after top-level value"),
     (b'{"metadata":{}', "unexpected end of JSON input"), (b'{"metadata":{}}x', "invalid character 'x' after top-level value")],
)  # fmt: skip
def test_an_invalid_custom_resource_has_kube_apiservers_error(values: StoredValues, value: bytes, why: str) -> None:
    with pytest.raises(Undecodable) as e:
        values.decode("/registry/acme.io/widgets/ns1/a", value)
    assert str(e.value) == why


GO = 'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'


@pytest.mark.parametrize(
    ("value", "why"),
    [(b"null", "Object 'Kind' is missing in 'null'"),
     *((value, f"couldn't get version/kind; json parse error: json: cannot unmarshal {kind} into Go value of type {GO}")
       for value, kind in ((b"[]", "array"), (b'"x"', "string"), (b"1", "number")))],
)  # fmt: skip
def test_json_that_is_no_object_has_gos_error(values: StoredValues, value: bytes, why: str) -> None:
    with pytest.raises(Undecodable) as e:
        values.decode("/registry/pods/ns1/a", value)
    assert str(e.value) == why


@pytest.mark.parametrize("value", [b"", b"{", b"[]", b"k8s\0\xff", b'{"data":1}', b'{"data":"?"}', b'{"data":"AB=="}', b'{"range":1}'])
def test_an_invalid_bitmap_is_reported(values: StoredValues, value: bytes) -> None:
    with pytest.raises(Undecodable):
        values.decode("/registry/ranges/servicenodeports", value)


def test_a_value_in_the_stored_version_needs_no_lookup() -> None:
    """The result would be the same."""
    homes = [r.storage_kind or BUILTIN.known(r.group, r.version, r.kind) for r in BUILTIN.resources if r.etcd_prefix is not None]
    assert len(homes) > 50
    for home in homes:
        group, _, version = home.api_version.rpartition("/")
        assert find_builtin_kind(group, version, home.kind) is home
