"""Lists as bytes: in one piece if they are small, otherwise page by page at one revision.

Each page is read in its own transaction. A list of any length therefore holds about one page in memory, blocks the event loop for at most
the time of one page, and needs no thread: reading 150 pods takes 0.2 ms. Encodings that start with their length (protobuf) or that are
encoded as a whole (YAML, indented JSON) are collected page by page.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import orjson

from kas.endpoints import listmessages, respond
from kas.endpoints.listpages import (
    END_BYTES,
    FIRST_ITEMS,
    PAGE_ITEMS,
    REST_BYTES,
    WRITES_BEFORE_REST,
    Ahead,
    Listing,
    collecting,
    counts,
    large,
    list_meta,
    making,
    many,
    next_items,
    plain_meta,
    shown,
    size_of,
    stream,
    underway,
)
from kas.endpoints.postfilter import Sieve, filtered
from kas.meta.offload import POOL
from kas.meta.records import NamedTuple
from kas.meta.waiting import awaited
from kas.observe import counted
from kas.registry import printing as printers
from kas.registry.versions import Shown
from kas.request.http import Response
from kas.request.negotiation import JSON, PROTOBUF, YAML
from kas.types.scheme import builtin_kind, builtin_type, encode_json, encode_protobuf, envelope, pretty_json, protobuf_list

PRINTED_ITEMS = 16

_LIST_META = builtin_type("io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta")


def answer(q: Listing) -> Response | Awaitable[Response]:
    """Answer a list. Raises ``Compacted`` and ``FutureRevision`` for the first page; a failure in a later page aborts the connection."""
    registry = q.served.registry
    counted.LISTS.inc((q.served.group, q.served.resource))
    if many(registry.store, q.prefix, q.matcher):
        return _answer_in_thread(q._replace(in_thread=True))
    past = q.revision and registry.pages.revision - q.revision > WRITES_BEFORE_REST
    return _answer_in_thread(q) if past else _answer(q)


async def _answer_in_thread(q: Listing) -> Response:
    """Like ``answer``, in a thread: for old revisions, where the store has to undo many writes, and for selections among many keys."""
    async with collecting:
        found = await asyncio.to_thread(_answer, q)
    return await awaited(found)


def _answer(q: Listing) -> Response | Awaitable[Response]:
    m = q.media
    if q.sieve is not None:
        return _sifted(q, q.sieve)
    if not q.served.streams:
        return _whole(q)
    if m.accepted == JSON and not m.pretty:
        return _streamed(q, _objects if m.convert is None else _rows if m.convert.kind == respond.TABLE else _metadata)
    if m.accepted == PROTOBUF and m.convert is None:
        return listmessages.answer(q)
    return _whole(q)


def _whole(q: Listing) -> Response | Awaitable[Response]:
    """Answer in one piece: for encodings that require it, and for versions whose conversion may fail."""
    items = FIRST_ITEMS
    limit = min(items, q.limit or items)
    first = q.served.registry.pages.range(q.prefix, q.start, limit, q.revision, q.matcher, counts(q), max_bytes=underway.page_bytes)
    if not first.more or first.count == q.limit:
        return converted(q, list_meta(q, first), first.records)
    return _collected(q, first)


async def _sifted(q: Listing, sieve: Sieve) -> Response:
    """Answer with the objects that are selected after their conversion."""
    async with q.served.converting or collecting:
        found = await filtered(q, sieve, q.start, q.revision)
        return encode(q, list_meta(q, found), found.shown)


def converted(q: Listing, meta: dict[str, Any], records: Sequence[Shown]) -> Response | Awaitable[Response]:
    """Return the records as a list, converted first. The result is an awaitable if that has to wait."""
    in_thread = respond.long_to_write(q.media, size_of(records)) or (not q.served.native and large(records, q.served.converts_from))
    if in_thread or respond.prints_long(q.req, q.served):
        return _encode_in_pool(q, meta, records)
    found = q.served.convert(records)
    return encode(q, meta, found) if isinstance(found, Sequence) else _encode_when_converted(q, meta, found)


async def _encode_in_pool(q: Listing, meta: dict[str, Any], records: Sequence[Shown]) -> Response:
    async with q.served.converting or collecting:
        return await POOL.run(encode, q, meta, await q.served.converted(records))


async def _encode_when_converted(q: Listing, meta: dict[str, Any], pending: Awaitable[Sequence[Shown]]) -> Response:
    return encode(q, meta, await pending)


# --- JSON, streamed


class _Place(NamedTuple):
    """The position of a page in the answer, and the answer's metadata."""

    meta: dict[str, Any]
    begins: bool
    ends: bool


