"""CBOR: encoded values can be decoded, and invalid data are refused."""

from __future__ import annotations

import contextlib
import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kas.types import cbor

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)
TIME = b"2020-01-01T00:00:00Z".hex()


@given(VALUES)
def test_encoded_values_are_decoded(value):
    found = cbor.decode(cbor.encode(value))
    assert found == value and repr(found) == repr(value)


@given(st.binary(max_size=60))
def test_arbitrary_data_are_decoded_or_refused(data):
    with contextlib.suppress(cbor.CBORError):
        cbor.decode(data)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        # Texts are byte strings, integers and floats are as short as possible.
        ({"a": [1, -1, 500, True, None]}, "a1 4161 85 01 20 1901f4 f5 f6"),
        (1.5, "f93e00"), (0.1, "fb3fb999999999999a"), (65536.5, "fa47800040"), (2**32, "1b0000000100000000"), (70000, "1a00011170"),
        ("x" * 24, "5818" + "78" * 24),
    ],
)  # fmt: skip
def test_encoding_is_upstreams(value, shown):
    assert cbor.encode(value) == cbor.SELF_DESCRIBED + bytes.fromhex(shown)


@pytest.mark.parametrize(
    ("data", "value"),
    [
        ("6161", "a"), ("4161", "a"), ("a1616101", {"a": 1}), ("d9d9f701", 1),
        # Byte strings with a tag that makes them text.
        ("d64161", "YQ=="), ("d543ffffff", "____"), ("d742abcd", "ABCD"), ("f97bff", 65504.0), ("d6814161", ["YQ=="]), ("d66161", "a"),
        # Indefinite lengths.
        ("9f01ff", [1]), ("9fff", []), ("bf616101ff", {"a": 1}), ("7f61616162ff", "ab"), ("5f41c341a9ff", "é"),
        ("bf7f6161ff9fffff", {"a": []}),
        # Other tags are ignored, except those of times.
        ("d9d9f7d9d9f701", 1), ("c601", 1), ("d8206178", "x"), ("c4820102", [1, 2]), (f"c074{TIME}", "2020-01-01T00:00:00Z"),
        ("c0781b" + b"2020-01-01T00:00:00.1+02:00".hex(), "2020-01-01T00:00:00.1+02:00"), ("c100", "1970-01-01T00:00:00Z"),
        ("c1f93e00", "1970-01-01T00:00:01.5Z"), ("c1f9be00", "1969-12-31T23:59:58.5Z"), ("41ff", "\ufffd"), ("a1f601", {"": 1}),
    ],
)  # fmt: skip
def test_decoded(data, value):
    assert cbor.decode(bytes.fromhex(data)) == value


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ("", "EOF"), ("1a0001", "EOF"), ("0101", "extraneous"), ("61ff", "UTF-8"), ("a20102", "key is no text"), ("9f01", "EOF"),
        ("a2416101416102", "duplicate map key"), ("1bffffffffffffffff", "64 bits"), ("1c", "reserved"), ("1f", "reserved"),
        ("c249010000000000000000", "tag 2"), ("c341ff", "tag 3"), ("ff", "break"), ("8101ff", "extraneous"), ("f7", "simple value 23"),
        ("7f4161ff", "piece"), ("5f6161ff", "piece"), ("7f7f6161ffff", "piece"), ("7f61c361a9ff", "UTF-8"), ("bf6161ff", "break"),
        ("c001", "no time"), ("c06178", "no time"), ("c16161", "no time"), ("c1f5", "no time"), ("c11b7fffffffffffffff", "no time"),
        ("c074" + b"2020-13-01T00:00:00Z".hex(), "no time"), ("f97e00", "NaN"), ("81" * 300 + "01", "nested"),
        ("c6" * 300 + "01", "nested"), ("9bffffffffffffffff", "EOF"), ("5bffffffffffffffff", "EOF"),
    ],
)  # fmt: skip
def test_refused(data, why):
    with pytest.raises(cbor.CBORError, match=why):
        cbor.decode(bytes.fromhex(data))


def test_infinities_are_refused():
    with pytest.raises(cbor.CBORError, match="infinities"):
        cbor.decode(b"\xfa" + struct.pack(">f", float("inf")))


def test_more_values_than_allowed_are_refused():
    assert cbor.decode(b"\x82\xa1\x41a\x01\x80", 4) == [{"a": 1}, []]
    with pytest.raises(cbor.CBORTooLongError):
        cbor.decode(b"\x82\xa1\x41a\x01\x80", 3)
    with pytest.raises(cbor.CBORTooLongError):
        cbor.decode(b"\x5f" + b"\x40" * 9 + b"\xff", 9)


def test_the_first_key_of_a_map_is_random(monkeypatch):
    """In answers, as upstream's: no client can come to depend on an order that is not promised."""
    value, written = {"a": 1, "b": {"c": 2, "d": 3}}, set()
    for drawn in (0.0, 0.5, 0.999):
        monkeypatch.setattr(cbor, "random", lambda drawn=drawn: drawn)
        written.add(cbor.encode(value, turned=True))
        assert cbor.decode(cbor.encode(value, turned=True)) == value
    assert len(written) == 2
    assert cbor.decode(cbor.encode({}, turned=True)) == {}


def test_a_string_of_many_chunks_takes_little_memory() -> None:
    """Joining them at once took 80 bytes for each, and 0.1 s of the interpreter's lock for a million."""
    text = b"\x5f" + b"\x41b" * 100_000 + b"\xff"
    tracemalloc.start()
    try:
        assert cbor.decode(text) == "b" * 100_000
        assert tracemalloc.get_traced_memory()[1] < 2 << 20
    finally:
        tracemalloc.stop()
