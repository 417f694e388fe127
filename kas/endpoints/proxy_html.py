"""Rewrites links in HTML pages from a proxied backend so that they lead through the proxy.

Upstream is apimachinery's ``util/proxy/transport.go``, which parses pages with golang.org/x/net/html. Pages are processed piece by piece;
at most one tag is held.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import AsyncIterator, Callable
from html import escape, unescape

from kas.meta.waiting import TimeSlice

MAX_TAG = 4 << 10  # a longer tag is passed through unchanged
PIECE = 8 << 10  # bytes processed at a time: some 4 ms
Rewrite = Callable[[str], str]

# Attributes that are URLs (HTML 4.01 and 5).
_URLS = {
    "a": ("href",), "applet": ("codebase",), "area": ("href",), "audio": ("src",), "base": ("href",), "blockquote": ("cite",),
    "body": ("background",), "button": ("formaction",), "command": ("icon",), "del": ("cite",), "embed": ("src",), "form": ("action",),
    "frame": ("longdesc", "src"), "head": ("profile",), "html": ("manifest",), "iframe": ("longdesc", "src"),
    "img": ("longdesc", "src", "usemap"), "input": ("src", "usemap", "formaction"), "ins": ("cite",), "link": ("href",),
    "object": ("classid", "codebase", "data", "usemap"), "q": ("cite",), "script": ("src",), "source": ("src",), "video": ("poster", "src"),
}  # fmt: skip
# Elements whose content is not markup.
_RAW = {
    name: re.compile(rf"</{name}[\s/>]".encode(), re.IGNORECASE)
    for name in ("iframe", "noembed", "noframes", "script", "style", "textarea", "title", "xmp")
}
_OPEN, _NAME, _BLANK = re.compile(rb"<[a-zA-Z!?/]"), re.compile(rb"[^\s/>]*"), re.compile(rb"[\s/]*")
_KEY, _EQUALS, _PLAIN = re.compile(rb"=?[^\s/=>]*"), re.compile(rb"\s*=\s*"), re.compile(rb"[^\s>]*")
# zlib's window bits for the encodings of HTTP.
_WINDOWS = {"gzip": 31, "deflate": -15}
ENCODINGS = frozenset(("", *_WINDOWS))
_Step = tuple[int, bytes] | None  # the next position and the output up to it, or None if more input is needed


class Links:
    """Rewrites the URLs of a page that arrives in pieces."""

    def __init__(self, rewrite: Rewrite) -> None:
        self._rewrite, self._held = rewrite, b""
        self._end: re.Pattern[bytes] | None = None  # ends content that is not markup

    def feed(self, piece: bytes, last: bool = False) -> bytes:
        """Process a piece and return what can be sent now; with ``last``, everything."""
        data, out, at = self._held + piece, [], 0
        if self._end is None and b">" not in piece and not last and data[:1] == b"<" and len(data) <= MAX_TAG:
            self._held = data  # still no complete tag
            return b""
        while at < len(data):
            step = self._markup(data, at) if self._end is None else self._raw(data, at, self._end)
            if step is None:
                if not last and len(data) - at <= MAX_TAG:
                    break
                end = len(data) if last else at + MAX_TAG
                step = end, data[at:end]  # too long, or cut off by the end of the page
            at, done = step
            out.append(done)
        self._held = data[at:]
        return b"".join(out)

    def _raw(self, data: bytes, at: int, pattern: re.Pattern[bytes]) -> _Step:
        found = pattern.search(data, at)
        if found:
            self._end = None
        end = found.start() if found else len(data) - len(pattern.pattern)
        return (end, data[at:end]) if found or end > at else None

    def _markup(self, data: bytes, at: int) -> _Step:
        found = _OPEN.search(data, at)
        if found is None:
            end = len(data) - data.endswith(b"<")
            return (end, data[at:end]) if end > at else None
        if found.start() > at:
            return found.start(), data[at : found.start()]
        if data[at + 1 : at + 2].isalpha():
            return self._tag(data, at)
        if b"<!--".startswith(data[at : at + 4]) and len(data) - at < len(b"<!--"):
            return None
        close = b"-->" if data.startswith(b"<!--", at) else b">"
        end = data.find(close, at + 2) + len(close)
        return (end, data[at:end]) if end >= len(close) else None

    def _tag(self, data: bytes, at: int) -> _Step:
        """Process a start tag; the output is formatted as golang.org/x/net/html does."""
        pos = _end(_NAME, data, at + 1)
        name = _text(data[at + 1 : pos]).lower()
        urls, out = _URLS.get(name, ()), ["<", name]
        while True:
            pos = _end(_BLANK, data, pos)
            if data[pos : pos + 1] in (b"", b">"):
                break
            start, pos = pos, _end(_KEY, data, pos)
            key, value = _text(data[start:pos]).lower(), b""
            equals = _EQUALS.match(data, pos)
            if equals:
                quote = data[equals.end() : equals.end() + 1]
                if quote in (b"'", b'"'):
                    start, pos = equals.end() + 1, data.find(quote, equals.end() + 1)
                    if pos < 0:
                        return None
                    value, pos = data[start:pos], pos + 1
                else:
                    start, pos = equals.end(), _end(_PLAIN, data, equals.end())
                    value = data[start:pos]
            said = unescape(_text(value).replace("\r\n", "\n").replace("\r", "\n"))
            said = escape(self._rewrite(said) if key in urls else said).replace("&#x27;", "&#39;").replace("&quot;", "&#34;")
            out.append(f' {key}="{said}"')
        if pos == len(data):
            return None
        out.append("/>" if data[pos - 1 : pos] == b"/" else ">")
        self._end = _RAW.get(name)
        return pos + 1, "".join(out).encode("utf-8", "surrogateescape")


def _end(pattern: re.Pattern[bytes], data: bytes, at: int) -> int:
    found = pattern.match(data, at)
    return found.end() if found else at


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


async def relinked(pieces: AsyncIterator[bytes], encoding: str, rewrite: Rewrite) -> AsyncIterator[bytes]:
    """Yield the page with its links rewritten, in the same encoding, one of ``ENCODINGS``. Raises ValueError for invalid data."""
    links, window, time_slice = Links(rewrite), _WINDOWS.get(encoding), TimeSlice()
    unpacked, packed = (zlib.decompressobj(window), zlib.compressobj(wbits=window)) if window is not None else (None, None)
    try:
        async for piece in pieces:
            while piece:
                await time_slice.pause()  # a page may consist of links only, and be endless
                if unpacked is None:
                    page, piece = piece[:PIECE], piece[PIECE:]
                else:
                    page = unpacked.decompress(piece, PIECE)
                    piece = unpacked.unconsumed_tail
                given = links.feed(page)
                yield given if packed is None else packed.compress(given)
        rest = links.feed(b"" if unpacked is None else unpacked.flush(), True)
        yield rest if packed is None else packed.compress(rest) + packed.flush()
    except zlib.error as e:
        raise ValueError(str(e)) from None
