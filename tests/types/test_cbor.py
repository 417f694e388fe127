"""CBOR: what is written can be read, and what is no object is refused."""

from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kas.types import cbor

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(VALUES)
def test_what_is_written_is_read(value):
    found = cbor.decode(cbor.encode(value))
    assert found == value and repr(found) == repr(value)


@given(st.binary(max_size=60))
def test_anything_is_read_or_refused(data):
    with contextlib.suppress(cbor.CBORError):
        cbor.decode(data)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        # Texts are byte strings, integers and floats as short as can be.
        ({"a": [1, -1, 500, True, None]}, "a1 4161 85 01 20 1901f4 f5 f6"),
        (1.5, "f93e00"), (0.1, "fb3fb999999999999a"), (65536.5, "fa47800040"), (2**32, "1b0000000100000000"), (70000, "1a00011170"),
        ("x" * 24, "5818" + "78" * 24),
    ],
)  # fmt: skip
def test_written_as_upstream_writes(value, shown):
    assert cbor.encode(value) == cbor.SELF_DESCRIBED + bytes.fromhex(shown)


@pytest.mark.parametrize(
    ("data", "value"),
    [
        ("6161", "a"), ("4161", "a"), ("a1616101", {"a": 1}), ("d9d9f701", 1),
        # Bytes that are told to become text.
        ("d64161", "YQ=="), ("d543ffffff", "____"), ("d742abcd", "ABCD"), ("f97bff", 65504.0),
    ],
)  # fmt: skip
def test_read(data, value):
    assert cbor.decode(bytes.fromhex(data)) == value


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ("", "EOF"), ("1a0001", "EOF"), ("0101", "extraneous"), ("41ff", "UTF-8"), ("a20102", "key is no text"),
        ("a2416101416102", "duplicate map key"), ("9f01ff", "indefinite"), ("1bffffffffffffffff", "64 bits"), ("1c", "reserved"),
        ("c249010000000000000000", "tag 2"), ("d9d9f7d9d9f701", "tag 55799"), ("d66161", "tag 22"), ("f7", "simple value 23"),
        ("f97e00", "NaN"), ("81" * 66 + "01", "nested"), ("9bffffffffffffffff", "EOF"), ("5bffffffffffffffff", "EOF"),
    ],
)  # fmt: skip
def test_refused(data, why):
    with pytest.raises(cbor.CBORError, match=why):
        cbor.decode(bytes.fromhex(data))


def test_infinities_are_refused():
    with pytest.raises(cbor.CBORError, match="infinities"):
        cbor.decode(b"\xfa" + struct.pack(">f", float("inf")))


def test_more_values_than_are_wanted_are_refused():
    assert cbor.decode(b"\x82\xa1\x41a\x01\x80", 4) == [{"a": 1}, []]
    with pytest.raises(cbor.CBORTooLongError):
        cbor.decode(b"\x82\xa1\x41a\x01\x80", 3)


def test_where_a_map_begins_is_random(monkeypatch):
    """In answers, as upstream's: nobody can come to depend on an order that is not promised."""
    value, written = {"a": 1, "b": {"c": 2, "d": 3}}, set()
    for drawn in (0.0, 0.5, 0.999):
        monkeypatch.setattr(cbor, "random", lambda drawn=drawn: drawn)
        written.add(cbor.encode(value, turned=True))
        assert cbor.decode(cbor.encode(value, turned=True)) == value
    assert len(written) == 2
    assert cbor.decode(cbor.encode({}, turned=True)) == {}
