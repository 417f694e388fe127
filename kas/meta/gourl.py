"""URLs as Go's ``url.Parse`` and ``url.ParseRequestURI`` read them."""

from __future__ import annotations

import re
from typing import NamedTuple

from kas.meta.field import go_quote

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_USER = re.compile(r"[A-Za-z0-9._:~!$&'()*+,;=%@-]*")
# A percent sign may only stand before a byte that is no ASCII, or itself (of a zone).
_NOT_IN_HOST = re.compile(r"[ \\^`{|}]|%(?![89A-Fa-f][0-9A-Fa-f]|25)")
_PORT = re.compile(r":[0-9]*\Z")


class URL(NamedTuple):
    """What a URL says. ``user`` is whether it names one, with a password or not; ``opaque`` is all of it, without a path."""

    scheme: str
    user: bool
    host: str
    path: str
    query: str
    fragment: str = ""
    opaque: str = ""


def parse(text: str) -> URL:
    """``url.Parse``. Raises ValueError with Go's whole text."""
    rest, _, fragment = text.partition("#")
    try:
        url = _parse(rest, of_request=False)
    except ValueError as e:
        raise ValueError(f"parse {go_quote(rest)}: {e}") from None
    bad = _ESCAPE.search(fragment)
    if bad is not None:
        raise ValueError(f"parse {go_quote(text)}: invalid URL escape {go_quote(fragment[bad.start() : bad.start() + 3])}")
    return url._replace(fragment=fragment)


def parse_request_uri(text: str) -> tuple[str, str, str, str]:
    """(scheme, host, path, query). Raises ValueError with Go's text, without its ``parse "...":`` in front."""
    url = _parse(text, of_request=True)
    return url.scheme, url.host, url.path, url.query


def _parse(text: str, of_request: bool) -> URL:
    if any(c < " " or c == "\x7f" for c in text):
        raise ValueError("net/url: invalid control character in URL")
    if not text and of_request:
        raise ValueError("empty url")
    if text == "*":
        return URL("", False, "", "*", "")
    scheme, rest = "", text
    m = _SCHEME.match(text)
    if m is not None:
        scheme, rest = m.group(1).lower(), text[m.end() :]
    elif text.startswith(":"):
        raise ValueError("missing protocol scheme")
    rest, _, query = rest.partition("?")
    if not rest.startswith("/"):
        if scheme:
            return URL(scheme, False, "", "", query, opaque=rest)
        if of_request:
            raise ValueError("invalid URI for request")
        if ":" in rest.partition("/")[0]:
            raise ValueError("first path segment in URL cannot contain colon")
    user, host = False, ""
    if rest.startswith("//") and (scheme or (not of_request and not rest.startswith("///"))):
        authority, slash, path = rest[2:].partition("/")
        rest = slash + path
        name, at, host = authority.rpartition("@")
        user, host = bool(at), _host(host)
        if not _USER.fullmatch(name):
            raise ValueError("net/url: invalid userinfo")
    bad = _ESCAPE.search(rest)
    if bad is not None:
        raise ValueError(f"invalid URL escape {go_quote(rest[bad.start() : bad.start() + 3])}")
    return URL(scheme, user, host, rest, query)


def _host(text: str) -> str:
    if text.startswith("["):
        end = text.rfind("]")
        if end < 0:
            raise ValueError("missing ']' in host")
        port = text[end + 1 :]
    else:
        colon = text.rfind(":")
        port = text[colon:] if colon >= 0 else ""
    if port and not _PORT.match(port):
        raise ValueError(f"invalid port {go_quote(port)} after host")
    for m in _NOT_IN_HOST.finditer(text):
        if m[0] == "%":
            raise ValueError(f"invalid URL escape {go_quote(text[m.start() : m.start() + 3])}")
        raise ValueError(f"invalid character {go_quote(m[0])} in host name")
    return text
