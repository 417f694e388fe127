"""scalars: JSON text of Time, MicroTime, Duration and IntOrString, as fields of real types."""

from __future__ import annotations

import base64

import pytest

from kas.meta import gojson, scalars
from kas.types.scheme import BUILTIN, DecodeError, decode, decode_protobuf, encode_json, encode_protobuf

# kind -> (type with such a field, its JSON name)
HOLDERS = {
    "time": ("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta", "deletionTimestamp"),
    "microtime": ("io.k8s.api.coordination.v1.LeaseSpec", "renewTime"),
    "intorstring": ("io.k8s.api.core.v1.ServicePort", "targetPort"),
}


def check(vector: dict, group: list[dict]) -> None:
    kind = vector["id"].split("/")[1]
    text, want = vector["in"]["json"], vector["out"]
    value = gojson.loads(text)
    if kind == "duration":
        return check_duration(value, want)
    name, field = HOLDERS[kind]
    type = BUILTIN.type(name)
    if want["error"] is not None:
        with pytest.raises(DecodeError) as caught:
            decode(type, {field: value}, f'{{"{field}":{text}}}'.encode())
        # The path of the field in its struct is given here; the vector decodes the bare value.
        plain = f"Go struct field {type.kind_name}.{field} of type"
        assert str(caught.value).replace(plain, "Go value of type") == want["error"]
        return None
    typed, _ = decode(type, {field: value})
    back = typed.get(field, None if kind != "intorstring" else 0)
    encoded = gojson.loads(encode_json(type, typed)).get(field)
    assert encoded == back
    assert encoded == gojson.loads(want["json"])
    if "protobuf" in want and back is not None:
        body = base64.b64decode(want["protobuf"])
        number = bytes([type.by_name[field].pb << 3 | 2, len(body)])
        message = encode_protobuf(type, typed)
        assert number + body in message
        assert decode_protobuf(type, message) == typed
    if kind == "intorstring":
        check_int_or_string(back, want)
    return None


def check_duration(value: object, want: dict) -> None:
    if value is None:
        value = ""  # null leaves the text that Go parses empty
    if not isinstance(value, str):
        holder = BUILTIN.type("io.k8s.metrics.pkg.apis.metrics.v1beta1.NodeMetrics")
        with pytest.raises(DecodeError) as caught:
            decode(holder, {"window": value})
        assert str(caught.value).replace("Go struct field NodeMetrics.window", "Go value") == want["error"]
    elif want["error"] is not None:
        with pytest.raises(DecodeError) as caught:
            scalars.parse_duration(value)
        assert str(caught.value) == want["error"]
    else:
        assert scalars.parse_duration(value) == want["nanoseconds"]
        assert f'"{scalars.canonical_duration(value)}"' == want["json"]


def check_int_or_string(value: int | str, want: dict) -> None:
    assert str(value) == want["string"]  # controllers compute its value as a number or a percentage
