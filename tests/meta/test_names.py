"""Names, keys and values: the forms of each validator."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kas.meta import field, names

FUNCTIONS = [f for n, f in vars(names).items() if n.startswith("is_") and n not in ("is_http_path", "is_port_number")]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_validators_never_raise_and_take_linear_time(function):
    """The texts are so long that quadratic time would exceed the test's time limit."""
    for text in ("", "a" * 1_000_000, "a-" * 500_000, "a." * 500_000, "a/" * 500_000, "é" * 500_000, "\ud800"):
        assert all(isinstance(m, str) for m in function(text))


@given(st.text("ab-.A_/*9é"))
def test_every_label_is_a_subdomain_and_every_subdomain_a_key(text):
    if not names.is_dns1035_label(text):
        assert not names.is_dns1123_label(text)
    if not names.is_dns1123_label(text):
        assert not names.is_dns1123_subdomain(text)
    if not names.is_dns1123_subdomain(text):
        assert not names.is_wildcard_dns1123_subdomain(f"*.{text}") or len(text) > 251
        assert not names.is_dns1123_subdomain_with_underscore(text)
        assert not names.is_qualified_name(f"{text}/x")


def test_generated_names_may_end_with_a_dash():
    assert names.dns_subdomain("my-", True) == [] and names.dns_subdomain("my-", False) != []
    for rule in (names.dns_subdomain, names.dns_label, names.dns1035_label):
        assert rule("my+-", True) == []  # the letter before the dash is validated with the name itself
        assert rule("my+x-", True) != [] and rule("myé-", True) != [] and rule("-", True) != []
    assert names.dns_label(f"{'a' * 63}-", True) == []


def test_lengths_count_bytes():
    assert names.is_label_value("é" * 32)[0] == "must be no more than 63 bytes"
    assert names.is_dns1123_label("a" * 64) == ["must be no more than 63 characters"]


def test_newlines_at_the_end_are_refused():
    for function in (names.is_dns1123_label, names.is_qualified_name, names.is_label_value, names.is_config_map_key, names.is_port_name):
        assert function("a\n")


def test_domain_prefixes():
    assert names.domain_prefixed_path("f", "acme.io/foo/bar") == []
    assert [str(e) for e in names.domain_prefixed_path("f", "")] == ["f: Required value"]
    assert names.fully_qualified_domain_name("f", "a.b.") == []
    assert names.fully_qualified_name("f", "a.b") != []


@pytest.mark.parametrize(
    ("function", "pattern"),
    [
        (names.is_dns1123_label, names._DNS1123_LABEL),
        (names.is_dns1123_subdomain, names._DNS1123_SUBDOMAIN),
        (names.is_dns1123_subdomain_with_underscore, names._DNS1123_SUBDOMAIN_UNDERSCORE),
        (names.is_wildcard_dns1123_subdomain, names._WILDCARD),
        (names.is_dns1035_label, names._DNS1035_LABEL),
        (names.is_qualified_name, rf"({names._DNS1123_SUBDOMAIN}/)?{names._LABEL_KEY}"),
        (names.is_label_value, names._LABEL_VALUE),
    ],
    ids=lambda v: v.__name__ if callable(v) else "",
)
def test_the_linear_patterns_are_the_published_ones(function, pattern):
    @given(st.text("ab1-._A/*\n", max_size=12) | st.from_regex(pattern, fullmatch=True).filter(lambda t: t.isascii() and len(t) < 64))
    def same(text):
        assert (not function(text)) == (re.fullmatch(pattern, text, re.ASCII) is not None)

    same()


def test_values_in_messages_are_written_as_go_writes_json():
    assert str(field.invalid("f", ["<a>", 1, None], "no")) == 'f: Invalid value: ["\\u003ca\\u003e",1,null]: no'
    assert str(field.invalid("f", {"b": "x&y", "a": ()}, "no")) == 'f: Invalid value: {"b":"x\\u0026y","a":[]}: no'
    assert str(field.invalid("f", "<a>", "no")) == 'f: Invalid value: "<a>": no'
