"""Keys and values of etcd: those that kube-apiserver 1.36.2 wrote, byte for byte, and every sample object there and back."""

from __future__ import annotations

import base64
from typing import Any

import orjson
import pytest

from kas import kinds
from kas._codecs import DecodeError, TypeDesc
from kas.encryption.ciphers import AESCBC, AESGCM, Secretbox
from kas.registry import pipeline
from kas.registry.generic import Registry
from kas.types.etcd_layout import encode, read
from kas.types.scheme import BUILTIN
from tests import need
from tests.vectors import files

KEY = b"0123456789abcdef0123456789abcdef"
OPENERS = {
    b"k8s:enc:aescbc:v1:key1:": AESCBC(KEY), b"k8s:enc:aescbc:v1:k16:": AESCBC(KEY[:16]), b"k8s:enc:aescbc:v1:k-24.x:": AESCBC(KEY[:24]),
    b"k8s:enc:aesgcm:v1:key1:": AESGCM(KEY), b"k8s:enc:aesgcm:v1:k16:": AESGCM(KEY[:16]), b"k8s:enc:aesgcm:v1:k-24.x:": AESGCM(KEY[:24]),
    b"k8s:enc:secretbox:v1:key1:": Secretbox(KEY),
}  # fmt: skip
SAMPLES = list(files.lines("etcd-samples"))
MISSING = need.missing(f"no recorded values in {files.DIRECTORY}")


@pytest.fixture(scope="module", autouse=True)
def _kinds():
    kinds.install()


def type_of(api_version: str, kind: str) -> TypeDesc | None:
    found = BUILTIN.kind_for(api_version, kind)
    return found.type if found is not None else None


def recorded() -> list[tuple[str, bytes]]:
    """What kube-apiserver stored, opened."""
    out = []
    for row in files.lines("security/encryption"):
        for step in row["in"]["steps"]:
            value = base64.b64decode(step["value"]) if "/stored/" in row["id"] and "put" in step else b""
            for prefix, opener in OPENERS.items():
                if value.startswith(prefix) and step["put"].endswith(("/one", "/two")):
                    out.append((step["put"], opener.open(value[len(prefix) :], step["put"].encode())[0]))
    return out


@pytest.mark.parametrize("key, value", recorded() or [pytest.param("", b"", marks=MISSING)])
def test_what_kube_apiserver_wrote_is_what_is_written(key, value):
    obj = read(value, type_of)
    assert key.endswith("/" + obj["metadata"]["name"])
    assert encode(type_of(obj["apiVersion"], obj["kind"]), obj) == value


def stored(sample: dict[str, Any]) -> tuple[str, TypeDesc | None, dict[str, Any]]:
    """(key, type, object as it is stored) of a sample."""
    given = sample["in"]
    resource = BUILTIN.resource(given["group"], given["version"], given["resource"])
    obj = orjson.loads(orjson.dumps(given["object"]))
    if resource is None:  # a custom resource's
        namespace = "ns1/" if "/ns1/" in sample["out"]["etcdPath"] else ""
        return f"/registry/{given['group']}/{given['resource']}/{namespace}{obj['metadata']['name']}", None, obj
    obj, _ = pipeline.decode_input(resource, obj)
    home = BUILTIN.known(*resource.storage_gvk)
    obj["kind"], obj["apiVersion"] = home.kind, home.api_version
    return Registry(resource, None, lambda: "").key("ns1", obj["metadata"]["name"]), home.type, obj


@pytest.mark.parametrize("sample", SAMPLES or [pytest.param({}, marks=MISSING)], ids=lambda s: s.get("id", ""))
def test_samples_there_and_back(sample):
    key, type_, obj = stored(sample)
    assert key == sample["out"]["etcdPath"]
    obj["metadata"].update(resourceVersion="7", selfLink="/x", uid="u")
    value = encode(type_, obj)
    assert (obj["metadata"]["resourceVersion"], obj["metadata"]["selfLink"]) == ("7", "/x")  # not the caller's to lose
    back = read(value, type_of)
    assert "resourceVersion" not in back["metadata"] and "selfLink" not in back["metadata"]
    assert encode(type_, back) == value
    plain = sample["in"]["group"] in ("apiextensions.k8s.io", "apiregistration.k8s.io") or type_ is None
    assert value.startswith(b"{") and value.endswith(b"}\n") if plain else value.startswith(b"k8s\0")
    as_stored = sample["out"].get("storedAs")
    if as_stored and type_ is not None:
        group = f"{as_stored['group']}/" if as_stored["group"] else ""
        assert (back["apiVersion"], back["kind"]) == (group + as_stored["version"], as_stored["kind"])


def test_json_of_a_kind_that_is_stored_as_protobuf_is_read():
    value = b'{"kind":"Secret","apiVersion":"v1","metadata":{"name":"a"},"data":{"a":"Yg=="}}'
    assert read(value, type_of)["data"] == {"a": "Yg=="}


@pytest.mark.parametrize("value", [
    b"", b"{", b"[]", b"{}", b'{"kind":1,"apiVersion":"v1"}', b"k8s\0\xff", b"k8s\0\x0a\x0a\x0a\x02v9\x12\x04None", b"nonsense",
])  # fmt: skip
def test_what_is_no_object(value):
    with pytest.raises(DecodeError):
        read(value, type_of)
