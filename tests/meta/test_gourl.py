"""URLs as Go reads them."""

from __future__ import annotations

import pytest

from kas.meta.gourl import URL, parse, parse_request_uri


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("https://u:p@x:1/a?b=@c#d", URL("https", "u:p", "x:1", "/a", "b=@c", "d")),
        ("https://x?a=@b", URL("https", None, "x", "", "a=@b")),
        ("//u@h/x", URL("", "u", "h", "/x", "")),
        ("a:b", URL("a", None, "", "", "", opaque="b")),
        ("x", URL("", None, "", "x", "")),
        ("", URL("", None, "", "", "")),
        ("///a", URL("", None, "", "///a", "")),
        ("https://[fe80::1%25e]:1/", URL("https", None, "[fe80::1%e]:1", "/", "")),
        ("https://h%C3%A9/", URL("https", None, "hé", "/", "")),
        ("postgres://a:1,b:2/x", URL("postgres", None, "a:1,b:2", "/x", "")),
        ("https:/x?", URL("https", None, "", "/x", "", asks=True, hostless=True)),
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
        ("http://h:80:80/", 'parse "http://h:80:80/": invalid port ":80:80" after host'),
        ("https://::1/", 'parse "https://::1/": invalid port "::1" after host'),
        ("https://[x]/", 'parse "https://[x]/": invalid host: ParseAddr("x"): unable to parse IP'),
        ("https://[1.2.3.4]/", 'parse "https://[1.2.3.4]/": invalid IP-literal'),
        ("https://x[::1]/", 'parse "https://x[::1]/": invalid IP-literal'),
        ("https://[::1]x/", 'parse "https://[::1]x/": invalid port "x" after host'),
        ("https://[fe80::1%25%2F]/", 'parse "https://[fe80::1%25%2F]/": invalid URL escape "%2F"'),
        ("https://u%zz@h/", 'parse "https://u%zz@h/": invalid URL escape "%zz"'),
        ("https://x\x01", 'parse "https://x\\x01": net/url: invalid control character in URL'),
    ],
)  # fmt: skip
def test_refusals(text, why):
    with pytest.raises(ValueError) as e:
        parse(text)
    assert str(e.value) == why


def test_a_request_uri_is_absolute_and_has_no_fragment():
    assert parse_request_uri("/a?b") == URL("", None, "", "/a", "b")
    for text, why in (("a", "invalid URI for request"), ("", "empty url"), ("https://h#f", 'invalid character "#" in host name')):
        with pytest.raises(ValueError, match=why):
            parse_request_uri(text)


@pytest.mark.parametrize(
    ("text", "written", "path", "host"),
    [
        ("HTTPS://h/a%2Fb", "https://h/a%2Fb", "/a%2Fb", ("h", "")),
        ("/a%2Fb c!", "/a/b%20c%21", "/a/b%20c%21", ("", "")),  # wrong escapes are escaped again
        ("https://[::1]:80/#", "https://[::1]:80/", "/", ("::1", "80")),
        ("https://[fe80::1%25e]?", "https://[fe80::1%25e]?", "", ("fe80::1%e", "")),
        ("https://u:p!@h:/é#é", "https://u:p%21@h:/%C3%A9#%C3%A9", "/%C3%A9", ("h", "")),
        ("https:///x", "https:///x", "/x", ("", "")),
        ("https:/x", "https:/x", "/x", ("", "")),
        ("mailto:a@b", "mailto:a@b", "", ("", "")),
    ],
)
def test_the_text_of_a_url(text, written, path, host):
    url = parse(text)
    assert (str(url), url.escaped_path, (url.hostname, url.port)) == (written, path, host)


def test_parameters():
    assert parse("/?a=1&a=%20+&b;c=1&d=%zz&e").values() == {"a": ["1", "  "], "e": [""]}
    assert parse("/?a" + "&" * 10_000).values() == {}
    assert parse("/?a" + "&" * 9_999).values() == {"a": [""]}  # as many as Go counts
