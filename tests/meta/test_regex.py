"""Regular expressions of clients: RE2's syntax, Go's errors."""

from itertools import islice

import pytest

from kas.meta import regex
from kas.meta.offload import LOOP_BUDGET, BudgetSpentError
from kas.meta.regex import RegexError, compiled


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
     (r"^\pL+\z", "straße"), (r"\A[[:alpha:]]+$", "abc"), (r"(?P<n>a)(?:b)", "ab"), (r"\Q\C\E", "\\C"), (r"a{,2}", "a{,2}"),
     (r"(?i)A\x{62}", "ab"), (r"^\p{Letter}\p{decimal number}\P{^L}$", "é7ß"), (r"^[\p{latin}\p{Nd}]+$", "é7"),
     (r"^\p{ASCII}[^\p{ascii}][\P{Ascii}]$", "aéß"), (r"^\p{LC}\P{lc}[\p{Cased_Letter}]$", "aªÉ"),
     (r"^\p{Cn}\P{Cn}\p{Assigned}$", "\u0378aa"),
     (r"^[\P{Cn}]\p{Old_Italic}?$", "a"), (r"(?P<a_1>a)(?<b>é)", "aé"), (r"\Q\p{Letter}(?<é>\E", "\\p{Letter}(?<é>"),
     (r"[(?<é>]", "é"), (r"[]\p{Letter}]", "é")],
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
        ("(?P<n", "invalid named capture: `(?P<n`"), ("a(?P<é>a)", "invalid named capture: `(?P<é>`"),
        ("(?<é>a)", "invalid named capture: `(?<é>`"), ("\\x{", "invalid escape sequence: `\\x{`"),
        ("[\\x{", "invalid escape sequence: `\\x{`"), ("(\\p{Letter}", "missing closing ): `(\\p{Letter}`"),
        (r"\p{Word Joiner}", r"invalid character class range: `\p{Word Joiner}`"),
    ],
)  # fmt: skip
def test_go_refuses(pattern, why):
    with pytest.raises(RegexError) as e:
        compiled(pattern)
    assert str(e.value) == f"error parsing regexp: {why}"


def test_matching_takes_linear_time():
    """Quadratic time would exceed the test's time limit."""
    assert compiled("^(a+)+$").search("a" * 1_000_000 + "b") is None


def test_long_patterns_are_not_cached():
    assert compiled("abc") is compiled("abc")
    for large in ("a" * 1025, r"\pL{60}"):
        assert compiled(large) is not compiled(large)


@pytest.mark.parametrize(
    ("pattern", "count"),
    [
        ("a{99999999999999999999}", "{99999999999999999999}"), ("(a|b){2,99999999999}c", "{2,99999999999}"),
        ("[x]{12345678901}", "{12345678901}"),
    ],
)  # fmt: skip
def test_a_count_beyond_an_integer_is_refused_as_by_go(pattern, count):
    with pytest.raises(RegexError, match="invalid repeat count") as e:
        compiled(pattern)
    assert str(e.value) == f"error parsing regexp: invalid repeat count: `{count}`"


@pytest.mark.parametrize(("pattern", "text"), [
    ("[{99999999999}]{2}", "}{"), (r"\{99999999999}", "{99999999999}"), (r"\Q{99999999999}\E", "{99999999999}"),
    ("{99999999999", "{99999999999"), ("a{0000000000001}", "a{0000000000001}"),
])  # fmt: skip
def test_braces_without_a_count_are_literal(pattern, text):
    assert compiled(f"^{pattern}$").search(text) and not compiled(f"^{pattern}$").search("")


@pytest.mark.parametrize(
    "pattern", [r"\pL" * 20_000, r"[\PN]" * 201, r"\pL{1000}", "a" * (1 << 18), "[^a]{1000}" * 10_000], ids=lambda p: f"{p[:8]} {len(p)}"
)
def test_patterns_that_are_costly_to_compile_are_refused(pattern):
    """60 kB of Unicode classes took 680 MB and two seconds, in which nothing else ran."""
    with pytest.raises(RegexError, match="expression too large"):
        compiled(pattern)


def test_searches_that_may_take_long_are_refused():
    pattern = compiled("[ab]*a" + "[ab]{900}" * 8 + "c")
    assert pattern.search("ab" * 1000) is None
    for how in (pattern.search, lambda text: next(pattern.found_in(text))):
        with pytest.raises(RegexError, match="too long for the expression"):
            how("ab" * 100_000)
    assert compiled("[ab]+c").search("ab" * 1_000_000 + "c")


@pytest.mark.parametrize(
    ("pattern", "text", "want"),
    [("a*", "baac", ["", "aa", ""]), ("", "aé", ["", "", ""]), (".", "aé€", ["a", "é", "€"]), ("é?", "aé", ["", "é"])],
)
def test_all_matches_are_those_of_go(pattern, text, want):
    assert list(compiled(pattern).found_in(text)) == want


def test_quadratic_searches_are_ended(monkeypatch):
    """Each match of ``a.*b|a`` among a's scans all that is left: quadratic in the text, which the pattern's size does not show."""
    with pytest.raises(BudgetSpentError):
        LOOP_BUDGET.within(list, compiled("a").found_in("a" * 10_000))
    assert list(islice(compiled("a").found_in("a" * 10_000), 2)) == ["a", "a"]
    monkeypatch.setattr(regex, "MOST_SECONDS", -1.0)
    with pytest.raises(RegexError, match="too long for the expression"):
        list(compiled("a.*b|a").found_in("aaa"))
