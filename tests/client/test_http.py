"""Heads of answers from untrusted servers."""

from __future__ import annotations

import pytest

from kas.client.http import BackendError, parse_head, retry_after_s

HEAD = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize("length", [b"9" * 19, b"9" * 5000, b"-1", b"+1", b"1_0", "²".encode("latin-1"), b"", b"1, 2"])
def test_an_invalid_length(length: bytes):
    # If it were ignored, a truncated answer would count as complete; as a number, 4,300 digits are too many for Python.
    with pytest.raises(BackendError, match="bad Content-Length"):
        parse_head(HEAD + b"Content-Length: " + length + b"\r\n")


def test_equal_lengths_count_as_one():
    assert parse_head(HEAD + b"Content-Length: 7\r\ncontent-length: 7\r\n").joined == {b"content-length": b"7"}


@pytest.mark.parametrize(("text", "seconds"), [
    ("", None), ("0", 0), ("7", 7), ("9" * 12, 999_999_999), ("²", None), ("٣", None), ("-1", None), ("1.5", None),
    ("Wed, 21 Oct 2015 07:28:00 GMT", None),
])  # fmt: skip
def test_retry_after(text: str, seconds: int | None):
    assert retry_after_s(text) == seconds
