"""Errors of invalid durations."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from kas.meta import duration


@pytest.mark.parametrize(("text", "quoted"), [
    ("1x", '"1x"'),
    ("", '""'),
    ('a"b\\c', '"a\\"b\\\\c"'),
    ("\t\n\x00\x1f ~\x7f", '"\\x09\\x0a\\x00\\x1f ~\x7f"'),
    ("\x80ü€\U0001f600", '"\\xc2\\x80\\xc3\\xbc\\xe2\\x82\\xac\\xf0\\x9f\\x98\\x80"'),
    ("\ud800", '"\\xed\\xa0\\x80"'),
])  # fmt: skip
def test_other_than_printable_ascii_is_quoted_byte_by_byte(text: str, quoted: str) -> None:
    assert duration.quote(text) == quoted


def test_quoting_a_long_text_takes_few_calls() -> None:
    """240,000 characters in the ``timeout`` of a URL held the loop for half a second, without a credential."""
    calls = 0

    def count(_: Any, event: str, __: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        duration.quote("ÿ" * 10_000)
    finally:
        sys.setprofile(None)
    assert calls < 100