# Returns the position of a scan's result; called before or after the page is encoded.
_Placing = Callable[[Any], _Place]
# Returns the bytes before and after the items of a list with this metadata.
_Frame = Callable[[dict[str, Any]], tuple[bytes, bytes]]


def _around(frame: _Frame, place: _Place, count: int) -> tuple[bytes, bytes]:
    """Return the bytes before and after the items of a page."""
    before, after = frame(place.meta) if place.begins or place.ends else (b"", b"")
    return before if place.begins else b"," if count else b"", after if place.ends else b""


def _around_with_end(frame: _Frame, place: _Place, count: int) -> tuple[bytes, bytes, int]:
    """Like ``_around``, with the number of bytes at the page's end to encode separately; not 0 only for the last of several pages."""
    before, after = _around(frame, place, count)
    return before, after, END_BYTES if place.ends and not place.begins else 0


# A page's bytes, or for a large page the function that encodes it, to be called in the thread pool.
_Body = bytes | Callable[[], bytes]


def _deferred(q: Listing, result: Any, make: Callable[[], bytes]) -> tuple[Any, _Body]:
    return result, make if large(result.records, q.served.converts_from) or respond.prints_long(q.req, q.served) else make()


def _objects(q: Listing, start: str, limit: int, revision: int, count: bool, placing: _Placing, size: int) -> tuple[Any, _Body]:
    """Read a page of whole objects."""
    store, frame = q.served.registry.pages, q.served.list_frame
    if q.served.native:
        wrap = lambda r: _around_with_end(frame, placing(r), r.count)  # noqa: E731
        result = store.range_json(q.prefix, start, limit, revision, q.matcher, count, wrap=wrap, max_bytes=size)
        assert result.body is not None  # stored records always have JSON
        return result, result.body
    result = store.range(q.prefix, start, limit, revision, q.matcher, count, max_bytes=size)
    before, after = _around(frame, placing(result), result.count)
    return _deferred(q, result, lambda: b"".join((before, b",".join([q.served.item(rec) for rec in shown(q, result.records)]), after)))


def _metadata(q: Listing, start: str, limit: int, revision: int, count: bool, placing: _Placing, size: int) -> tuple[Any, _Body]:
    """Read a page of PartialObjectMetadata, whose metadata is cut out of the stored JSON."""
    assert q.media.convert is not None
    store, version = q.served.registry.pages, q.media.convert.version
    head = f'{{"kind":"{respond.PARTIAL_LIST}","apiVersion":"meta.k8s.io/{version}","metadata":'.encode()
    lead = f'{{"kind":"{respond.PARTIAL}","apiVersion":"meta.k8s.io/{version}",'.encode()
    frame = lambda meta: (head + orjson.dumps(meta) + b',"items":[', b"]}\n")  # noqa: E731

    def wrap(r: Any) -> tuple[bytes, bytes, int]:
        place = placing(r)
        if place.begins and place.ends and not r.count:
            return head + orjson.dumps(place.meta) + b',"items":null}\n', b"", 0  # a nil slice in Go
        return _around_with_end(frame, place, r.count)

    if q.served.native:  # only for the stored version: a conversion may keep data in annotations
        result = store.range_json(
            q.prefix, start, limit, revision, q.matcher, count, lead=lead, metadata_only=True, wrap=wrap, max_bytes=size
        )
        if result.body is not None:
            return result, result.body
        # A record was written without the position where its metadata ends.
        revision = revision or result.revision
    result = store.range(q.prefix, start, limit, revision, q.matcher, count, max_bytes=size)
    before, after, _ = wrap(result)
    type_ = builtin_kind("meta.k8s.io", version, respond.PARTIAL).type


    def make() -> bytes:
        items = [encode_json(type_, respond.partial(q.served.object(rec), version)) for rec in shown(q, result.records)]
        return b"".join((before, b",".join(items), after))

    return _deferred(q, result, make)


