"""URLs as parsed by Go's ``url.Parse`` and ``url.ParseRequestURI`` (Go 1.26, whose rules for hosts are stricter than before), and their
parts and text as in ``url.URL``.
"""

from __future__ import annotations

import re
from urllib.parse import unquote, unquote_to_bytes

from kas.meta.field import go_quote
from kas.meta.netip import parse_addr
from kas.meta.records import NamedTuple

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*+):")  # possessive: no backtracking when there is no scheme
_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_USER = re.compile(r"[A-Za-z0-9._:~!$&'()*+,;=%@-]*")
# A percent sign may only escape a non-ASCII byte or itself.
_NOT_IN_HOST = re.compile(r"[ #\\^`{|}]|%(?![89A-Fa-f][0-9A-Fa-f]|25)")
# In a zone also characters that a host may contain literally, and a blank.
_NOT_IN_ZONE = re.compile(r"[ #\\^`{|}]|%(?!2[0-24-9A-Ea-e]|3[0-9A-Ea-e]|[46][1-9A-Fa-f]|[57][0-9Aa]|5[BDFbdf]|7[Ee])")
_PORT = re.compile(r":[0-9]*\Z")
MAX_PARAMETERS = 10_000  # a query with more is treated as having none
# The characters that each part keeps unescaped when it is written, and (…_READ) those that may be unescaped when it is read.
_LETTERS = rb"A-Za-z0-9\-_.~"
_PATH, _PATH_READ = re.compile(rb"[^" + _LETTERS + rb"$&+,/:;=@]"), re.compile(rb"[^" + _LETTERS + rb"$&+,/:;=@!'()*\[\]%]")
_FRAGMENT = re.compile(rb"[^" + _LETTERS + rb"$&+,/:;=?@!()*]")
_FRAGMENT_READ = re.compile(rb"[^" + _LETTERS + rb"$&+,/:;=?@!'()*\[\]%]")
_HOST, _NAME = re.compile(rb"[^" + _LETTERS + rb"!$&'()*+,;=:\[\]<>\"]"), re.compile(rb"[^" + _LETTERS + rb"$&+,;=]")


class URL(NamedTuple):
    """A parsed URL. ``user`` is the user name and password as written, None when there are none. An ``opaque`` URL has no path. ``path``,
    ``query`` and ``fragment`` keep their escapes; the host does not. ``asks`` is True for an empty query after "?", ``hostless`` when an
    absolute path directly follows the scheme.
    """

    scheme: str
    user: str | None
    host: str
    path: str
    query: str
    fragment: str = ""
    opaque: str = ""
    asks: bool = False
    hostless: bool = False

    @property
    def hostname(self) -> str:
        """The host without port and brackets."""
        name = self.host[: -len(self.port) - 1] if _PORT.search(self.host) else self.host
        return name[1:-1] if name.startswith("[") and name.endswith("]") else name

    @property
    def port(self) -> str:
        """The port digits of the host, "" when there are none."""
        found = _PORT.search(self.host)
        return found.group()[1:] if found is not None else ""

    @property
    def userinfo(self) -> str:
        """User name and password, escaped for output."""
        name, colon, password = (self.user or "").partition(":")
        return f"{_written(_NAME, name)}:{_written(_NAME, password)}" if colon else _written(_NAME, name)

    @property
    def escaped_path(self) -> str:
        """``EscapedPath``: the path as read if its escaping is valid, else escaped anew."""
        return self.path if _PATH_READ.search(self.path.encode()) is None else _written(_PATH, self.path)

    @property
    def escaped_fragment(self) -> str:
        """``EscapedFragment``, by the same rule."""
        well = _FRAGMENT_READ.search(self.fragment.encode()) is None
        return self.fragment if well else _written(_FRAGMENT, self.fragment)

    def values(self) -> dict[str, list[str]]:
        """``Query``: the valid parameters; none if there are ``MAX_PARAMETERS`` or more "&"."""
        out: dict[str, list[str]] = {}
        for pair in self.query.split("&") if self.query.count("&") < MAX_PARAMETERS else ():
            if not pair or ";" in pair or _ESCAPE.search(pair):
                continue
            key, _, value = (unquote_to_bytes(p.replace("+", " ")).decode("utf-8", "replace") for p in pair.partition("="))
            out.setdefault(key, []).append(value)
        return out

    def __str__(self) -> str:
        out, path = f"{self.scheme}:" if self.scheme else "", self.escaped_path
        if self.opaque:
            out += self.opaque
        else:
            named = bool(self.host) or self.user is not None
            if named or (self.scheme and not self.hostless):
                out += "//" if named or path else ""
                out += f"{self.userinfo}@" if self.user is not None else ""
                out += _HOST.sub(_escaped, self.host.encode()).decode()
            out += "/" if path and path[0] != "/" and self.host else ""
            out += "./" if not out and ":" in path.partition("/")[0] else ""
            out += path
        out += f"?{self.query}" if self.asks or self.query else ""
        return out + (f"#{self.escaped_fragment}" if self.fragment else "")


