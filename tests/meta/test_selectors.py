"""Label and field selectors: parsing, printing, matching."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kas.meta import selectors
from kas.meta.selectors import (
    EVERYTHING,
    NOTHING,
    FieldSelector,
    Requirement,
    SelectorError,
    escape_value,
    from_label_selector,
    parse_field_selector,
    parse_label_selector,
    unescape_value,
)


@pytest.mark.parametrize(
    ("text", "labels", "want"),
    [
        ("", {}, True),
        ("a", {"a": ""}, True),
        ("!a", {"a": ""}, False),
        ("a!=b", {}, True),
        ("a notin (b)", {}, True),
        ("a in (b,c),!d", {"a": "c"}, True),
        ("x>4", {"x": "5"}, True),
        ("x<4", {"x": "five"}, False),
        ("x>4", {"x": "99999999999999999999"}, False),
    ],
)
def test_label_selectors(text, labels, want):
    assert parse_label_selector(text).matches(labels) is want


@pytest.mark.parametrize(("text", "left"), [("=", ""), ("!=", ""), ("==,a=b", "a=b"), ("=x", "=x"), ("x=,!=", "x=")])
def test_an_empty_term_of_a_field_selector_is_ignored(text, left):
    """``fields.ParseSelector`` of apimachinery."""
    assert str(parse_field_selector(text)) == left
    assert parse_field_selector(text).empty is (not left)


@pytest.mark.parametrize("text", [",", "a,,b", "a in", "a in (", "a in b", "!a=b", "x>y", "-a", "a=b c", "(", "a=(b"])
def test_label_selectors_that_do_not_parse(text):
    with pytest.raises(SelectorError):
        parse_label_selector(text)


def test_an_absent_label_selector_matches_nothing_and_an_empty_one_everything():
    assert from_label_selector(None) is NOTHING and not NOTHING.matches({}) and not NOTHING.empty
    assert from_label_selector({}) is EVERYTHING and EVERYTHING.matches({"a": "b"}) and EVERYTHING.empty


def test_field_selectors():
    s = parse_field_selector("b!=2,a=1\\,x")
    assert str(s) == "a=1\\,x,b!=2"
    assert s.matches({"a": "1,x"}) and not s.matches({"a": "1,x", "b": "2"})
    assert s.requires_exact_match("a") == "1,x" and s.requires_exact_match("b") is None
    assert str(s.transform(lambda k, v: (k.upper(), v))) == "A=1\\,x,B!=2"
    assert s.transform(lambda k, v: ("", "")) == FieldSelector()


label = st.text("abcdefghijklmnopqrstuvwxyz0123456789", min_size=1, max_size=8)
requirement = st.one_of(
    label,
    label.map("!{}".format),
    st.tuples(label, st.sampled_from(["=", "==", "!="]), label).map("".join),
    st.tuples(label, st.sampled_from([" in (", " notin ("]), st.lists(label, min_size=1, max_size=4).map(",".join)).map(
        lambda t: f"{t[0]}{t[1]}{t[2]})"
    ),
    st.tuples(label, st.sampled_from("<>"), st.integers(0, 2**63 - 1).map(str)).map("".join),
).filter(lambda t: t not in ("in", "notin"))


@given(st.lists(requirement, max_size=5).map(",".join), st.dictionaries(label, label))
def test_the_canonical_text_is_equivalent(text, labels):
    selector = parse_label_selector(text)
    again = parse_label_selector(str(selector))
    assert str(again) == str(selector) and again == selector
    assert again.matches(labels) == selector.matches(labels)


@given(st.text("aB1-_.=!, /", max_size=12) | st.lists(requirement, max_size=5).map(",".join))
def test_plain_terms_are_parsed_as_by_the_parser(text):
    plain = selectors._plain_requirements(text)
    assert plain is None or plain == selectors._Parser(text).parse()


@pytest.mark.parametrize(("text", "plain"), [
    ("a,b=c,d==e,f!=g,h=", True), ("a" * 63, True), ("a" * 64, False), ("a=" + "b" * 63, True), ("a=" + "b" * 64, False),
    ("a=é", False), ("a\n", False), ("a=b\n", False), ("a,", False), ("-a", False), ("a-", False),
])  # fmt: skip
def test_plain_terms(text, plain):
    assert (selectors._plain_requirements(text) is not None) is plain


@given(st.text("ab=!,()<> \0\\in1é\t"))
def test_parsers_raise_only_their_own_error(text):
    for parse in (parse_label_selector, parse_field_selector):
        try:
            str(parse(text))
        except SelectorError as e:
            assert str(e)


@given(st.text(), st.text())
def test_field_selector_round_trip(a, b):
    assert unescape_value(escape_value(a)) == a
    s = parse_field_selector(f"x={escape_value(a)},y!={escape_value(b)}")
    assert parse_field_selector(str(s)) == s
    assert {t.value for t in s.requirements} == {a, b}


OPS = st.sampled_from(["=", "==", "!=", "in", "notin", "exists", "!", "gt", "lt"])
WORDS = st.sampled_from(["a", "b", "c", "4", "5", "x"])


@given(
    st.lists(st.tuples(WORDS, OPS, st.lists(WORDS, min_size=1, max_size=3)), max_size=12),
    st.dictionaries(WORDS, WORDS, max_size=4),
)
def test_many_requirements_match_if_each_does(requirements, labels):
    terms = [Requirement(key, op, () if op in ("exists", "!") else tuple(values)) for key, op, values in requirements]
    assert selectors._Looked(terms).match(labels) is all(term.matches(labels) for term in terms)


def test_many_requirements_use_an_index(monkeypatch):
    many = from_label_selector({"matchExpressions": [{"key": f"k{i}", "operator": "NotIn", "values": ["a", "b"]} for i in range(100)]})
    monkeypatch.setattr(Requirement, "matches", None)
    assert many.matches({"k1": "c", "z": "a"}) and not many.matches({"k1": "b"}) and many.matches(None)
