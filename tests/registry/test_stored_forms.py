"""The protobuf and metadata stored beside the JSON are equal to it, to the byte: every sample object of every built-in kind."""

from __future__ import annotations

import orjson
import pytest

from kas.endpoints.respond import partial
from kas.registry import pipeline
from kas.registry.generic import Registry
from kas.store import Op, open_store
from kas.types.scheme import BUILTIN, decode, encode_both, encode_json, encode_stored, transcode_json_to_protobuf
from tests.vectors import files

SAMPLES = [v["in"] for v in files.lines("etcd-samples")]
BUILT_IN = [v for v in SAMPLES if BUILTIN.resource(v["group"], v["version"], v["resource"]) is not None]
AWKWARD = {  # fields that decoding accepts or code may leave
    "kind": "Secret", "group": "", "version": "v1", "resource": "secrets",
    "object": {"metadata": {"name": "s", "labels": {}, "annotations": {"b": "é\u2028<", "a": ""}, "finalizers": []},
               "data": {"none": None, "empty": "", "x": "AAEC"}, "type": "Opaque"},
}  # fmt: skip


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    store = open_store(str(tmp_path_factory.mktemp("forms")), sync=False)
    yield store
    store.close()


@pytest.mark.parametrize("given", [AWKWARD, *BUILT_IN], ids=lambda v: f"{v['group']}/{v['version']}/{v['resource']}")
def test_protobuf_and_metadata_of_the_stored_object(given, store) -> None:
    resource = BUILTIN.resource(given["group"], given["version"], given["resource"])
    registry = Registry(resource, store, lambda: "")
    obj, _ = pipeline.decode_input(resource, orjson.loads(orjson.dumps(given["object"])))
    storage = BUILTIN.known(*resource.storage_gvk)
    obj["kind"], obj["apiVersion"] = storage.kind, storage.api_version
    # A revision in the object is not stored.
    obj["metadata"].update(uid="u-1", creationTimestamp="2024-01-02T03:04:05Z", resourceVersion="77")
    op = Op(registry.key("ns1", obj["metadata"]["name"]), registry.draft(obj, encode_stored(storage.type, obj, least=0)))
    store.commit_now(op)
    rec = store.get(op.key)
    assert rec.protobuf == transcode_json_to_protobuf(storage.type, rec.json)
    assert rec.protobuf_at(1 << 40) == transcode_json_to_protobuf(storage.type, rec.json_at(1 << 40))
    found = orjson.loads(rec.json)
    meta_type = BUILTIN.known("meta.k8s.io", "v1", "PartialObjectMetadata").type
    whole = encode_json(meta_type, partial(found))
    assert b'{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1",' + rec.metadata_json + b"}" == whole
    assert encode_json(storage.type, decode(storage.type, found)[0], stored=True) == rec.json or given["kind"].endswith("Definition")


def test_only_forms_that_are_costly_to_make_are_stored(store) -> None:
    def stored(kind: str, resource: str, obj: dict):
        registry = Registry(BUILTIN.resource("", "v1", resource), store, lambda: "")
        obj.update(kind=kind, apiVersion="v1")
        obj["metadata"] = {"name": "a", "namespace": "ns1", "creationTimestamp": "2024-01-02T03:04:05Z"}
        return registry.draft(obj)

    env = [{"name": f"e{i}", "value": "x"} for i in range(60)]
    op = Op("/registry/pods/ns1/kept", stored("Pod", "pods", {"spec": {"containers": [{"name": "c", "image": "i", "env": env}]}}))
    small = Op("/registry/configmaps/ns1/small", stored("ConfigMap", "configmaps", {"data": {"a": "x" * 100_000}}))
    store.commit_now(op, small)
    assert store.get(op.key).protobuf is not None and store.get(small.key).protobuf is None


@pytest.mark.parametrize("given", [AWKWARD, *BUILT_IN], ids=lambda v: f"{v['group']}/{v['version']}/{v['resource']}")
def test_an_answer_made_while_storing_is_the_answer(given) -> None:
    resource = BUILTIN.resource(given["group"], given["version"], given["resource"])
    obj, _ = pipeline.decode_input(resource, orjson.loads(orjson.dumps(given["object"])))
    storage = BUILTIN.known(*resource.storage_gvk)
    obj["kind"], obj["apiVersion"] = storage.kind, storage.api_version
    obj["metadata"].update(uid="u-1", creationTimestamp="2024-01-02T03:04:05Z")
    found = []
    for revision in ("", "77", 'odd"'):
        obj["metadata"]["resourceVersion"] = revision
        stored, text = encode_both(storage.type, obj)
        assert stored == encode_stored(storage.type, obj)
        assert text is None or text == encode_json(storage.type, obj)
        found.append(text is not None)
    assert len(set(found)) == 1
    # The stored text differs from the answer if an empty list or map is always written, or bytes are absent.
    head, tail, *_ = encode_stored(storage.type, obj)
    assert found[0] == (head + b'"resourceVersion":"odd\\"",' + tail == encode_json(storage.type, obj))


def test_protobuf_for_etcd_is_made_together_with_the_json(store, monkeypatch) -> None:
    """Also of small objects: making it from their JSON later took twice as long."""
    registry = Registry(BUILTIN.resource("", "v1", "configmaps"), store, lambda: "")
    obj = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a", "namespace": "ns1"}, "data": {"k": "v"}}
    assert registry.encoded(obj)[4] is None
    monkeypatch.setattr(store, "as_protobuf", True)
    head, tail, _, _, message = registry.encoded(obj)
    assert message == transcode_json_to_protobuf(registry.type, head + tail)
