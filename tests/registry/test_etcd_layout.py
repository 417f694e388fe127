"""The bytes in etcd compared with upstream's: its encoder's results for complete objects are in the vectors, with a resourceVersion and a
selfLink, which are not stored. These are removed from the bytes here, without the codec under test.

Kinds without such vectors use those of 1.33 (``encoded``), with every field set. Four were stored in an earlier version then, with the
same messages: only the name of the version is replaced, in JSON and bytes.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator

import orjson
import pytest

from kas.registry.etcdvalues import AS_JSON, StoredValues, _kind
from kas.registry.generic import Registry
from kas.registry.registries import Registries
from kas.store import Draft
from kas.types.defaults import apply_defaults
from kas.types.scheme import BUILTIN, decode
from tests.vectors import files

REGISTRIES = Registries(None, lambda: "")  # type: ignore[arg-type]
REGISTRIES.add_stored(BUILTIN.resources, BUILTIN.resource, 0, {})
VALUES = StoredValues(REGISTRIES)
STORED = {(kind.group, kind.version, kind.kind): registry for registry in REGISTRIES for kind in [_kind(registry)]}
SELF_LINK, RESOURCE_VERSION = 4, 6  # of ObjectMeta


def kept(name: str) -> list[dict]:
    """Returns the vectors stored as protobuf, in the stored version."""
    found = [v for v in files.lines(name) if (v["in"]["group"], v["in"]["version"], v["in"]["kind"]) in STORED]
    return [v for v in found if v["in"]["group"] not in AS_JSON]


GOLDEN, MORE = kept("golden"), kept("codec")
# The version in which 1.33 had a kind that is now stored in another one with the same message.
EARLIER = {
    "MutatingAdmissionPolicy": "v1alpha1",
    "ResourceClaimTemplate": "v1beta2",
    "ResourceSlice": "v1beta2",
    "VolumeAttributesClass": "v1beta1",
}
NOT_IN_1_33 = {"PodCertificateRequest", "PodGroup", "StorageVersionMigration"}  # the last with other fields


def varint(message: bytes, at: int) -> tuple[int, int]:
    n = shift = 0
    while True:
        n |= (message[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if message[at - 1] < 128:
            return n, at


def fields(message: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Yields the number of each field, its content if it has a length, and all of its bytes."""
    at = 0
    while at < len(message):
        first = at
        tag, at = varint(message, at)
        assert tag & 7 in (0, 2), tag
        n, at = varint(message, at)
        inside = b""
        if tag & 7 == 2:
            inside, at = message[at : at + n], at + n
        yield tag >> 3, inside, message[first:at]


def field(number: int, inside: bytes) -> bytes:
    assert number < 16
    n, length = len(inside), bytearray()
    while n > 127:
        length.append(n & 127 | 128)
        n >>= 7
    return bytes((number << 3 | 2, *length, n)) + inside


def stored(message: bytes) -> bytes:
    """Returns what upstream stores for an object that it answers like this."""
    assert message[:4] == b"k8s\0"
    out = b"k8s\0"
    for number, inside, all_ in fields(message[4:]):
        if number == 2:  # Unknown.raw
            (first, metadata, _), *others = fields(inside)
            assert first == 1
            meta = b"".join(field(n, b"") if n in (SELF_LINK, RESOURCE_VERSION) else whole for n, _, whole in fields(metadata))
            all_ = field(2, field(1, meta) + b"".join(whole for *_, whole in others))
        out += all_
    return out


def today(vector: dict) -> dict:
    """Returns a vector of 1.33 with the name of the stored version."""
    given, message = vector["in"], base64.b64decode(vector["out"]["protobuf"])
    if EARLIER.get(given["kind"]) != given["version"]:
        return vector
    version = next(v for g, v, kind in STORED if (g, kind) == (given["group"], given["kind"]))
    obj = orjson.loads(given["json"])
    before, now = (f"{given['group']}/{v}" for v in (given["version"], version))
    assert obj["apiVersion"] == before
    obj["apiVersion"] = now
    out = b"k8s\0"
    for number, inside, all_ in fields(message[4:]):
        if number == 1:  # Unknown.typeMeta
            (first, named, _), *others = fields(inside)
            assert (first, named) == (1, before.encode())
            all_ = field(1, field(1, now.encode()) + b"".join(whole for *_, whole in others))
        out += all_
    return {
        "id": vector["id"],
        "in": {**given, "version": version, "json": orjson.dumps(obj).decode()},
        "out": {"protobuf": base64.b64encode(out).decode()},
    }


ENCODED = [today(v) for v in files.lines("encoded")]


def written(vector: dict, defaulted: bool = False) -> tuple[Registry, Draft]:
    """Returns what a write of the object puts into the store."""
    given = vector["in"]
    registry = STORED[given["group"], given["version"], given["kind"]]
    kind = _kind(registry)
    obj, unknown = decode(kind.type, orjson.loads(given["json"]))
    assert not unknown
    obj["metadata"].pop("resourceVersion", None)
    obj["metadata"].pop("selfLink", None)
    if defaulted:
        apply_defaults(kind, obj)
        registry.strategy.as_read(obj)
    return registry, registry.draft({**obj, "kind": kind.kind, "apiVersion": kind.api_version})


@pytest.mark.parametrize("vector", [*GOLDEN, *ENCODED, *MORE], ids=lambda v: v["id"])
def test_stored_values_are_those_of_upstreams_encoder(vector: dict) -> None:
    registry, draft = written(vector)
    assert VALUES.encode(f"{registry.root}a/b", draft) == stored(base64.b64decode(vector["out"]["protobuf"]))


@pytest.mark.parametrize("vector", [*GOLDEN, *ENCODED], ids=lambda v: v["id"])
def test_values_stored_by_upstream_are_read(vector: dict) -> None:
    registry, draft = written(vector, defaulted=True)
    found = VALUES.decode(f"{registry.root}a/b", stored(base64.b64decode(vector["out"]["protobuf"])))
    assert (found.json, found.label_map, found.field_map) == (draft.json, draft.label_map, draft.field_map)
    assert VALUES.whole


def test_all_but_three_protobuf_kinds_have_vectors() -> None:
    assert (len(GOLDEN), len({v["in"]["kind"] for v in [*GOLDEN, *MORE]}), len(ENCODED)) == (35, 35, 27)
    stored_kinds = {kind for group, _, kind in STORED if group not in AS_JSON}
    recorded = {v["in"]["kind"] for v in [*GOLDEN, *MORE, *ENCODED]}
    assert not recorded & NOT_IN_1_33 and stored_kinds == recorded | NOT_IN_1_33
