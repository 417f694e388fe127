"""Reading and writing the wire format of protobuf."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kas.meta.protowire import BYTES, FIXED32, FIXED64, VARINT, fields, put_bytes, put_int, put_text, read_varint, text, varint


@given(st.integers(0, (1 << 64) - 1))
def test_numbers(n):
    assert read_varint(varint(n), 0) == (n, len(varint(n)))


def test_a_negative_number_has_ten_bytes():
    assert varint(-1) == b"\xff" * 9 + b"\x01"


def test_fields_in_their_order():
    message = put_text(1, "a") + put_int(3, 300) + put_bytes(2, b"\x01") + b"\x25abcd" + b"\x29abcdefgh" + put_bytes(7, b"") + put_int(8, 0)
    assert list(fields(message)) == [
        (1, BYTES, b"a"), (3, VARINT, 300), (2, BYTES, b"\x01"), (4, FIXED32, b"abcd"), (5, FIXED64, b"abcdefgh"),
    ]  # fmt: skip


@pytest.mark.parametrize("message", [
    b"\x00", b"\x0a", b"\x0a\x02a", b"\x08", b"\x08" + b"\xff" * 10, b"\x0b", b"\x0f", b"\x25abc", b"\x08" + b"\xff" * 9 + b"\x02",
    b"\x80\x80\x80\x80\x10",
])  # fmt: skip
def test_invalid_messages(message):
    with pytest.raises(ValueError, match="proto: cannot parse invalid wire-format data"):
        list(fields(message))


@given(st.binary(max_size=200))
def test_random_data_are_refused_or_end(junk):
    try:
        assert sum(1 for _ in fields(junk)) <= len(junk)
    except ValueError:
        return


def test_a_text_must_be_utf_8():
    assert text("ä".encode()) == "ä"
    with pytest.raises(ValueError, match="invalid UTF-8"):
        text(b"\xff")
    with pytest.raises(ValueError):
        text(7)