def _rows(q: Listing, start: str, limit: int, revision: int, count: bool, placing: _Placing, size: int) -> tuple[Any, _Body]:
    """Read a page of a Table: the first page starts the Table, later ones have only rows."""
    result = q.served.registry.pages.range(q.prefix, start, limit, revision, q.matcher, count, max_bytes=size)
    place = placing(result)

    def make() -> bytes:
        table = _table(q, place.meta if place.begins else {}, shown(q, result.records))
        body = encode_json(builtin_kind("meta.k8s.io", _version(q), respond.TABLE).type, table)
        if place.begins and place.ends:
            return body + b"\n"
        # Quotes within strings are escaped, so this finds the member itself, which is the last one.
        rows = body.index(b'"rows":[') + 8
        cut = body[:-2] if place.begins else (b"," if result.count else b"") + body[rows:-2]
        return cut + b"]}\n" if place.ends else cut

    return _deferred(q, result, make)


def _version(q: Listing) -> str:
    assert q.media.convert is not None
    return q.media.convert.version


def _table(q: Listing, meta: dict[str, Any], records: Sequence[Shown]) -> dict[str, Any]:
    s = q.served
    return printers.table(
        (s.group, s.version, s.kind), [s.object(rec) for rec in records], now=time.time(),
        include_object=q.req.params.get("includeObject"), list_metadata=meta, version=_version(q), custom_columns=s.columns,
    )  # fmt: skip


# (list, start, maximum items, revision, whether to count, placing, maximum stored bytes)
_Page = Callable[[Listing, str, int, int, bool, _Placing, int], tuple[Any, _Body]]


def _read_and_build(page: _Page, *args: Any) -> tuple[Any, bytes]:
    result, body = page(*args)
    return result, body if isinstance(body, bytes) else body()


def _single_response(q: Listing, body: _Body) -> Response | Awaitable[Response]:
    if isinstance(body, bytes):
        return respond.finish(q.req, 200, JSON, body)
    return POOL.run(lambda: respond.finish(q.req, 200, JSON, body()))


def _streamed(q: Listing, page: _Page) -> Response | Awaitable[Response]:
    items = PRINTED_ITEMS if page is _rows else FIRST_ITEMS
    meta: dict[str, Any] | None = None

    def placing(now: Any) -> _Place:
        ends = not now.more or now.count == q.limit
        return _Place(meta or (list_meta(q, now) if ends else plain_meta(q, now.revision)), True, ends)

    revision = q.revision
    if q.limit <= items:
        result, body = page(q, q.start, q.limit or items, revision, counts(q), placing, underway.page_bytes)
        if not result.more or result.count == q.limit:
            return _single_response(q, body)
        revision = result.revision
    if q.limit:
        # The metadata may be encoded before the items, so the end of the list must be known before they are read.
        last = _last_page(q, revision)
        meta, revision = list_meta(q, last), last.revision
        result, body = page(q, q.start, min(items, q.limit), revision, False, placing, underway.page_bytes)
        if not result.more or result.count == q.limit:
            return _single_response(q, body)
    ahead = Ahead()
    return stream(q, _pages(q, page, result, body, meta or plain_meta(q, result.revision), ahead), ahead=ahead)


def _last_page(q: Listing, revision: int) -> Any:
    """Return the result of the scan that ends at ``limit``. It reads no objects, only their sizes."""
    store, start, left = q.served.registry.pages, q.start, q.limit
    while True:
        size = min(PAGE_ITEMS, left)
        result = store.range_json(q.prefix, start, size, revision, q.matcher, counts(q) and size == left, wrap=_no_body)
        left -= result.count
        if not result.more or not left:
            return result
        start, revision = result.next_key, result.revision


def _no_body(result: Any) -> None:
    """A ``wrap`` for scans that only report sizes."""


