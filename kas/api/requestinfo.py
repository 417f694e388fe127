"""From a request line to RequestInfo: which verb on which resource, as upstream's ``endpoints/request/requestinfo.go``.

``parse`` is the first thing that runs for every request; the path is cut in ``kas._fast_request``. ``Query`` is the query
string, decoded on first use by the rules of Go's ``url.ParseQuery``. No I/O, nothing here knows which resources exist.
"""

from __future__ import annotations

import re
from urllib.parse import quote, unquote_to_bytes

from kas._fast_request import RequestInfo, RequestInfoError, cut
from kas.api.selectors import SelectorError, parse_field_selector, parse_label_selector

__all__ = ["Query", "RequestInfo", "RequestInfoError", "parse"]

# Go refuses a query of more pairs than this (net/url urlmaxqueryparams); url.Query() then is empty.
MAX_QUERY_PAIRS = 10_000

_BAD_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_INT64 = re.compile(r"[+-]?[0-9]+\Z")
# What url.URL.EscapedPath leaves alone in a path.
_PATH_SAFE = "$&+,/:;=@"


class Query:
    """A raw query string with the decoded view made on first use.

    As Go's ``req.URL.Query()``: ``+`` is a blank, pairs that hold ``;`` or a broken escape are passed over, repeats are
    kept in order and ``get`` answers the first.
    """

    __slots__ = ("_pairs", "raw")

    def __init__(self, raw: bytes | str = b"") -> None:
        self.raw = raw.encode("utf-8", "surrogateescape") if isinstance(raw, str) else raw
        self._pairs: dict[str, list[str]] | None = None if self.raw else {}

    @property
    def pairs(self) -> dict[str, list[str]]:
        """Every key with its values in order; callers do not change it."""
        if self._pairs is None:
            self._pairs = _parse_query(self.raw)
        return self._pairs

    def get(self, key: str, default: str = "") -> str:
        values = self.pairs.get(key)
        return values[0] if values else default

    def values(self, key: str) -> list[str]:
        return self.pairs.get(key, [])

    def __contains__(self, key: str) -> bool:
        return key in self.pairs

    def __repr__(self) -> str:
        return f"Query({self.raw!r})"


def parse(method: str, path: str, query: Query | bytes | str = b"") -> RequestInfo:
    """The RequestInfo of ``method`` on the percent-decoded ``path``.

    ``query`` is raw; it is decoded only for lists, watches and collection deletes. Raises RequestInfoError, whose
    ``info`` holds what was understood, for ``/api/v1/watch`` and ``/api/v1/proxy`` without anything behind.
    """
    try:
        info = cut(method, path)
    except RequestInfoError as e:
        raw = query.raw if isinstance(query, Query) else query
        text = raw.decode("utf-8", "replace") if isinstance(raw, bytes) else raw
        e.args = (f"unable to determine kind and namespace from url, {quote(path, safe=_PATH_SAFE)}{'?' if text else ''}{text}",)
        raise
    if info.by_prefix or info.verb not in _COLLECTION_VERBS:
        return info
    if not isinstance(query, Query):
        if not query:
            return info
        query = Query(query)
    if query.raw:
        _read_selectors(info, query)
    return info


_COLLECTION_VERBS = frozenset(("list", "deletecollection"))


def _read_selectors(info: RequestInfo, query: Query) -> None:
    if info.verb == "list":
        watch, name = _list_options(query)
        if watch:
            info.verb = "watch"
        # A name in the field selector makes `resourceNames` rules apply; one that no path could carry does not.
        if name and name not in (".", "..") and "/" not in name and "%" not in name:
            info.name = name
    info.field_selector = query.get("fieldSelector")
    info.label_selector = query.get("labelSelector")


def _list_options(query: Query) -> tuple[bool, str]:
    """(watch, name) of the query as ListOptions; when any option does not decode only ``watch`` counts."""
    watch = _bool(query, "watch")
    for key in ("timeoutSeconds", "limit"):
        values = query.values(key)
        if values and not (_INT64.match(values[0]) and -(2**63) <= int(values[0]) < 2**63):
            return watch, ""
    try:
        parse_label_selector(query.get("labelSelector"))
        fields = parse_field_selector(query.get("fieldSelector"))
    except SelectorError:
        return watch, ""
    return watch, fields.requires_exact_match("metadata.name") or ""


def _bool(query: Query, key: str) -> bool:
    """A boolean parameter as conversion reads it: present means true unless it says false or 0."""
    values = query.values(key)
    return bool(values) and values[0].lower() not in ("false", "0")


def _parse_query(raw: bytes) -> dict[str, list[str]]:
    out: dict[str, list[str]] = {}
    pairs = raw.split(b"&", MAX_QUERY_PAIRS)
    if len(pairs) > MAX_QUERY_PAIRS:
        return out
    for pair in pairs:
        if not pair or b";" in pair or (b"%" in pair and _BAD_ESCAPE.search(pair)):
            continue
        key, _, value = pair.partition(b"=")
        out.setdefault(_unescape(key), []).append(_unescape(value))
    return out


def _unescape(text: bytes) -> str:
    if b"+" in text:
        text = text.replace(b"+", b" ")
    if b"%" in text:
        text = unquote_to_bytes(text)
    return text.decode("utf-8", "replace")