def parse(text: str) -> URL:
    """``url.Parse``. Raises ValueError with Go's whole text."""
    rest, _, fragment = text.partition("#")
    try:
        url = _parse(rest, of_request=False)
    except ValueError as e:
        raise ValueError(f"parse {go_quote(rest)}: {e}") from None
    try:
        _check_escapes(fragment)
    except ValueError as e:
        raise ValueError(f"parse {go_quote(text)}: {e}") from None
    return url._replace(fragment=fragment)


def parse_request_uri(text: str) -> URL:
    """``url.ParseRequestURI``, which does not split off a fragment. Raises ValueError with Go's text, without its leading ``parse "...":``.
    """
    return _parse(text, of_request=True)


def _parse(text: str, of_request: bool) -> URL:
    if _CONTROL.search(text):
        raise ValueError("net/url: invalid control character in URL")
    if not text and of_request:
        raise ValueError("empty url")
    if text == "*":
        return URL("", None, "", "*", "")
    scheme, rest = "", text
    m = _SCHEME.match(text)
    if m is not None:
        scheme, rest = m.group(1).lower(), text[m.end() :]
    elif text.startswith(":"):
        raise ValueError("missing protocol scheme")
    rest, mark, query = rest.partition("?")
    asks = bool(mark) and not query
    if not rest.startswith("/"):
        if scheme:
            return URL(scheme, None, "", "", query, opaque=rest, asks=asks)
        if of_request:
            raise ValueError("invalid URI for request")
        if ":" in rest.partition("/")[0]:
            raise ValueError("first path segment in URL cannot contain colon")
    user, host, hostless = None, "", bool(scheme)
    if rest.startswith("//") and (scheme or (not of_request and not rest.startswith("///"))):
        authority, slash, path = rest[2:].partition("/")
        rest, hostless = slash + path, False
        name, at, host = authority.rpartition("@")
        host = _host(scheme, host)
        if not _USER.fullmatch(name):
            raise ValueError("net/url: invalid userinfo")
        _check_escapes(name)
        user = name if at else None
    _check_escapes(rest)
    return URL(scheme, user, host, rest, query, asks=asks, hostless=hostless and rest.startswith("/"))


def _host(scheme: str, text: str) -> str:
    """The unescaped host, possibly with a port."""
    if "[" in text:
        return _literal(text)
    strict = scheme in ("http", "https")  # other schemes may list several hosts
    colon = text.find(":") if strict else text.rfind(":")
    _check_port(text[colon:] if colon >= 0 else "")
    return _unescaped(text, _NOT_IN_HOST)


def _literal(text: str) -> str:
    end = text.rfind("]")
    if text.rfind("[") > 0:
        raise ValueError("invalid IP-literal")
    if end < 0:
        raise ValueError("missing ']' in host")
    port = text[end + 1 :]
    _check_port(port)
    address, percent, zone = text[1:end].partition("%25")
    address = _unescaped(address, _NOT_IN_HOST)
    if percent:
        address += _unescaped(percent + zone, _NOT_IN_ZONE)
    try:
        ip, _ = parse_addr(address)
    except ValueError as e:
        raise ValueError(f"invalid host: {e}") from None
    if ip.bits == 32:
        raise ValueError("invalid IP-literal")
    return f"[{address}]{port}"


def _check_port(text: str) -> None:
    if text and not _PORT.match(text):
        raise ValueError(f"invalid port {go_quote(text)} after host")


def _check_escapes(text: str) -> None:
    bad = _ESCAPE.search(text)
    if bad is not None:
        raise ValueError(_no_escape(text, bad.start()))


def _no_escape(text: str, at: int) -> str:
    """Go's error for an invalid escape: it shows three bytes, here cut to whole characters."""
    return f"invalid URL escape {go_quote(text[at : at + 3].encode()[:3].decode('utf-8', 'ignore'))}"


def _unescaped(text: str, bad: re.Pattern[str]) -> str:
    m = bad.search(text)
    if m is not None and m[0] == "%":
        raise ValueError(_no_escape(text, m.start()))
    if m is not None:
        raise ValueError(f"invalid character {go_quote(m[0])} in host name")
    return unquote(text)


def _written(escaped: re.Pattern[bytes], text: str) -> str:
    """Unescapes a part and escapes it again, minimally."""
    return escaped.sub(_escaped, unquote_to_bytes(text)).decode()


def _escaped(m: re.Match[bytes]) -> bytes:
    return b"%%%02X" % m.group()[0]
