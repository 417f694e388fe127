"""Patterns of clients: RE2's language, Go's words."""

import time

import pytest

from kas.meta.regex import MAX_CACHED_LENGTH, RegexError, compiled


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
     (r"^\pL+\z", "straße"), (r"\A[[:alpha:]]+$", "abc"), (r"(?P<n>a)(?:b)", "ab"), (r"\Q\C\E", "\\C"), (r"a{,2}", "a{,2}"),
     (r"(?i)A\x{62}", "ab")],
)  # fmt: skip
def test_go_takes(pattern, text):
    assert compiled(pattern).search(text)


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"), ("x(?<!a)b", "invalid named capture: `(?<!a)b`"),
        (r"(a)\1", r"invalid escape sequence: `\1`"), (r"\Ca", r"invalid escape sequence: `\C`"), ("[", "missing closing ]: `[`"),
        ("a(b", "missing closing ): `a(b`"), ("a)", "unexpected ): `a)`"), ("*a", "missing argument to repetition operator: `*`"),
        ("a**", "invalid nested repetition operator: `**`"), ("a{1001}", "invalid repeat count: `{1001}`"),
        ("[z-a]", "invalid character class range: `z-a`"),
        ("a\\", "trailing backslash at end of expression: ``"), (r"\p{Foo}", r"invalid character class range: `\p{Foo}`"),
        ("(?P<n", "invalid named capture: `(?P<n`"),
    ],
)  # fmt: skip
def test_go_refuses(pattern, why):
    with pytest.raises(RegexError) as e:
        compiled(pattern)
    assert str(e.value) == f"error parsing regexp: {why}"


def test_time_is_linear():
    started = time.process_time()
    assert compiled("^(a+)+$").search("a" * 5000 + "b") is None
    assert time.process_time() - started < 5


def test_long_patterns_are_not_kept():
    long = "a" * (MAX_CACHED_LENGTH + 1)
    assert compiled("abc") is compiled("abc")
    assert compiled(long) is not compiled(long)
