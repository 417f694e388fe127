"""Lists as bytes: in one piece when they are small, page by page at one revision when they are not.

A page is read in a transaction of its own, so a list of any length holds about one page in memory, never blocks the loop for longer
than one page takes, and needs no thread: reading 150 pods takes 0.2 ms. Forms whose first bytes tell their length (protobuf) or
that are encoded as a whole (YAML, indented JSON) are collected page by page.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NamedTuple

import orjson

from kas._fast_types import ENVELOPE_TAIL, envelope_head
from kas.api import continuetoken, errors, printers
from kas.api.negotiation import JSON, PROTOBUF
from kas.api.scheme import SCHEME, encode_json, encode_protobuf, envelope, protobuf_list
from kas.edge.http import Headers, Request, Response, Write
from kas.endpoints import respond
from kas.endpoints.served import Served
from kas.store import Compacted

PAGE_BYTES = 1 << 20
FIRST_ITEMS = 128  # nothing is known of their size yet
PAGE_ITEMS = 512  # up to here a scan keeps the GIL
PRINTED_ITEMS = 16
# A page at an old revision undoes what was written since; from here on the rest is read at once instead of again and again.
WRITES_BEFORE_REST = 5000
COLLECTED_AT_ONCE = 4  # large answers that must be whole before they can be sent

_LIST_META = SCHEME.type("io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta")
_collecting = asyncio.Semaphore(COLLECTED_AT_ONCE)


class Listing(NamedTuple):
    """One list request: what to scan and how to answer. ``limit`` 0 is all, ``revision`` 0 is now."""

    req: Request
    served: Served
    media: respond.Media
    prefix: str
    matcher: Any
    start: str
    limit: int
    revision: int


def answer(q: Listing) -> Response | Awaitable[Response]:
    """The answer to a list. Raises ``Compacted`` and ``FutureRevision``; later pages cannot, or end the connection."""
    m = q.media
    if m.accepted == JSON and not m.pretty:
        return _streamed(q, _objects if m.convert is None else _rows if m.convert.kind == respond.TABLE else _metadata)
    if m.accepted == PROTOBUF and m.convert is None:
        return _protobuf(q)
    items = FIRST_ITEMS
    first = q.served.registry.store.range(q.prefix, q.start, min(items, q.limit or items), q.revision, q.matcher, _counts(q))
    if not first.more or first.count == q.limit:
        return encode(q, list_meta(q, first), first.records)
    return _collected(q, first)


def list_meta(q: Listing, result: Any) -> dict[str, Any]:
    """ListMeta of a scan's result, in the order of its fields."""
    meta: dict[str, Any] = {"resourceVersion": str(result.revision)}
    if result.more:
        meta["continue"] = continuetoken.encode(result.next_key, q.prefix, result.revision)
        if q.matcher is None and result.remaining > 0:
            meta["remainingItemCount"] = result.remaining
    return meta


def _counts(q: Listing) -> bool:
    return bool(q.limit) and q.matcher is None


