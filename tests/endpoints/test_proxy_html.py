"""Links in proxied pages are rewritten: parsed and written as by golang.org/x/net/html."""

from __future__ import annotations

import asyncio
import zlib

import pytest

from kas.endpoints.proxy_html import MAX_TAG, Links, relinked


def rewrite(url: str) -> str:
    return "/proxy" + url if url.startswith("/") else url


@pytest.mark.parametrize(("page", "given"), [
    (b'<a href="/x">x</a>', b'<a href="/proxy/x">x</a>'),
    (b"<A HREF='/x?a=1&amp;b=2' Title=don't>", b'<a href="/proxy/x?a=1&amp;b=2" title="don&#39;t">'),
    (b'<br/><IMG SRC = "/i.png" usemap=#m alt>', b'<br/><img src="/proxy/i.png" usemap="#m" alt="">'),
    (b"<form action=/f /><p href=/no>1 < 2 <3</p>", b'<form action="/proxy/f"/><p href="/no">1 < 2 <3</p>'),
    (b'<!DOCTYPE html><!-- <a href="/x"> --><?x <a?>', b'<!DOCTYPE html><!-- <a href="/x"> --><?x <a?>'),
    (b'<script src="/s">"<a href=/x>"</SCRIPT ><a href=/y>', b'<script src="/proxy/s">"<a href=/x>"</SCRIPT ><a href="/proxy/y">'),
    ('<a href="/é" title="&lt;&quot;">'.encode(), '<a href="/proxy/é" title="&lt;&#34;">'.encode()),
    (b'<a href="/\xff">', b'<a href="/proxy/\xff">'),
    (b'<a href="http://elsewhere/x"><a href="/unfinished', b'<a href="http://elsewhere/x"><a href="/unfinished'),
    (b"<", b"<"),
])  # fmt: skip
def test_pages(page, given):
    assert Links(rewrite).feed(page, True) == given
    links = Links(rewrite)
    assert b"".join(links.feed(page[i : i + 1]) for i in range(len(page))) + links.feed(b"", True) == given


def test_unterminated_markup_is_not_buffered():
    links, page = Links(rewrite), b'<a href="' + b"x" * (4 * MAX_TAG)
    given = b"".join(links.feed(page[i : i + 4096]) for i in range(0, len(page), 4096))
    assert page.startswith(given) and len(given) >= 2 * MAX_TAG
    assert given + links.feed(b"", True) == page


@pytest.mark.parametrize("part", [b"<a", b"<!--", b"<a x=", b"<script>", b"<a '", b"</"])
def test_unterminated_markup_is_read_once(part, monkeypatch):
    """Not again from each byte on."""
    looked = []
    markup = Links._markup
    monkeypatch.setattr(Links, "_markup", lambda self, data, at: looked.append(at) or markup(self, data, at))
    links, page = Links(rewrite), part * (16 * MAX_TAG // len(part))
    assert links.feed(page) + links.feed(b"", True) == page
    assert len(looked) < 64


def through(data: bytes, encoding: str) -> bytes:
    async def run() -> bytes:
        async def pieces():
            for i in range(0, len(data), 100):
                yield data[i : i + 100]

        return b"".join([piece async for piece in relinked(pieces(), encoding, rewrite)])

    return asyncio.run(run())


@pytest.mark.parametrize(("encoding", "window"), [("gzip", 31), ("deflate", -15)])
def test_encoded_pages(encoding, window):
    page = b'<a href="/x">x</a>' * 20_000
    packed = zlib.compressobj(wbits=window)
    data = packed.compress(page) + packed.flush()
    assert zlib.decompress(through(data, encoding), window) == page.replace(b"/x", b"/proxy/x")
    with pytest.raises(ValueError):
        through(b"no such thing", encoding)