async def _pages(q: Listing, page: _Page, result: Any, body: _Body, meta: dict[str, Any], ahead: Ahead) -> AsyncIterator[bytes]:
    """Yield the pieces of the body. Each page is read after the previous one has been taken."""
    store, revision, sent = q.served.registry.pages, result.revision, result.count

    def placing(now: Any) -> _Place:
        return _Place(meta, False, not now.more or sent + now.count == q.limit)

    while True:
        if not isinstance(body, bytes):
            body = await POOL.run(body)
        ahead.more, ahead.end = result.more and sent != q.limit, result.end
        yield body
        if not ahead.more:
            return
        left = q.limit - sent if q.limit else 0
        args = (q, result.next_key)
        if store.revision - revision > WRITES_BEFORE_REST:
            async with collecting:
                result, body = await asyncio.to_thread(_read_and_build, page, *args, left, revision, False, placing, REST_BYTES)
        else:
            items = PRINTED_ITEMS if page is _rows else next_items(result.count, len(body))
            made = partial(page, *args, min(items, left or items), revision, False, placing, underway.page_bytes)
            if q.in_thread:
                async with collecting:
                    result, body = await asyncio.to_thread(made)
            else:
                if (throttle := making.throttle).exhausted:
                    await throttle.wait()
                result, body = made()
        sent += result.count


# --- encodings that are built as a whole


async def _all_pages(q: Listing, result: Any) -> AsyncIterator[Any]:
    """Yield the result of every page, and let the event loop run in between."""
    store, revision, seen = q.served.registry.pages, result.revision, 0
    while True:
        seen += result.count
        yield result
        if not result.more or seen == q.limit:
            return
        await asyncio.sleep(0)
        items = next_items(result.count, sum(map(len, result.records)))
        left = q.limit - seen if q.limit else items
        count = counts(q) and left <= items
        args = (q.prefix, result.next_key, min(items, left), revision, q.matcher, count)
        read = partial(store.range, *args, max_bytes=underway.page_bytes)
        result = await asyncio.to_thread(read) if q.in_thread else read()


async def _collected(q: Listing, first: Any) -> Response:
    """Answer in YAML, indented JSON or a version that is converted by a webhook. Encoded in the thread pool, because that takes long."""
    records: list[Shown] = []
    async with q.served.converting or collecting:
        async for result in _all_pages(q, first):
            records += await q.served.converted(result.records)
        return await POOL.run(encode, q, list_meta(q, result), records)


def encode(q: Listing, meta: dict[str, Any], records: Sequence[Shown]) -> Response:
    """Return records in the version of the request as a list, in any media type and conversion."""
    req, served, m = q.req, q.served, q.media
    if m.convert is None and m.accepted == JSON:
        before, after = served.list_frame(meta)
        body = b"".join((before, b",".join([served.item(x) for x in records]), after))
        return respond.finish(req, 200, JSON, pretty_json(body) if m.pretty else body)
    if m.convert is None and m.accepted == YAML:  # object by object: a single call for all would hold the GIL throughout
        value = orjson.loads(b"".join(served.list_frame(meta)))
        return respond.finish(req, 200, YAML, respond.to_yaml({**value, "items": [orjson.loads(served.item(x)) for x in records]}))
    if m.convert is None:
        assert served.list_type is not None  # types without protobuf were rejected before
        message = encode_protobuf(served.list_type, {"metadata": meta}) + listmessages.messages_of(served, records)
        return respond.finish(req, 200, PROTOBUF, envelope(served.api_version, served.list_kind, message))
    if m.accepted == PROTOBUF and m.convert.kind == respond.PARTIAL_LIST:
        kind = builtin_kind("meta.k8s.io", m.convert.version, respond.PARTIAL_LIST)
        parts = [served.partial_protobuf(rec, rec.revision) for rec in records]
        list_meta = encode_protobuf(_LIST_META, meta)
        return respond.finish(req, 200, PROTOBUF, protobuf_list(list_meta, parts, api_version=kind.api_version, kind=kind.kind))
    if m.convert.kind == respond.TABLE:
        return respond.generic(req, m, _table(q, meta, records))
    version = m.convert.version
    value = {"kind": respond.PARTIAL_LIST, "apiVersion": f"meta.k8s.io/{version}", "metadata": meta,
             "items": [respond.partial(served.object(rec), version) for rec in records] or None}  # fmt: skip
    return respond.generic(req, m, value)