def _next_items(page: _Page | None, count: int, size: int) -> int:
    """How many items make the next page when ``count`` of them had ``size`` bytes: about PAGE_BYTES, or what takes as long to print."""
    return PRINTED_ITEMS if page is _rows else max(1, min(PAGE_ITEMS, PAGE_BYTES * count // max(1, size)))


# --- JSON, streamed


class _Place(NamedTuple):
    """Where a page stands in the answer: the first one carries the list's metadata, the last one the end."""

    meta: dict[str, Any] | None
    ends: bool


# Says it of a scan's result, before or after its bytes are made.
_Placing = Callable[[Any], _Place]


def _around(head: bytes, place: _Place, count: int) -> tuple[bytes, bytes]:
    """What stands before and behind the items of a page."""
    before = head + orjson.dumps(place.meta) + b',"items":[' if place.meta is not None else b"," if count else b""
    return before, b"]}\n" if place.ends else b""


def _objects(q: Listing, start: str, limit: int, revision: int, count: bool, placing: _Placing) -> tuple[Any, bytes]:
    """A page of whole objects."""
    store, head = q.served.registry.store, q.served.list_head
    if q.served.native:
        wrap = lambda r: _around(head, placing(r), r.count)  # noqa: E731
        result = store.range_json(q.prefix, start, limit, revision, q.matcher, count, wrap=wrap)
        return result, result.body
    result = store.range(q.prefix, start, limit, revision, q.matcher, count)
    before, after = _around(head, placing(result), result.count)
    return result, b"".join((before, b",".join([q.served.item(rec) for rec in result.records]), after))


def _metadata(q: Listing, start: str, limit: int, revision: int, count: bool, placing: _Placing) -> tuple[Any, bytes]:
    """A page of PartialObjectMetadata: stored metadata, cut out."""
    assert q.media.convert is not None
    store, version = q.served.registry.store, q.media.convert.version
    head = f'{{"kind":"{respond.PARTIAL_LIST}","apiVersion":"meta.k8s.io/{version}","metadata":'.encode()
    lead = f'{{"kind":"{respond.PARTIAL}","apiVersion":"meta.k8s.io/{version}",'.encode()
    wrap = lambda r: _around(head, placing(r), r.count)  # noqa: E731
    if q.served.native:  # a conversion may keep things in annotations
        result = store.range_json(q.prefix, start, limit, revision, q.matcher, count, lead=lead, metadata_only=True, wrap=wrap)
        if result.body is not None:
            return result, result.body
        # A record's writer did not say where the metadata ends.
        revision = revision or result.revision
    result = store.range(q.prefix, start, limit, revision, q.matcher, count)
    before, after = wrap(result)
    type_ = SCHEME.known("meta.k8s.io", version, respond.PARTIAL).type
    items = [encode_json(type_, respond.partial(q.served.object(rec), version)) for rec in result.records]
    return result, b"".join((before, b",".join(items), after))


def _rows(q: Listing, start: str, limit: int, revision: int, count: bool, placing: _Placing) -> tuple[Any, bytes]:
    """A page of a Table: the first one as it is but for its end, of the others the rows."""
    result = q.served.registry.store.range(q.prefix, start, limit, revision, q.matcher, count)
    place = placing(result)
    body = encode_json(SCHEME.known("meta.k8s.io", _version(q), respond.TABLE).type, _table(q, place.meta or {}, result.records))
    if place.meta is not None and place.ends:
        return result, body + b"\n"
    # Quotes inside of strings are escaped: this is the member itself, and the last one.
    rows = body.index(b'"rows":[') + 8
    cut = body[:-2] if place.meta is not None else (b"," if result.count else b"") + body[rows:-2]
    return result, cut + b"]}\n" if place.ends else cut


def _version(q: Listing) -> str:
    assert q.media.convert is not None
    return q.media.convert.version


def _table(q: Listing, meta: dict[str, Any], records: list[Any]) -> dict[str, Any]:
    s = q.served
    return printers.table(
        (s.group, s.version, s.kind), [s.object(rec) for rec in records], now=time.time(),
        include_object=q.req.params.get("includeObject"), list_metadata=meta, version=_version(q),
    )  # fmt: skip


_Page = Callable[[Listing, str, int, int, bool, _Placing], tuple[Any, bytes]]


def _streamed(q: Listing, page: _Page) -> Response:
    items = PRINTED_ITEMS if page is _rows else FIRST_ITEMS
    limit, meta = min(items, q.limit or items), None
    revision = q.revision
    if q.limit > items:
        # The metadata stands before the items: where they end must be known before they are read.
        last = _last_page(q)
        meta, revision = list_meta(q, last), last.revision

    def placing(now: Any) -> _Place:
        ends = not now.more or now.count == q.limit
        return _Place(meta or (list_meta(q, now) if ends else {"resourceVersion": str(now.revision)}), ends)

    result, body = page(q, q.start, limit, revision, _counts(q) and meta is None, placing)
    if not result.more or result.count == q.limit:
        return respond.finish(q.req, 200, JSON, body)
    return _stream(q, _pages(q, page, result, body))


def _last_page(q: Listing) -> Any:
    """The scan that ends where ``limit`` ends, with as little of the objects as a scan can give."""
    store, start, revision, left = q.served.registry.store, q.start, q.revision, q.limit
    while True:
        size = min(PAGE_ITEMS, left)
        result = store.range_json(q.prefix, start, size, revision, q.matcher, _counts(q) and size == left, metadata_only=True)
        left -= result.count
        if not result.more or not left:
            return result
        start, revision = result.next_key, result.revision


async def _pages(q: Listing, page: _Page, result: Any, body: bytes) -> AsyncIterator[bytes]:
    """The pieces of the body, each read when the one before has been taken."""
    store, revision, sent = q.served.registry.store, result.revision, result.count

    def placing(now: Any) -> _Place:
        return _Place(None, not now.more or sent + now.count == q.limit)

    while True:
        yield body
        if not result.more or sent == q.limit:
            return
        left = q.limit - sent if q.limit else 0
        args = (q, result.next_key)
        if store.revision - revision > WRITES_BEFORE_REST:
            async with _collecting:
                result, body = await asyncio.to_thread(page, *args, left, revision, False, placing)
        else:
            items = _next_items(page, result.count, len(body))
            result, body = page(*args, min(items, left or items), revision, False, placing)
        sent += result.count


def _stream(q: Listing, pieces: AsyncIterator[bytes], kind: str = JSON) -> Response:
    """A body in pieces, compressed on the way when the client takes it, off the loop. Ends at the request's deadline."""
    headers: Headers = [(b"content-type", respond.CONTENT_TYPES[kind])]
    packed = "gzip" in q.req.header(b"accept-encoding")
    if packed:
        headers += [(b"content-encoding", b"gzip"), (b"vary", b"Accept-Encoding")]
    deadline = q.req.deadline

    async def run(write: Write) -> None:
        left = max(1.0, deadline - time.monotonic()) if deadline else None
        try:
            async with asyncio.timeout(left):
                await send(write)
        except (Compacted, TimeoutError) as e:
            # The head has left: the connection ends without the answer's end.
            raise errors.timeout(f"list {q.req.path}: {e or 'the request has run out of time'}", 0) from None

    async def send(write: Write) -> None:
        if packed:
            from isal import isal_zlib

            packer = isal_zlib.compressobj(level=1, wbits=31)
            async for piece in pieces:
                small = await asyncio.to_thread(packer.compress, piece)
                if small:
                    await write(small)
            await write(packer.flush())
            return
        async for piece in pieces:
            for at in range(0, len(piece), 2 * PAGE_BYTES):
                await write(piece[at : at + 2 * PAGE_BYTES])

    return Response(200, headers, stream=run)


# --- protobuf


def _protobuf(q: Listing) -> Response | Awaitable[Response]:
    """Stored messages, copied. The envelope tells the length of what follows, so that is looked up before the first byte leaves."""

    def around(now: Any, size: int) -> tuple[bytes, bytes]:
        return (b"", b"") if now.more and now.count != q.limit else _list_ends(q, now, size)

    result, body = _messages(q, q.start, min(FIRST_ITEMS, q.limit or FIRST_ITEMS), q.revision, _counts(q), around)
    if not result.more or result.count == q.limit:
        return respond.finish(q.req, 200, PROTOBUF, body)
    return _more_messages(q, result, body)


async def _more_messages(q: Listing, first: Any, body: bytes) -> Response:
    """The answer that begins with a page: streamed when every message is stored, collected otherwise."""
    left = q.limit - first.count if q.limit else 0
    rest = await asyncio.to_thread(_sizes, q, first.next_key, left, first.revision) if q.served.native else None
    if rest is None or rest.size < 0:
        return await _collected_messages(q, first, body)
    size = len(body) + rest.size
    before, after = _list_ends(q, rest, size)

    async def pieces() -> AsyncIterator[bytes]:
        yield before
        yield body
        result, sent, seen = first, len(body), first.count
        while result.more and seen != q.limit:
            result, page = await _next_messages(q, result, sent // seen, seen)
            sent += len(page)
            seen += result.count
            if sent > size:
                break
            yield page
        if sent != size:
            # A state from the history, transcoded, is not what had been stored: by another kas, with other codecs.
            raise errors.internal(f"list {q.req.path}: {sent} bytes instead of {size}")
        yield after

    return _stream(q, pieces(), PROTOBUF)


def _sizes(q: Listing, start: str, limit: int, revision: int) -> Any:
    """A scan that tells where ``limit`` ends and how many bytes the messages have up to there, from their heads."""
    return q.served.registry.store.range_protobuf(q.prefix, start, limit, revision, q.matcher, _counts(q), wrap=lambda r: None)


async def _next_messages(q: Listing, last: Any, item_bytes: int, seen: int) -> tuple[Any, bytes]:
    store, left = q.served.registry.store, q.limit - seen if q.limit else 0
    if store.revision - last.revision > WRITES_BEFORE_REST:
        async with _collecting:
            return await asyncio.to_thread(_messages, q, last.next_key, left, last.revision, False, _bare)
    items = _next_items(None, 1, item_bytes)
    return _messages(q, last.next_key, min(items, left or items), last.revision, False, _bare)


async def _collected_messages(q: Listing, result: Any, body: bytes) -> Response:
    chunks, revision, seen = [body], result.revision, result.count
    async with _collecting:
        while result.more and seen != q.limit:
            await asyncio.sleep(0)
            items = _next_items(None, result.count, len(chunks[-1]))
            left = q.limit - seen if q.limit else items
            result, body = _messages(q, result.next_key, min(items, left), revision, _counts(q) and left <= items, _bare)
            seen += result.count
            chunks.append(body)
        before, after = _list_ends(q, result, sum(map(len, chunks)))

    async def pieces() -> AsyncIterator[bytes]:
        yield before
        chunks.reverse()
        while chunks:
            yield chunks.pop()
        yield after

    return _stream(q, pieces(), PROTOBUF)


def _list_ends(q: Listing, result: Any, size: int) -> tuple[bytes, bytes]:
    """What stands before and behind ``size`` bytes of items. A list message is {1: ListMeta, 2: items…}."""
    meta = encode_protobuf(q.served.list_type, {"metadata": list_meta(q, result)})
    return envelope_head(q.served.api_version, q.served.list_kind, len(meta) + size) + meta, ENVELOPE_TAIL


def _bare(result: Any, size: int) -> tuple[bytes, bytes]:
    return b"", b""


def _messages(
    q: Listing, start: str, limit: int, revision: int, count: bool, around: Callable[[Any, int], tuple[bytes, bytes]]
) -> tuple[Any, bytes]:
    """A page of items as field 2 of a list message, between what ``around`` says of the result and their size."""
    store = q.served.registry.store
    if q.served.native:
        result = store.range_protobuf(q.prefix, start, limit, revision, q.matcher, count, wrap=lambda r: around(r, r.size))
        if result.body is not None:
            return result, result.body
        # One is of a kas that did not store messages, or a state from the history.
        revision = revision or result.revision
    result = store.range(q.prefix, start, limit, revision, q.matcher, count)
    items = _proto_items(q.served, result.records)
    before, after = around(result, len(items))
    return result, b"".join((before, items, after))


def _proto_items(served: Served, records: list[Any]) -> bytes:
    """Records as field 2 of a list message."""
    return protobuf_list(b"", [served.protobuf(rec) for rec in records])[2:]  # without the empty metadata in front


# --- forms that must be whole


async def _all_pages(q: Listing, result: Any) -> AsyncIterator[Any]:
    """The results of every page; the loop runs in between."""
    store, revision, seen = q.served.registry.store, result.revision, 0
    while True:
        seen += result.count
        yield result
        if not result.more or seen == q.limit:
            return
        await asyncio.sleep(0)
        items = _next_items(None, result.count, sum(map(len, result.records)))
        left = q.limit - seen if q.limit else items
        count = _counts(q) and left <= items
        result = store.range(q.prefix, result.next_key, min(items, left), revision, q.matcher, count)


async def _collected(q: Listing, first: Any) -> Response:
    """YAML and indented JSON: encoded at once, in a thread, because that takes long."""
    records: list[Any] = []
    async with _collecting:
        async for result in _all_pages(q, first):
            records += result.records
        return await asyncio.to_thread(encode, q, list_meta(q, result), records)


def encode(q: Listing, meta: dict[str, Any], records: list[Any]) -> Response:
    """Records as a list in any media type and form."""
    req, served, m = q.req, q.served, q.media
    if m.plain_json:
        head = served.list_head + orjson.dumps(meta) + b',"items":['
        return respond.finish(req, 200, JSON, b"".join((head, b",".join([served.item(x) for x in records]), b"]}\n")))
    if m.convert is None and m.accepted == PROTOBUF:
        message = encode_protobuf(served.list_type, {"metadata": meta}) + _proto_items(served, records)
        return respond.finish(req, 200, PROTOBUF, envelope(served.api_version, served.list_kind, message))
    if m.accepted == PROTOBUF and m.convert is not None and m.convert.kind == respond.PARTIAL_LIST:
        kind = SCHEME.known("meta.k8s.io", m.convert.version, respond.PARTIAL_LIST)
        parts = [served.partial_protobuf(rec, rec.revision) for rec in records]
        list_meta = encode_protobuf(_LIST_META, meta)
        return respond.finish(req, 200, PROTOBUF, protobuf_list(list_meta, parts, api_version=kind.api_version, kind=kind.kind))
    if m.convert is not None and m.convert.kind == respond.TABLE:
        return respond.generic(req, m, _table(q, meta, records))
    objects = [served.object(rec) for rec in records]
    if m.convert is not None:
        version = m.convert.version
        value = {"kind": respond.PARTIAL_LIST, "apiVersion": f"meta.k8s.io/{version}", "metadata": meta,
                 "items": [respond.partial(x, version) for x in objects]}  # fmt: skip
        return respond.generic(req, m, value)
    for x in objects:
        x.pop("kind", None)
        x.pop("apiVersion", None)
    return respond.typed(req, m, served.list_type, served.api_version, served.list_kind, {"metadata": meta, "items": objects}, 200)
