"""URLs as Go's ``url.ParseRequestURI`` reads them."""

from __future__ import annotations

import re

from kas.meta.field import go_quote

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_PORT = re.compile(r":[0-9]*\Z")


def parse_request_uri(text: str) -> tuple[str, str, str, str]:
    """(scheme, host, path, query). Raises ValueError with Go's text, without its ``parse "...":`` in front."""
    if any(c < " " or c == "\x7f" for c in text):
        raise ValueError("net/url: invalid control character in URL")
    if not text:
        raise ValueError("empty url")
    if text == "*":
        return "", "", "*", ""
    scheme, rest = "", text
    m = _SCHEME.match(text)
    if m is not None:
        scheme, rest = m.group(1).lower(), text[m.end() :]
    elif text.startswith(":"):
        raise ValueError("missing protocol scheme")
    rest, mark, query = rest.partition("?")
    if not rest.startswith("/"):
        if scheme:
            return scheme, "", "", query if mark else ""  # opaque
        raise ValueError("invalid URI for request")
    host = ""
    if scheme and rest.startswith("//"):
        authority, slash, path = rest[2:].partition("/")
        rest = slash + path
        host = _host(authority.rpartition("@")[2])
    bad = _ESCAPE.search(rest)
    if bad is not None:
        raise ValueError(f"invalid URL escape {go_quote(rest[bad.start() : bad.start() + 3])}")
    return scheme, host, rest, query


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
    if " " in text:
        raise ValueError(f"invalid character {go_quote(' ')} in host name")
    return text
