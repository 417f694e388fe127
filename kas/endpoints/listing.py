"""Lists as bytes: in one piece when they are small, page by page at one revision when they are not.

A page is read in a transaction of its own, so a list of any length holds about one page in memory, never blocks the loop for longer
than one page takes, and needs no thread: reading 150 pods takes 0.2 ms. Forms whose first bytes tell their length (protobuf) or
that are encoded as a whole (Table, YAML) are collected page by page.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable
from typing import Any, NamedTuple

import orjson

from kas._fast_types import ENVELOPE_TAIL, envelope_head
from kas.api import continuetoken, errors, printers
from kas.api.negotiation import JSON, PROTOBUF
from kas.api.scheme import SCHEME, encode_json, encode_protobuf, envelope, protobuf_list, transcode_json_to_protobuf
from kas.edge.http import Headers, Request, Response, Write
from kas.endpoints import respond
from kas.endpoints.served import Served
from kas.store import Compacted

PAGE_BYTES = 1 << 20
PAGE_ITEMS = 512  # up to here a scan keeps the GIL
MIN_ITEMS = 16
FIRST_GUESS = 4096
# A page at an old revision undoes what was written since; from here on the rest is read at once instead of again and again.
WRITES_BEFORE_REST = 5000
COLLECTED_AT_ONCE = 4  # large answers that must be whole before they can be sent

_collecting = asyncio.Semaphore(COLLECTED_AT_ONCE)
_item_bytes: dict[str, int] = {}  # of a resource, as its last list showed


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
    if m.convert is None and m.accepted == JSON and not m.pretty:
        return _streamed(q, _objects)
    if m.convert is not None and m.convert.kind != respond.TABLE and m.accepted == JSON and not m.pretty:
        return _streamed(q, _metadata)
    items = _page_items(q.served)
    first = q.served.registry.store.range(q.prefix, q.start, min(items, q.limit or items), q.revision, q.matcher, _counts(q))
    if not first.more or first.count == q.limit:
        return encode(q.req, q.served, m, list_meta(q, first), first.records)
    if m.convert is None and m.accepted == PROTOBUF:
        return _protobuf(q, first)
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


def _page_items(served: Served) -> int:
    """How many items make a page of about PAGE_BYTES."""
    return max(MIN_ITEMS, min(PAGE_ITEMS, PAGE_BYTES // _item_bytes.get(served.registry.root, FIRST_GUESS)))


def _learn(served: Served, count: int, size: int) -> None:
    if count >= MIN_ITEMS:
        _item_bytes[served.registry.root] = max(1, size // count)


# --- JSON, streamed


def _objects(q: Listing, start: str, limit: int, revision: int, count: bool, wrap: Any) -> Any:
    """A page of whole objects: (result, bytes)."""
    store = q.served.registry.store
    if q.served.native:
        result = store.range_json(q.prefix, start, limit, revision, q.matcher, count, wrap=wrap)
        return result, result.body
    result = store.range(q.prefix, start, limit, revision, q.matcher, count)
    before, after = wrap(result)
    return result, b"".join((before, b",".join([q.served.item(rec) for rec in result.records]), after))


def _metadata(q: Listing, start: str, limit: int, revision: int, count: bool, wrap: Any) -> Any:
    """A page of PartialObjectMetadata: stored metadata, cut out."""
    store, version = q.served.registry.store, q.media.convert.version
    lead = f'{{"kind":"{respond.PARTIAL}","apiVersion":"meta.k8s.io/{version}",'.encode()
    result = store.range_json(q.prefix, start, limit, revision, q.matcher, count, lead=lead, metadata_only=True, wrap=wrap)
    if result.body is not None:
        return result, result.body
    # A record's writer did not say where the metadata ends.
    result = store.range(q.prefix, start, limit, revision or result.revision, q.matcher, count)
    before, after = wrap(result)
    type_ = SCHEME.known("meta.k8s.io", version, respond.PARTIAL).type
    items = [encode_json(type_, respond.partial(orjson.loads(rec.json), version)) for rec in result.records]
    return result, b"".join((before, b",".join(items), after))


def _streamed(q: Listing, page: Any) -> Response | Awaitable[Response]:
    served = q.served
    if page is _metadata:
        head = f'{{"kind":"{respond.PARTIAL_LIST}","apiVersion":"meta.k8s.io/{q.media.convert.version}","metadata":'.encode()
    else:
        head = served.list_head
    items = _page_items(served)
    limit, meta = min(items, q.limit or items), None
    revision = q.revision
    if q.limit > items:
        # The metadata stands before the items: where they end must be known before they are read.
        last = _last_page(q)
        meta, revision = list_meta(q, last), last.revision

    def wrap(result: Any) -> tuple[bytes, bytes]:
        found = meta
        if found is None:
            found = list_meta(q, result) if result.count == q.limit else {"resourceVersion": str(result.revision)}
        goes_on = result.more and result.count != q.limit
        return head + orjson.dumps(found) + b',"items":[', b"" if goes_on else b"]}\n"

    result, body = page(q, q.start, limit, revision, _counts(q) and meta is None, wrap)
    _learn(served, result.count, len(body))
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


async def _pages(q: Listing, page: Any, result: Any, body: bytes) -> AsyncIterator[bytes]:
    """The pieces of the body, each read when the one before has been taken."""
    store, revision, sent = q.served.registry.store, result.revision, result.count

    def wrap(now: Any) -> tuple[bytes, bytes]:
        ends = not now.more or sent + now.count == q.limit
        return b"," if now.count else b"", b"]}\n" if ends else b""

    while True:
        yield body
        if not result.more or sent == q.limit:
            return
        left = q.limit - sent if q.limit else 0
        args = (q, result.next_key)
        if store.revision - revision > WRITES_BEFORE_REST:
            async with _collecting:
                result, body = await asyncio.to_thread(page, *args, left, revision, False, wrap)
        else:
            items = _page_items(q.served)
            result, body = page(*args, min(items, left or items), revision, False, wrap)
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
        items = _page_items(q.served)
        left = q.limit - seen if q.limit else items
        count = _counts(q) and left <= items
        result = store.range(q.prefix, result.next_key, min(items, left), revision, q.matcher, count)


async def _protobuf(q: Listing, first: Any) -> Response:
    """The envelope tells the length of what follows, so every item is there before the first byte leaves."""
    served = q.served
    chunks: list[bytes] = []
    async with _collecting:
        async for result in _all_pages(q, first):
            chunks.append(_proto_items(served, result.records))
        chunks.insert(0, encode_protobuf(served.list_type, {"metadata": list_meta(q, result)}))
        total = sum(len(c) for c in chunks)
        chunks.insert(0, envelope_head(served.api_version, served.list_kind, total))
        chunks.append(ENVELOPE_TAIL)

    async def pieces() -> AsyncIterator[bytes]:
        chunks.reverse()
        while chunks:
            yield chunks.pop()

    return _stream(q, pieces(), PROTOBUF)


def _proto_items(served: Served, records: list[Any]) -> bytes:
    """Records as field 2 of a list message."""
    to_protobuf, type_ = transcode_json_to_protobuf, served.type
    return protobuf_list(b"", [to_protobuf(type_, served.json(rec)) for rec in records])[2:]  # without the empty metadata in front


async def _collected(q: Listing, first: Any) -> Response:
    """Tables, YAML, pretty JSON: encoded at once, in a thread, because that takes long."""
    records: list[Any] = []
    async with _collecting:
        async for result in _all_pages(q, first):
            records += result.records
        return await asyncio.to_thread(encode, q.req, q.served, q.media, list_meta(q, result), records)


def encode(req: Request, served: Served, m: respond.Media, meta: dict[str, Any], records: list[Any]) -> Response:
    """Records as a list in any media type and form."""
    if m.plain_json:
        head = served.list_head + orjson.dumps(meta) + b',"items":['
        return respond.finish(req, 200, JSON, b"".join((head, b",".join([served.item(x) for x in records]), b"]}\n")))
    if m.convert is None and m.accepted == PROTOBUF:
        # A list message is {1: ListMeta, 2: items…}; without items the encoder writes just the first.
        message = encode_protobuf(served.list_type, {"metadata": meta}) + _proto_items(served, records)
        return respond.finish(req, 200, PROTOBUF, envelope(served.api_version, served.list_kind, message))
    objects = [served.object(rec) for rec in records]
    if m.convert is not None and m.convert.kind == respond.TABLE:
        t = printers.table(
            (served.group, served.version, served.kind), objects, now=time.time(), include_object=req.params.get("includeObject"),
            list_metadata=meta, version=m.convert.version,
        )  # fmt: skip
        return respond.generic(req, m, t)
    if m.convert is not None:
        version = m.convert.version
        value = {"kind": respond.PARTIAL_LIST, "apiVersion": f"meta.k8s.io/{version}", "metadata": meta,
                 "items": [respond.partial(x, version) for x in objects]}  # fmt: skip
        return respond.generic(req, m, value)
    for x in objects:
        x.pop("kind", None)
        x.pop("apiVersion", None)
    return respond.typed(req, m, served.list_type, served.api_version, served.list_kind, {"metadata": meta, "items": objects}, 200)
