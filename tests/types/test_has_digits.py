"""Runs of digits in a text, which tell whether a number may be too large for an integer."""

from __future__ import annotations

import random
import re

import pytest

from kas.types.scheme import has_digits


@pytest.mark.parametrize("least", [1, 2, 3, 19])
def test_has_digits_agrees_with_a_regular_expression(least):
    choose, pattern = random.Random(least), re.compile(rb"[0-9]{%d}" % least)
    for length in [*range(3 * least + 2)] * 60:
        text = bytes(choose.choices(b"0123456789/:a\xff\0", weights=[3] * 10 + [1] * 5, k=length))
        assert has_digits(text, least) is (pattern.search(text) is not None), text


@pytest.mark.parametrize("at", range(40))
def test_a_run_is_found_at_every_position(at):
    assert has_digits(b"x" * at + b"9" * 19 + b"x" * (40 - at), 19)
    assert not has_digits(b"x" * at + b"9" * 18 + b"x" * (40 - at), 19)


def test_a_run_of_zero_digits_is_refused():
    with pytest.raises(ValueError):
        has_digits(b"", 0)
