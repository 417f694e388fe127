"""Bytes that may not be UTF-8."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kas.meta import gojson, utf8
from kas.request.requestinfo import Query
from kas.types.scheme import read_pairs


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"caf\xc3\xa9", "café"),
        (b"a\xffb", "a\ufffdb"),
        (b"\xe2\x80x", "\ufffd\ufffdx"),  # two bytes of a three-byte character
        (b"\xed\xa0\x80", "\ufffd" * 3),  # half of a surrogate pair
        (b"\xf0\x9f\x98", "\ufffd" * 3),
        (b"\xf0\x9f\x98\x80\xf0", "\U0001f600\ufffd"),
        (b"\xc0\x80", "\ufffd" * 2),
        (b"\xed\xa0\xbd\xed\xb8\x80", "\ufffd" * 6),  # a pair in CESU-8 is invalid, too
    ],
)
def test_each_invalid_byte_is_replaced(raw, text):
    assert utf8.text(raw) == text
    body = b'{"a":"' + raw + b'"}'
    assert gojson.loads(body) == {"a": text}
    assert list(read_pairs(body)) == [("a", text)]
    assert Query(b"a=" + raw).pairs == {"a": [text]}


PARTS = (b"a", b"\xc3", b"\xa9", b"\xe2", b"\x80", b"\xed", b"\xa0", b"\xf0", b"\x9f", b"\xf4", b"\x90", b"\xc0", b"\xff")


@given(st.lists(st.sampled_from(PARTS) | st.text(max_size=1).map(str.encode)).map(b"".join))
def test_each_invalid_byte_is_one_replacement(raw):
    halves = raw.decode("utf-8", "surrogateescape")
    assert utf8.text(raw) == "".join("\ufffd" if 0xDC80 <= ord(c) <= 0xDCFF else c for c in halves)


def test_of_an_object(client, namespace):
    body = b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"bytes"},"data":{"a":"\xe2\x80x"}}'
    status, made = client("POST", f"/api/v1/namespaces/{namespace}/configmaps", body)
    assert (status, made["data"]) == (201, {"a": "\ufffd\ufffdx"})
