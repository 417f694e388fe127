"""watch: store events to frames, one bounded stream per client (apiserver's ``handlers/watch.go`` and the cacher's rules).

An event is matched once per stream, framed once per encoding and worker (frames are kept on the event), and leaves with
whatever else is waiting in one write. Nothing grows without bound behind a client that does not read: see ``WatchStream``.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from typing import Any

import orjson

from kas._fast_types import varint
from kas._fastpath import frame_record
from kas.api import errors, printers
from kas.api.errors import ApiError, bad_request
from kas.api.negotiation import PROTOBUF
from kas.api.scheme import SCHEME, encode_json, encode_protobuf, envelope, transcode_json_to_protobuf
from kas.edge.http import Request, Response, Write
from kas.endpoints import respond
from kas.endpoints.options import ListOptions, list_options, resource_version
from kas.endpoints.read import fresh, too_large
from kas.endpoints.selection import matcher_of, name_requirement, with_served_fields
from kas.endpoints.served import Served
from kas.store import Compacted, FutureRevision

ADDED, MODIFIED, DELETED, BOOKMARK, ERROR = "ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"
INITIAL_EVENTS_END = "k8s.io/initial-events-end"
BOOKMARK_BEFORE_END_S = 2.0
LONGEST_S = 10 * 365 * 86400.0
# A write carries about so much; a client that stalls holds one write and a queue that is bounded in the hub.
WRITE_BYTES, FIRST_TAKE, MOST_EVENTS = 1 << 20, 32, 512

WATCH_TYPES = {"application/json": b"application/json", PROTOBUF: b"application/vnd.kubernetes.protobuf;stream=watch"}


class Watches:
    """Every open watch of this worker: ends them on shutdown and sends the periodic bookmarks."""

    def __init__(self, store, min_timeout_s: int, events_total=None) -> None:
        self.store, self.min_timeout_s, self.events_total = store, min_timeout_s, events_total
        self.open: set[WatchStream] = set()
        self.closing = False

    def end_all(self) -> None:
        self.closing = True
        for s in list(self.open):
            s.finish()

    def send_bookmarks(self) -> None:
        for s in list(self.open):
            s.ask_bookmark()


def watch(req: Request, served: Served, namespace: str, name: str, watches: Watches) -> Response:
    """Opens a watch. Errors found before the stream starts are ordinary Statuses; an expired revision is an ERROR event."""
    o = with_served_fields(served, list_options(req.params, force_watch=True))
    if name and o.field_selector is not None and name_requirement(o) != name:
        raise bad_request("fieldSelector metadata.name doesn't match requested name")
    m = respond.media(req, watch=True)
    rv = resource_version(o.resource_version)
    req.long_running = True
    include = req.params.get("includeObject")
    if m.convert is not None and m.convert.kind == respond.TABLE:
        # Refuses an includeObject it does not know before the stream starts.
        printers.table((served.group, served.version, served.kind), [], now=0.0, include_object=include)
    encoder = encoder_for(served, m, include)
    s = WatchStream(watches, served, namespace, name, o, rv, encoder)
    return Response(200, [(b"content-type", WATCH_TYPES[m.accepted])], stream=s.run)


class WatchStream:
    """One client's watch. Lives from ``run`` being awaited to its end; ``finish`` ends it cleanly from outside.

    Events are pulled from the store's watcher when the client has taken what was written before: a client that stalls
    holds one write and a bounded queue, and when it goes on it is served from the history.
    """

    __slots__ = (
        "_bookmark_due", "_encoder", "_ended", "_matcher", "_namespace", "_options", "_rv", "_served", "_take", "_target", "_wake",
        "_watcher", "_watches",
    )  # fmt: skip

    def __init__(self, watches: Watches, served: Served, namespace: str, name: str, o: ListOptions, rv: int, encoder: Encoder) -> None:
        self._watches, self._served, self._namespace, self._options, self._rv, self._encoder = watches, served, namespace, o, rv, encoder
        # By name in all namespaces: the selector finds them.
        self._target = served.registry.key(namespace, name) if name and (namespace or not served.record.namespaced) else None
        self._take = FIRST_TAKE
        self._matcher = matcher_of(o)
        self._wake: asyncio.Future | None = None
        self._ended = self._bookmark_due = False
        self._watcher: Any = None

    async def run(self, write: Write) -> None:
        w = self._watches
        if w.closing:
            return
        loop = asyncio.get_running_loop()
        o = self._options
        life = o.timeout_s or w.min_timeout_s * (1 + random.random())
        if life < 0:
            return  # over before it began, as upstream's context is
        timers = [loop.call_later(min(life, LONGEST_S), self.finish)]
        if o.allow_bookmarks and BOOKMARK_BEFORE_END_S < life <= LONGEST_S:
            timers.append(loop.call_later(life - BOOKMARK_BEFORE_END_S, self.ask_bookmark))
        w.open.add(self)
        try:
            await write(b"")  # the headers go out now: a watch of a quiet resource must still be seen to be open
            try:
                await self._initial(write)
                while not self._ended:
                    if self._watcher.ready:
                        frames = self._frames(self._next())
                        if frames:
                            await write(frames[0] if len(frames) == 1 else b"".join(frames))
                    elif self._bookmark_due:
                        self._bookmark_due = False
                        if self._watcher.progress >= self._rv:  # a watch may wait for a revision to come
                            await write(self._encoder.bookmark(self._watcher.progress, None))
                    else:
                        self._wake = loop.create_future()
                        await self._wake
            except Compacted as e:
                await write(self._encoder.error(errors.expired(f"too old resource version: {e.requested} ({e.compacted})")))
            except FutureRevision as e:
                await write(self._encoder.error(too_large(e.requested, e.current)))
        finally:
            for t in timers:
                t.cancel()
            w.open.discard(self)
            if self._watcher is not None:
                self._watcher.close()

    async def _initial(self, write: Write) -> None:
        """Sends the current state where one is due and subscribes to what follows it."""
        o, store, r = self._options, self._watches.store, self._served.registry
        prefix = r.prefix(self._namespace)
        initial = o.send_initial_events if o.send_initial_events is not None else self._rv == 0
        after = self._rv
        if initial:
            if self._rv > store.revision:
                try:
                    await fresh(store, self._rv)
                except ApiError:
                    raise FutureRevision(self._rv, store.revision) from None
            after = await self._send_current(write, store, prefix)
            if o.send_initial_events and o.allow_bookmarks:
                await write(self._encoder.bookmark(after, {INITIAL_EVENTS_END: "true"}))
        elif after == 0:
            after = store.revision
        # A revision that has not happened yet means "only what is newer": upstream waits in silence.
        self._watcher = store.watch(prefix, min(after, store.revision), self._signal, self._target)
        self._rv = after

    async def _send_current(self, write: Write, store, prefix: str) -> int:
        """The current objects as ADDED events, in pages at one revision; returns that revision."""
        frame = self._encoder.frame
        if self._target is not None:
            revision = store.revision
            rec = store.get(self._target)
            if rec is not None and (self._matcher is None or self._matcher.matches(rec)):
                revision = max(revision, rec.revision)
                await write(frame(ADDED, rec, rec.revision))
            return revision
        start, revision, items = "", 0, FIRST_TAKE
        while True:
            page = store.range(prefix, start, items, revision, self._matcher)
            revision = page.revision
            if page.records:
                piece = b"".join([frame(ADDED, rec, rec.revision) for rec in page.records])
                items = _bounded(len(piece), page.count)
                await write(piece)
            if not page.more:
                return revision
            if self._ended:
                return revision
            start = page.next_key

    def _next(self) -> list[Any]:
        """The next events, about as many as make a write of WRITE_BYTES."""
        events = self._watcher.take(self._take)
        if events:
            self._take = _bounded(sum(map(len, events)), len(events))
        return events

    def _frames(self, events: list[Any]) -> list[bytes]:
        matcher, encoder, skip = self._matcher, self._encoder, self._rv
        out = []
        for e in events:
            if e.revision <= skip:
                continue
            new, old = e.record, e.previous
            if matcher is None:
                kind = DELETED if new is None else ADDED if old is None else MODIFIED
            else:
                is_in = new is not None and matcher.matches(new)
                was_in = old is not None and matcher.matches(old)
                if is_in:
                    kind = MODIFIED if was_in else ADDED
                elif was_in:
                    kind = DELETED
                else:
                    continue
            # What left, or left the selector, is shown as it was last, under the revision at which that happened.
            if not encoder.shared:
                out.append(encoder.frame(kind, old if kind is DELETED else new, e.revision))
                continue
            cache, key = e.frames, (encoder.key, kind)
            frame = cache.get(key)
            if frame is None:
                frame = cache[key] = encoder.frame(kind, old if kind is DELETED else new, e.revision)
            out.append(frame)
        if out and self._watches.events_total is not None:
            r = self._served
            self._watches.events_total.inc((r.group, r.version, r.resource), len(out))
        return out

    def _signal(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def finish(self) -> None:
        self._ended = True
        self._signal()

    def ask_bookmark(self) -> None:
        """Everything up to the revision of the bookmark will have been written to this client before it."""
        if self._options.allow_bookmarks:
            self._bookmark_due = True
            self._signal()


def _bounded(size: int, count: int) -> int:
    """How many events to take next when ``count`` of them had ``size`` bytes."""
    return max(1, min(MOST_EVENTS, WRITE_BYTES * count // max(1, size)))


class Encoder:
    """Frames of one encoding. ``key`` names the encoding, so that streams of the same one share frames where ``shared``."""

    shared = True

    def __init__(self, served: Served, key: tuple, obj: Callable[[Any, int], bytes], wrap: Callable[[str, bytes], bytes]) -> None:
        self._served, self.key, self._obj, self._wrap = served, key, obj, wrap

    def frame(self, kind: str, rec: Any, revision: int) -> bytes:
        return self._wrap(kind, self._obj(rec, revision))

    def bookmark(self, revision: int, annotations: dict[str, str] | None) -> bytes:
        meta: dict[str, Any] = {"resourceVersion": str(revision)}
        if annotations:
            meta["annotations"] = annotations
        return self._wrap(BOOKMARK, self.object({"metadata": meta}))

    def object(self, value: dict[str, Any]) -> bytes:
        s = self._served
        return encode_json(s.type, {"kind": s.kind, "apiVersion": s.api_version, **value})

    def error(self, e: ApiError) -> bytes:
        status = e.status()
        return self._wrap(ERROR, encode_json(SCHEME.known("", "v1", "Status").type, status))


class JsonNative(Encoder):
    """Stored bytes as they are: no decoding."""

    def frame(self, kind: str, rec: Any, revision: int) -> bytes:
        return frame_record(kind, rec, revision)


class Protobuf(Encoder):
    def object(self, value: dict[str, Any]) -> bytes:
        s = self._served
        return envelope(s.api_version, s.kind, encode_protobuf(s.type, value))

    def error(self, e: ApiError) -> bytes:
        return self._wrap(ERROR, envelope("v1", "Status", encode_protobuf(SCHEME.known("", "v1", "Status").type, e.status())))


class Partial(Encoder):
    """PartialObjectMetadata in JSON or protobuf."""

    version = "v1"
    protobuf = False

    def object(self, value: dict[str, Any]) -> bytes:
        whole = respond.partial(value, self.version)
        type_ = SCHEME.known("meta.k8s.io", self.version, respond.PARTIAL).type
        if self.protobuf:
            return envelope(whole["apiVersion"], respond.PARTIAL, encode_protobuf(type_, whole))
        return encode_json(type_, whole)

    def error(self, e: ApiError) -> bytes:
        type_ = SCHEME.known("", "v1", "Status").type
        if self.protobuf:
            return self._wrap(ERROR, envelope("v1", "Status", encode_protobuf(type_, e.status())))
        return self._wrap(ERROR, encode_json(type_, e.status()))


class TableRows(Encoder):
    """One-row Tables; the first frame of a stream carries the columns, so this encoder is one stream's own."""

    shared = False
    version = "v1"
    include = ""
    sent_columns = False

    def frame(self, kind: str, rec: Any, revision: int) -> bytes:
        value = self._served.object(rec)
        value["metadata"]["resourceVersion"] = str(revision)
        return self._wrap(kind, self.object(value))

    def object(self, value: dict[str, Any]) -> bytes:
        s = self._served
        t = printers.table(
            (s.group, s.version, s.kind),
            [value],
            now=time.time(),
            include_object=self.include,
            version=self.version,
            headers=not self.sent_columns,
        )
        self.sent_columns = True
        return encode_json(SCHEME.known("meta.k8s.io", self.version, "Table").type, t)


