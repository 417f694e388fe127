"""quantity: parsing, the numbers and forms of a Quantity, arithmetic, JSON values."""

from __future__ import annotations

import base64
import math
from decimal import Decimal

import pytest

from kas.meta import gojson, quantity
from kas.types.scheme import BUILTIN, DecodeError, decode, decode_plain, decode_protobuf, encode_protobuf

HOLDER = BUILTIN.type("core.v1.EmptyDirVolumeSource")  # sizeLimit is field 2
MAP_HOLDER = BUILTIN.type("core.v1.ResourceRequirements")


def check(vector: dict, group: list[dict]) -> None:
    given, want = vector["in"], vector["out"]
    if "json" in given:
        return check_json(given["json"], want)
    if "a" in given:
        return check_arithmetic(quantity.parse(given["a"]), quantity.parse(given["b"]), want)
    if want["error"] is not None:
        with pytest.raises(DecodeError) as caught:
            quantity.parse(given["text"])
        assert str(caught.value) == want["error"]
        return None
    return check_parsed(quantity.parse(given["text"]), want)


def check_json(text: str, want: dict) -> None:
    """A JSON value where an object has a quantity."""
    body = f'{{"limits":{{"cpu":{text}}}}}'.encode()
    if want["error"] is not None:
        with pytest.raises(DecodeError) as caught:
            decode(MAP_HOLDER, gojson.loads(body), body)
        assert str(caught.value) == want["error"]
        return
    held = {"limits": {"cpu": want["string"]}}
    assert decode(MAP_HOLDER, gojson.loads(body), body) == (held, [])
    assert decode_plain(MAP_HOLDER, body) in (held, None)


def check_arithmetic(a: quantity.Quantity, b: quantity.Quantity, want: dict) -> None:
    assert str(a + b) == want["add"]
    assert str(a - b) == want["sub"]
    assert a.cmp(b) == want["cmp"]
    assert (a == b) == want["equal"]


def digits(q: quantity.Quantity) -> Decimal:
    """The significant digits of a quantity."""
    return Decimal((q.unscaled < 0, tuple(map(int, str(abs(q.unscaled)))), -q.scale))


def check_parsed(q: quantity.Quantity, want: dict) -> None:
    assert str(q) == want["string"]
    assert f'"{q}"' == want["json"]
    assert q.canonical() == want["canonical"]
    assert q.format == want["format"]
    assert q.value() == want["value"]
    assert q.milli_value() == want["milliValue"]
    assert q.is_zero() == want["isZero"]
    assert q.sign() == want["sign"]
    assert q.as_int64() == (want["asInt64"]["value"], want["asInt64"]["ok"])
    assert f"{digits(q):f}" == want["asDec"]
    assert math.isclose(q.approximate(), float(want["approxFloat"]), rel_tol=1e-15)
    rounded, exact = q.round_up(-3)
    assert (str(rounded), exact) == (want["roundUpMilli"]["string"], want["roundUpMilli"]["exact"])
    body = base64.b64decode(want["protobuf"])
    message = encode_protobuf(HOLDER, {"sizeLimit": str(q)})
    assert message == b"\x0a\x00\x12" + bytes([len(body)]) + body
    assert decode_protobuf(HOLDER, message)["sizeLimit"] == str(quantity.parse(str(q)))
