"""Digits of any length."""

from __future__ import annotations

import pytest

from kas.meta.scalars import decimal


@pytest.mark.parametrize(
    ("text", "number"),
    [("0", 0), ("-5", -5), ("+7", 7), ("007", 7), ("0" * 5000 + "7", 7), (str(2**64 - 1), 2**64 - 1), ("-" + str(2**63), -(2**63))],
)
def test_numbers_that_fit_are_exact(text, number):
    assert decimal(text) == number


@pytest.mark.parametrize("text", ["9" * 21, "9" * 4301, "1" * 1_000_000])
def test_numbers_that_do_not_fit_exceed_every_type(text):
    assert decimal(text) >= 1 << 64
    assert decimal("-" + text) < -(1 << 63)
