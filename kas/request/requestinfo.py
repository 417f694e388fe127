"""Parses a request line to RequestInfo: which verb on which resource, as upstream's ``endpoints/request/requestinfo.go``.

``parse(method, path, query)`` is the first thing that runs for every request; it is part of ``kas._fastpath``. It
takes the percent-decoded path and the raw query (bytes, str or Query), which is only decoded, by this module, for
lists, watches and collection deletes. It raises RequestInfoError, whose ``info`` holds what was understood, for
``/api/v1/watch`` and ``/api/v1/proxy`` with nothing behind. ``Query`` is the query string, decoded on first use as
Go's ``url.ParseQuery`` does it. No I/O; nothing here knows which resources exist.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote, unquote_to_bytes

from kas._fastpath import RequestInfo, RequestInfoError, install, parse
from kas.meta import utf8
from kas.meta.selectors import SelectorError, parse_field_selector, parse_label_selector
from kas.request.masking import PATH_SAFE, shown_target

__all__ = ["Query", "RequestInfo", "RequestInfoError", "parse"]

# Go refuses a query with more pairs (net/url urlmaxqueryparams); url.Query() then is empty.
MAX_QUERY_PAIRS = 10_000
LONGEST_NAMING = 16 << 10  # characters of selectors

_SPECIAL = re.compile(rb"[%+;\x80-\xff]")
_BAD_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_INT64 = re.compile(r"[+-]?[0-9]{1,30}\Z")


class Query:
    """A raw query string, decoded on first use.

    As in Go's ``req.URL.Query()``, ``+`` is a space, pairs with ``;`` or an invalid escape are skipped, repeated
    keys are kept in order and ``get`` returns the first value. ``pairs`` has every key with its values in order;
    callers must not change it.
    """

    __slots__ = ("pairs", "raw")
    pairs: dict[str, list[str]]

    def __init__(self, raw: bytes | str = b"") -> None:
        self.raw = raw.encode("utf-8", "surrogateescape") if isinstance(raw, str) else raw
        if not self.raw:
            self.pairs = {}

    def __getattr__(self, name: str) -> Any:
        # Called for missing attributes only, which ``pairs`` is before its first use: a list reads it a dozen times.
        if name != "pairs":
            raise AttributeError(name)
        self.pairs = _parse_query(self.raw)
        return self.pairs

    def get(self, key: str, default: str = "") -> str:
        """The first value of a parameter, as ``url.Values.Get``."""
        values = self.pairs.get(key)
        return values[0] if values else default

    def values(self, key: str) -> list[str]:
        """All values of a parameter, in order; empty if it was not sent."""
        return self.pairs.get(key, [])

    def flag(self, key: str) -> bool:
        """A boolean parameter as API conversion reads it: true if present, unless it is ``false`` or ``0``."""
        values = self.pairs.get(key)
        return values is not None and values[0].lower() not in ("false", "0")

    def __contains__(self, key: str) -> bool:
        return key in self.pairs

    def __bool__(self) -> bool:
        return bool(self.raw)

    def __repr__(self) -> str:
        return f"Query({self.raw!r})"


def _error_message(path: str, query: Query | bytes | str) -> str:
    """Upstream's text for a RequestInfoError on this path. It shows the URL as Go writes it, with credentials masked."""
    raw = query.raw if isinstance(query, Query) else query
    text = raw.decode("utf-8", "replace") if isinstance(raw, bytes) else raw
    return f"unable to determine kind and namespace from url, {shown_target(quote(path, safe=PATH_SAFE), text)}"


def _read_query(info: RequestInfo, query: Query | bytes | str) -> None:
    pairs = query.pairs if isinstance(query, Query) else Query(query).pairs
    if info.verb == "list":
        values = pairs.get("watch")
        if values is not None and values[0].lower() not in ("false", "0"):
            info.verb = "watch"
    selector = pairs.get("fieldSelector")
    if selector is not None:
        info.field_selector = selector[0]
        if selector[0] and info.verb != "deletecollection":
            info.name = _selected_name(pairs)
    selector = pairs.get("labelSelector")
    if selector is not None:
        info.label_selector = selector[0]


install(_read_query, _error_message)


def _selected_name(pairs: dict[str, list[str]]) -> str:
    """The name that a field selector requires, so that rules on single names apply. "" if any list option cannot be
    parsed, or if the selectors are long: this runs before authentication, and no client needs that much to name one
    object."""
    if len(pairs["fieldSelector"][0]) + len(pairs.get("labelSelector", [""])[0]) > LONGEST_NAMING:
        return ""
    for key in ("timeoutSeconds", "limit"):
        values = pairs.get(key)
        if values is not None and not (_INT64.match(values[0]) and -(2**63) <= int(values[0]) < 2**63):
            return ""
    try:
        parse_label_selector(pairs.get("labelSelector", [""])[0])
        name = parse_field_selector(pairs["fieldSelector"][0]).requires_exact_match("metadata.name") or ""
    except SelectorError:
        return ""
    # A name that no path could carry does not count.
    return "" if name in (".", "..") or "/" in name or "%" in name else name


def _parse_query(raw: bytes) -> dict[str, list[str]]:
    out: dict[str, list[str]] = {}
    if raw.count(b"&") >= MAX_QUERY_PAIRS:
        return out
    if not _SPECIAL.search(raw):
        for text in raw.decode("ascii").split("&"):
            if text:
                key, _, value = text.partition("=")
                out.setdefault(key, []).append(value)
        return out
    for pair in raw.split(b"&"):
        if not pair or b";" in pair or (b"%" in pair and _BAD_ESCAPE.search(pair)):
            continue
        name, _, rest = pair.partition(b"=")
        out.setdefault(_unescape(name), []).append(_unescape(rest))
    return out


def _unescape(text: bytes) -> str:
    if b"+" in text:
        text = text.replace(b"+", b" ")
    if b"%" in text:
        text = unquote_to_bytes(text)
    return utf8.text(text)