def _wrap_json(kind: str, body: bytes) -> bytes:
    return b'{"type":"' + kind.encode() + b'","object":' + body + b"}\n"


_EVENT = {k: b"\x0a" + bytes((len(k),)) + k.encode() for k in (ADDED, MODIFIED, DELETED, BOOKMARK, ERROR)}


def _wrap_protobuf(kind: str, body: bytes) -> bytes:
    """4-byte length and a bare WatchEvent {1: type, 2: RawExtension {1: the object in its envelope}}."""
    raw = b"\x0a" + varint(len(body))
    event = _EVENT[kind] + b"\x12" + varint(len(raw) + len(body)) + raw
    return b"".join(((len(event) + len(body)).to_bytes(4, "big"), event, body))


def encoder_for(served: Served, m: respond.Media, include: str) -> Encoder:
    """The encoder of a negotiated media type."""

    def dated(rec: Any, revision: int) -> dict[str, Any]:
        value = orjson.loads(rec.json)
        value["metadata"]["resourceVersion"] = str(revision)
        return value

    where = (served.group, served.version, served.resource)
    protobuf = m.accepted == PROTOBUF
    wrap = _wrap_protobuf if protobuf else _wrap_json
    if m.convert is not None:
        version = m.convert.version
        if m.convert.kind == respond.TABLE:
            rows = TableRows(served, (where, "Table", version, object()), lambda rec, revision: b"", wrap)
            rows.version, rows.include = version, include
            return rows
        part = Partial(served, (where, "Partial", version, protobuf), lambda rec, revision: b"", wrap)
        if protobuf:
            part._obj = lambda rec, revision: envelope(
                f"meta.k8s.io/{version}", respond.PARTIAL, served.partial_protobuf(rec, revision)
            )
        else:
            part._obj = lambda rec, revision: part.object(served.to_served(dated(rec, revision)))
        part.version, part.protobuf = version, protobuf
        return part
    if protobuf:

        def pb(rec: Any, revision: int) -> bytes:
            if served.native:
                message = rec.protobuf_at(revision)
                if message is None:
                    message = transcode_json_to_protobuf(served.type, rec.json_at(revision))
                return envelope(served.api_version, served.kind, message)
            return envelope(served.api_version, served.kind, encode_protobuf(served.type, served.to_served(dated(rec, revision))))

        return Protobuf(served, (where, "protobuf"), pb, wrap)
    if served.native:
        return JsonNative(served, (where, "json"), lambda rec, revision: rec.json, wrap)

    def converted(rec: Any, revision: int) -> bytes:
        return encode_json(served.type, served.to_served(dated(rec, revision)))

    return Encoder(served, (where, "json"), converted, wrap)
