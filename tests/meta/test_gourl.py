"""URLs as Go reads them."""

from __future__ import annotations

import pytest

from kas.meta.gourl import URL, parse, parse_request_uri


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("https://u:p@x:1/a?b=@c#d", URL("https", True, "x:1", "/a", "b=@c", "d")),
        ("https://x?a=@b", URL("https", False, "x", "", "a=@b")),
        ("//u@h/x", URL("", True, "h", "/x", "")),
        ("a:b", URL("a", False, "", "", "", opaque="b")),
        ("x", URL("", False, "", "x", "")),
        ("", URL("", False, "", "", "")),
        ("///a", URL("", False, "", "///a", "")),
        ("https://[fe80::1%25e]:1/", URL("https", False, "[fe80::1%25e]:1", "/", "")),
    ],
)  # fmt: skip
def test_parts(text, says):
    assert parse(text) == says


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("1:b", 'parse "1:b": first path segment in URL cannot contain colon'),
        (":x", 'parse ":x": missing protocol scheme'),
        ("http://[::1", """parse "http://[::1": missing ']' in host"""),
        ("https://x:y#f", 'parse "https://x:y": invalid port ":y" after host'),
        ("https://x y", 'parse "https://x y": invalid character " " in host name'),
        ("https://x%41", 'parse "https://x%41": invalid URL escape "%41"'),
        ("https://x/%zz", 'parse "https://x/%zz": invalid URL escape "%zz"'),
        ("https://x#%zz", 'parse "https://x#%zz": invalid URL escape "%zz"'),
        ("https://a<b@c/", 'parse "https://a<b@c/": net/url: invalid userinfo'),
        ("https://x\x01", 'parse "https://x\\x01": net/url: invalid control character in URL'),
    ],
)  # fmt: skip
def test_refusals(text, why):
    with pytest.raises(ValueError) as e:
        parse(text)
    assert str(e.value) == why


def test_a_request_names_an_absolute_one():
    assert parse_request_uri("/a?b") == ("", "", "/a", "b")
    for text, why in (("a", "invalid URI for request"), ("", "empty url")):
        with pytest.raises(ValueError, match=why):
            parse_request_uri(text)
