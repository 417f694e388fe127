"""Unknown fields of a newer version are kept when an object is written again."""

from __future__ import annotations

import random

import pytest

from kas.types.scheme import DecodeError, TypeDesc, builtin_kind, decode, decode_protobuf_whole, encode_protobuf, find_builtin_kind, varint
from kas.types.unknownfields import handed_on, handed_on_json
from tests.types.protobufs import field, parts
from tests.types.randomobjects import struct

POD = builtin_kind("", "v1", "Pod").type
UNKNOWN = field(1999, b"of a newer version") + varint(1998 << 3) + varint(7)


def everywhere(type: TypeDesc, message: bytes) -> bytes:
    """Returns the message with unknown fields at the end of it and of all messages in it."""
    known = {f.pb: f for f in type.fields if f.pb > 0}
    out = b""
    for number, wire, content, whole in parts(message):
        inner = known[number].message if wire == 2 else None
        if inner is None or inner.custom_json:
            out += whole
        elif known[number].card == "map":
            out += field(number, b"".join(field(2, everywhere(inner, c)) if n == 2 else w for n, _, c, w in parts(content)))
        else:
            out += field(number, everywhere(inner, content))
    return out + UNKNOWN


def pod(*containers: tuple[str, str], **spec) -> bytes:
    obj = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": n, "image": i} for n, i in containers], **spec}, "status": {}}
    return encode_protobuf(POD, decode(POD, obj)[0])


def containers(message: bytes) -> dict[bytes, bytes]:
    """Returns the containers of a pod, by name."""
    spec = next(content for number, _, content, _ in parts(message) if number == 2)
    found = [content for number, _, content, _ in parts(spec) if number == 2]
    return {next(content for number, _, content, _ in parts(c) if number == 1): c for c in found}


def test_remaining_messages_keep_them() -> None:
    old = everywhere(POD, pod(("a", "1"), ("b", "1"), tolerations=[{"key": "x"}, {"key": "y"}]))
    new = handed_on(POD, old, pod(("c", "1"), ("b", "2"), tolerations=[{"key": "y"}, {"key": "z"}]))
    obj, whole = decode_protobuf_whole(POD, new)
    assert not whole
    assert [c["image"] for c in obj["spec"]["containers"]] == ["1", "2"] and [t["key"] for t in obj["spec"]["tolerations"]] == ["y", "z"]
    assert new.endswith(UNKNOWN) and new.count(UNKNOWN) == len(["pod", "metadata", "spec", "b", "its resources", "y", "status"])
    by_name = containers(new)
    assert UNKNOWN in by_name[b"b"] and UNKNOWN not in by_name[b"c"]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(("group", "version", "name"), [
    ("", "v1", "Pod"), ("", "v1", "Service"), ("apps", "v1", "Deployment"), ("resource.k8s.io", "v1", "ResourceSlice"),
    ("admissionregistration.k8s.io", "v1", "ValidatingWebhookConfiguration"), ("networking.k8s.io", "v1", "NetworkPolicy"),
])  # fmt: skip
def test_unchanged_messages_keep_all_of_them(group: str, version: str, name: str, seed: int) -> None:
    kind = find_builtin_kind(group, version, name)
    obj = decode(kind.type, struct(random.Random(seed), kind.type, 0))[0]
    plain = encode_protobuf(kind.type, obj)
    assert decode_protobuf_whole(kind.type, plain)[1] and handed_on(kind.type, plain, plain) == plain
    old = everywhere(kind.type, plain)
    read, whole = decode_protobuf_whole(kind.type, old)
    assert not whole and read == decode_protobuf_whole(kind.type, plain)[0]
    assert handed_on(kind.type, old, plain) == old


@pytest.mark.parametrize("broken", [b"\x0a", b"\x0a\x05a", b"\xff" * 11, b"\x0b", b"\x0d\x00"])
def test_invalid_messages_are_refused(broken: bytes) -> None:
    with pytest.raises(DecodeError):
        handed_on(POD, broken, pod(("a", "1")))


def test_fields_unknown_to_the_json_form_are_kept_in_place() -> None:
    def pod(images: dict[str, str], tolerations: list[dict]) -> dict:
        containers = [{"name": name, "image": image, "resources": {}} for name, image in images.items()]
        spec = {"containers": containers, "tolerations": tolerations}
        return {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p"}, "spec": spec}

    old, new = pod({"a": "1", "b": "1"}, [{"key": "x"}, {"key": "y"}]), pod({"c": "1", "b": "2"}, [{"key": "y"}, {"key": "z"}])
    spec = old["spec"]
    for at in (old, old["metadata"], spec, *spec["containers"], spec["containers"][1]["resources"], *spec["tolerations"]):
        at["newer"] = {"of": ["a", "newer", "version"]}
    assert len(decode(POD, old)[1]) == 8
    handed_on_json(POD, old, new)
    inner = new["spec"]
    kept = [new, new["metadata"], inner, inner["containers"][1], inner["containers"][1]["resources"], inner["tolerations"][0]]
    assert all(at["newer"] == {"of": ["a", "newer", "version"]} for at in kept)
    assert str(new).count("newer") == 2 * len(kept) and inner["containers"][1]["image"] == "2"


def test_fields_dropped_from_the_json_form_stay_dropped() -> None:
    new = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "c"}, "data": {"a": "b"}, "newer": 1}
    handed_on_json(builtin_kind("", "v1", "ConfigMap").type, {**new, "binaryData": {"x": "eA=="}, "immutable": True, "newer": 2}, new)
    assert "binaryData" not in new and "immutable" not in new and new["newer"] == 1
