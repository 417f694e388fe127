"""Quantities: canonical text, arithmetic and limits beyond the vectors."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kas.meta.quantity import ERR_FORMAT, ERR_NUMERIC, ERR_SUFFIX, Quantity, canonical, parse
from kas.types.scheme import BUILTIN, DecodeError, decode

SUFFIXES = ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "e3", "E-2", "e+1"]
texts = st.builds(
    lambda sign, whole, fraction, suffix: f"{sign}{whole}{fraction}{suffix}",
    st.sampled_from(["", "-", "+"]),
    st.integers(0, 10**12).map(str),
    st.sampled_from(["", ".", ".5", ".000", ".125", ".0000000001"]),
    st.sampled_from(SUFFIXES),
)
LIMITS = BUILTIN.type("core.v1.ResourceRequirements")


def exact(q: Quantity) -> Fraction:
    return Fraction(q.unscaled) / Fraction(10) ** q.scale


@given(texts)
def test_canonical_text_keeps_the_value_and_is_stable(text):
    q = parse(text)
    again = parse(q.canonical())
    # Values beyond E have no suffix upstream, so their canonical text is wrong.
    if abs(exact(q)) < 10**21:
        assert again == q
    # 1000.0Ki is 1024000, which is decimal when read again and so 1024k; after that nothing changes.
    once = canonical(canonical(text))
    assert canonical(once) == once


@given(texts)
def test_the_codecs_fast_check_agrees_with_the_parser(text):
    assert decode(LIMITS, {"limits": {"cpu": text}})[0]["limits"]["cpu"] == canonical(text)


@given(st.integers(0, 10**12), st.sampled_from(SUFFIXES[:16]))
def test_plain_integers_agree_too(number, suffix):
    text = f"{number}{suffix}"
    assert decode(LIMITS, {"limits": {"cpu": text}})[0]["limits"]["cpu"] == canonical(text)


@given(texts, texts)
def test_sums_and_order_are_exact(a, b):
    x, y = parse(a), parse(b)
    assert exact(x + y) == exact(x) + exact(y)
    assert exact(x - y) == exact(x) - exact(y)
    assert x.cmp(y) == (exact(x) > exact(y)) - (exact(x) < exact(y))
    assert (hash(x) == hash(y)) or x != y


@given(st.text(max_size=12))
def test_any_text_parses_or_is_refused(text):
    try:
        parse(text)
    except DecodeError as e:
        assert str(e) in (ERR_FORMAT, ERR_NUMERIC, ERR_SUFFIX, ERR_NUMERIC)


def test_an_extreme_exponent_is_refused_without_work():
    with pytest.raises(DecodeError):
        parse("1e999999999")
    assert str(parse("1e-99999")) == "1e-9"


def test_rounding_up_to_milli():
    rounded, is_exact = parse("1500u").round_up(-3)
    assert (str(rounded), is_exact) == ("2m", False)
    rounded, is_exact = parse("-1500u").round_up(-3)
    assert (str(rounded), is_exact) == ("-2m", False)
    assert str(parse("2Gi").round_up(-3)[0]) == "2Gi"


def test_json_values():
    assert canonical(" 1 ") == canonical("\u30001\u2028") == "1"
    with pytest.raises(DecodeError):
        canonical("\x1c1")
    assert canonical(1000) == "1k"
    assert canonical(0.5) == "500m"


def test_overflows_wrap_as_upstream():
    assert parse("999999999999999999").milli_value() == 3875820019684211736
    assert parse("12345678901234567k").value() == -6101065172474984616
    assert parse("12345678901234567k").as_int64() == (-6101065172474984616, False)
    assert parse("9223372036854775807.5").value() == -(2**63)
    assert parse("10E").value() == 0
    assert parse("10E").as_int64() == (0, False)


def test_a_zero_keeps_the_digits_it_was_written_with():
    assert parse("0.0000000000").scale == 10
    assert parse("0e-10").scale == 10
    assert parse("0.0Ki").scale == 1


@pytest.mark.parametrize("text", ["e-10", ".e-10", "-.e-11"])
def test_a_negative_exponent_needs_digits(text):
    with pytest.raises(DecodeError, match=ERR_NUMERIC):
        parse(text)


LONG = ["9" * 1001, "9" * 4301, "9" * 100_000, "1e1001", "1e5000", "0." + "9" * 1001, "1" * 600 + "." + "1" * 600]


@pytest.mark.parametrize("text", LONG, ids=len)
def test_the_number_of_digits_is_bounded(text):
    with pytest.raises(DecodeError):
        parse(text)


@pytest.mark.parametrize(("text", "canonical"), [("9" * 1000, "9" * 1000), ("0e-99999", "0"), ("12e999", "12e999")])
def test_long_quantities(text, canonical):
    assert str(parse(text)) == canonical
    assert hash(parse(text)) == hash(parse(text))
