"""Lists as protobuf, from copies of stored messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

from kas._codecs import ENVELOPE_TAIL, envelope_head
from kas.endpoints import respond
from kas.endpoints.listpages import (
    END_BYTES,
    FIRST_ITEMS,
    REST_BYTES,
    WRITES_BEFORE_REST,
    Ahead,
    Listing,
    collecting,
    counts,
    large,
    list_meta,
    next_items,
    shown,
    stream,
    underway,
)
from kas.endpoints.served import Served
from kas.meta import errors
from kas.meta.offload import POOL, step
from kas.meta.waiting import awaited
from kas.registry.versions import Shown
from kas.request.http import Response
from kas.request.negotiation import PROTOBUF
from kas.types.scheme import encode_protobuf, protobuf_list

# Given a result and the size of its items, returns the bytes before and after a page, and how many bytes of its end to encode separately.
_Around = Callable[[Any, int], tuple[bytes, bytes] | tuple[bytes, bytes, int]]


def answer(q: Listing) -> Response | Awaitable[Response]:
    """Answer with copies of stored messages.

    The envelope starts with the total length, so that is computed before the first byte is sent.
    """

    def around(now: Any, size: int) -> tuple[bytes, bytes]:
        return (b"", b"") if now.more and now.count != q.limit else _list_ends(q, now, size)

    first = q.start, min(FIRST_ITEMS, q.limit or FIRST_ITEMS), q.revision
    if q.served.native:
        return _respond_or_continue(q, *_messages(q, *first, counts(q), around, underway.page_bytes))
    result = q.served.registry.pages.range(q.prefix, *first, q.matcher, counts(q), max_bytes=underway.page_bytes)
    in_thread = large(result.records, q.served.converts_from)
    return _join_in_pool(q, result, around) if in_thread else _respond_or_continue(q, result, _joined(q, result, around))


def _respond_or_continue(q: Listing, result: Any, body: bytes) -> Response | Awaitable[Response]:
    if not result.more or result.count == q.limit:
        return respond.finish(q.req, 200, PROTOBUF, body)
    return _more_messages(q, result, body)


async def _join_in_pool(q: Listing, result: Any, around: _Around) -> Response:
    return await awaited(_respond_or_continue(q, result, await POOL.run(_joined, q, result, around)))


async def _more_messages(q: Listing, first: Any, body: bytes) -> Response:
    """Answer with a list that begins with the page ``body``: streamed if every message is stored, otherwise collected."""
    left = q.limit - first.count if q.limit else 0
    rest = await asyncio.to_thread(_sizes, q, first.next_key, left, first.revision) if q.served.native else None
    if rest is None or rest.size < 0:
        return await _collected_messages(q, first, body)
    size = len(body) + rest.size
    before, after = _list_ends(q, rest, size)
    ahead = Ahead()

    async def pieces() -> AsyncIterator[bytes]:
        yield before
        result, sent, seen = first, len(body), first.count
        ahead.more = result.more and seen != q.limit
        yield body
        while ahead.more:
            result, page = await _next_messages(q, result, sent // seen, seen)
            sent += len(page) + len(result.end)
            seen += result.count
            if sent > size:
                break
            ahead.more = result.more and seen != q.limit
            if result.end and sent == size:
                ahead.end = result.end + after
                yield page
                return
            yield page
        if sent != size:
            # A state from the history was transcoded again, and another kas with other codecs had stored it.
            raise errors.internal(f"list {q.req.path}: {sent} bytes instead of {size}")
        yield after

    return stream(q, pieces(), PROTOBUF, ahead)


def _sizes(q: Listing, start: str, limit: int, revision: int) -> Any:
    """Return a scan that reports where ``limit`` ends and the size of the messages up to there, reading only their headers."""
    return q.served.registry.pages.range_protobuf(q.prefix, start, limit, revision, q.matcher, counts(q), wrap=lambda r: None)


async def _next_messages(q: Listing, last: Any, item_bytes: int, seen: int) -> tuple[Any, bytes]:
    store, left = q.served.registry.pages, q.limit - seen if q.limit else 0

    def around(now: Any, size: int) -> tuple[bytes, bytes, int]:
        return b"", b"", 0 if now.more and seen + now.count != q.limit else END_BYTES

    if store.revision - last.revision > WRITES_BEFORE_REST:
        async with collecting:
            return await asyncio.to_thread(_messages, q, last.next_key, left, last.revision, False, around, REST_BYTES)
    items = next_items(1, item_bytes)
    args = (q, last.next_key, min(items, left or items), last.revision, False, around, underway.page_bytes)
    if q.in_thread:
        async with collecting:
            return await asyncio.to_thread(_messages, *args)
    return _messages(*args)


async def _collected_messages(q: Listing, result: Any, body: bytes) -> Response:
    chunks, revision, seen = [body], result.revision, result.count
    async with collecting:
        while result.more and seen != q.limit:
            await asyncio.sleep(0)
            items = next_items(result.count, len(chunks[-1]))
            left = q.limit - seen if q.limit else items
            count = counts(q) and left <= items
            args = (q, result.next_key, min(items, left), revision, count, _bare, underway.page_bytes)
            result, body = await step(q.in_thread or not q.served.native, _messages, *args)
            seen += result.count
            chunks.append(body)
        before, after = _list_ends(q, result, sum(map(len, chunks)))

    async def pieces() -> AsyncIterator[bytes]:
        yield before
        chunks.reverse()
        while chunks:
            yield chunks.pop()
        yield after

    return stream(q, pieces(), PROTOBUF)


def _list_ends(q: Listing, result: Any, size: int) -> tuple[bytes, bytes]:
    """Return the bytes before and after ``size`` bytes of items. A list message is {1: ListMeta, 2: items…}."""
    assert q.served.list_type is not None  # every resource that can be listed has a list type
    meta = encode_protobuf(q.served.list_type, {"metadata": list_meta(q, result)})
    return envelope_head(q.served.api_version, q.served.list_kind, len(meta) + size) + meta, ENVELOPE_TAIL


def _bare(result: Any, size: int) -> tuple[bytes, bytes]:
    return b"", b""


def _messages(q: Listing, start: str, limit: int, revision: int, count: bool, around: _Around, max_bytes: int) -> tuple[Any, bytes]:
    """Return a page of items as field 2 of a list message, between the bytes that ``around`` returns; at most about ``max_bytes``."""
    store = q.served.registry.pages
    if q.served.native:
        result = store.range_protobuf(
            q.prefix, start, limit, revision, q.matcher, count, wrap=lambda r: around(r, r.size), max_bytes=max_bytes
        )
        if result.body is not None:
            return result, result.body
        # Some record was written by a kas that did not store messages, or comes from the history.
        revision = revision or result.revision
    result = store.range(q.prefix, start, limit, revision, q.matcher, count, max_bytes=max_bytes)
    return result, _joined(q, result, around)


def _joined(q: Listing, result: Any, around: _Around) -> bytes:
    items = messages_of(q.served, shown(q, result.records))
    before, after = around(result, len(items))[:2]
    return b"".join((before, items, after))


def messages_of(served: Served, records: Sequence[Shown]) -> bytes:
    """Return the records as field 2 of a list message."""
    return protobuf_list(b"", [served.protobuf(rec) for rec in records])[2:]  # without the empty metadata at the start
