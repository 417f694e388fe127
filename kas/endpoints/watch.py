"""watch: turns store events into frames, one bounded stream per client (apiserver's ``handlers/watch.go`` and the cacher's rules).

An event is matched once per stream. A conversion that has to wait is done once per version, and a frame is encoded once per encoding and
worker process; both results are cached on the event. Pending events leave in one write. Memory for a client that does not read is
bounded: see ``WatchStream``.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from kas.endpoints import respond
from kas.endpoints.frames import ADDED, DELETED, MODIFIED, Encoder, encoder_for
from kas.endpoints.listpages import FIRST_BYTES, LEAST_BYTES, NotTakenError, collecting, large, many, next_items, room, underway
from kas.endpoints.options import resource_version
from kas.endpoints.postfilter import LONG_QUERY, ListQuery, Sieve, converted, parse_list_query
from kas.endpoints.read import fresh, too_large
from kas.endpoints.selection import name_requirement
from kas.endpoints.served import Served
from kas.meta import errors
from kas.meta.errors import ApiError, bad_request
from kas.meta.offload import POOL, step
from kas.meta.records import NamedTuple
from kas.meta.waiting import TimeSlice
from kas.observe.metrics import Histogram
from kas.registry import printing as printers
from kas.registry.versions import Shown
from kas.request.http import Request, Response, Write, begin_of
from kas.request.negotiation import PROTOBUF
from kas.store import Compacted, Event, Forward, FutureRevision, Record, Sent, TransformError, seen_as
from kas.store.hub import NOTIFIED_PER_TURN

T = TypeVar("T")
NAME = "metadata.name"
INITIAL_EVENTS_END = "k8s.io/initial-events-end"
BOOKMARK_BEFORE_END_S = 2.0
LONGEST_S = 10 * 365 * 86400.0
# A write carries about a page of events. A stalled client holds one write and a queue that the hub bounds.
FIRST_TAKE = 32  # events or objects to take while their average size is unknown
# Bounds of the delay before a watch retries initial events that could not be converted.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0
DRAINED_S = 0.01  # interval at which watches are ended while the server drains

WATCH_TYPES = {"application/json": b"application/json", PROTOBUF: b"application/vnd.kubernetes.protobuf;stream=watch"}


class Watches:
    """All open watches of this worker process. Ends them on shutdown and sends periodic bookmarks."""

    def __init__(self, min_timeout_s: int, events_total=None, list_seconds: Histogram | None = None) -> None:
        """Create the set.

        ``events_total`` counts sent events; ``list_seconds`` observes the duration of initial events that a client requested.
        """
        self.min_timeout_s, self.events_total, self.list_seconds = min_timeout_s, events_total, list_seconds
        self._sent = WeakValueDictionary[tuple[str, ...], Sent]()
        self.open: set[WatchStream] = set()
        self.counts: dict[tuple[str, str, str, str], int] = {}  # open watches by group, resource, namespace and name; "" for any
        self.closing = False

    def sent(self, labels: tuple[str, ...]) -> Sent | None:
        """Return the counter of a resource's sent events, or None without ``events_total``."""
        if self.events_total is None:
            return None
        found = self._sent.get(labels)
        if found is None:
            found = self._sent[labels] = Sent(_call_soon, partial(self.events_total.inc, labels))
        return found

    def begin(self, stream: WatchStream) -> None:
        """Register an open stream."""
        self.open.add(stream)
        self.counts[stream.place] = self.counts.get(stream.place, 0) + 1

    def end(self, stream: WatchStream) -> None:
        """Unregister a stream that has ended."""
        self.open.discard(stream)
        left = self.counts.pop(stream.place) - 1
        if left:
            self.counts[stream.place] = left

    async def drain(self, grace_s: float, least_per_s: float) -> None:
        """End the watches gradually, at ``least_per_s`` or faster and all within ``grace_s``.

        Their clients reconnect to the other servers a few at a time. Watches that remain after ``grace_s`` stay open.
        """
        loop, waiting = asyncio.get_running_loop(), list(self.open)
        count, began = len(waiting), loop.time()
        rate = max(least_per_s, count / grace_s)
        while self.open and (took := loop.time() - began) < grace_s:
            for _ in range(len(waiting) - max(0, count - 1 - int(took * rate))):  # the first one ends at once
                waiting.pop().finish()
            await asyncio.sleep(DRAINED_S)

    def end_all(self) -> None:
        """End every open watch, and every watch that starts from now on."""
        self.closing = True
        for s in list(self.open):
            s.finish()

    def end_of(self, served: Collection[Served]) -> None:
        """End the watches of resources that are no longer served, or served differently.

        No stream sends another event. The streams are woken in batches, one batch per event loop iteration, because there may be
        thousands.
        """
        ended = [s for s in self.open if s.served in served]
        for s in ended:
            s.over()
        _finish_in_batches(iter(ended))

    async def send_bookmarks(self) -> None:
        """Request a bookmark from every watch, sent once it has no other event to send.

        Each bookmark takes a moment to write and there may be tens of thousands of watches, so they are woken in batches.
        """
        for i, s in enumerate(list(self.open), 1):
            s.ask_bookmark()
            if not i % NOTIFIED_PER_TURN:
                await asyncio.sleep(0)


def _finish_in_batches(ended: Iterator[WatchStream]) -> None:
    for count, s in enumerate(ended, 1):
        s.finish()
        if count == NOTIFIED_PER_TURN:
            asyncio.get_running_loop().call_soon(_finish_in_batches, ended)
            break


def watch(req: Request, served: Served, namespace: str, name: str, watches: Watches) -> Response | Awaitable[Response]:
    """Open a watch. Errors found before the stream starts are ordinary Statuses; an expired revision is an ERROR event."""
    if len(req.query) >= LONG_QUERY:
        return _watch_long_query(req, served, namespace, name, watches)
    return _open_watch(req, served, namespace, name, watches, parse_list_query(req, served, True))


async def _watch_long_query(req: Request, served: Served, namespace: str, name: str, watches: Watches) -> Response:
    return _open_watch(req, served, namespace, name, watches, await POOL.run(parse_list_query, req, served, True))


def _open_watch(req: Request, served: Served, namespace: str, name: str, watches: Watches, query: ListQuery) -> Response:
    o = query.options
    if name and o.field_selector is not None and name_requirement(o) != name:
        raise bad_request("fieldSelector metadata.name doesn't match requested name")
    rv = resource_version(o.resource_version)
    # Media types without framing are rejected only here. The end of initial events is announced on an otherwise empty object, which a Table
    # cannot represent.
    m = respond.media(req, watch=True, table=not (o.send_initial_events and o.allow_bookmarks))
    req.long_running = True
    include = req.params.get("includeObject")
    if m.convert is not None and m.convert.kind == respond.TABLE:
        # Rejects an invalid includeObject before the stream starts.
        printers.table((served.group, served.version, served.kind), [], now=0.0, include_object=include, custom_columns=served.columns)
    encoder = encoder_for(served, m, include)
    s = WatchStream(watches, served, namespace, name, query, rv, encoder, req.initialized, req.user.name if req.user else "")
    return Response(200, [(b"content-type", WATCH_TYPES[m.accepted])], stream=s.run)


class WatchStream:
    """One client's watch, from the call of ``run`` until that returns. ``finish`` ends it cleanly from outside.

    Events are pulled from the store's watcher after the client has taken the previous write. A stalled client therefore holds one write
    and a bounded queue; when it resumes, it is served from the history.
    """

    __slots__ = (
        "_begun", "_bookmark_due", "_encoder", "_ended", "_forward", "_initialized", "_matcher", "_namespace", "_opened", "_options", "_rv",
        "_served", "_sieve", "_take", "_target", "_user", "_watcher", "_watches", "place",
    )  # fmt: skip

    def __init__(
        self, watches: Watches, served: Served, namespace: str, name: str, query: ListQuery, rv: int, encoder: Encoder,
        initialized: Callable[[], None] | None, user: str,
    ) -> None:  # fmt: skip
        """Create the stream.

        ``initialized`` is called after the initial state is sent; ``user`` is the user to whom memory for large writes is accounted.
        """
        self._initialized, self._user = initialized, user
        self.place = (served.group, served.resource, namespace, name)
        self._watches, self._served, self._namespace, self._rv, self._encoder = watches, served, namespace, rv, encoder
        # A watch by name in all namespaces has no single key; its selector finds the objects.
        self._target = served.registry.key(namespace, name) if name and (namespace or not served.record.namespaced) else None
        self._take = FIRST_TAKE
        o, self._matcher, self._sieve = query
        if self._target is not None and self._matcher is not None and len(self._matcher) == 1 and self._matcher.trigger == (NAME, name):
            self._matcher = None  # the key already selects that name
        # The compiled matcher is enough: a parsed selector of 600 terms would take 150 kB for as long as the watch lasts.
        self._options = o._replace(label_selector=None, field_selector=None)
        self._ended = self._bookmark_due = self._begun = False
        self._watcher: Any = None
        self._forward = self._forwarding(rv)

    @property
    def scope(self) -> str:
        """The scope of the watch for metrics: resource, namespace or cluster."""
        _, _, namespace, name = self.place
        return "resource" if name else "namespace" if namespace else "cluster"

    async def run(self, write: Write) -> None:
        """Write events until the timeout, the client's disconnect or a failure. A failure is sent as an ERROR event."""
        w = self._watches
        if w.closing:
            return
        loop = asyncio.get_running_loop()
        self._opened = loop.time()
        o = self._options
        life = o.timeout_s or w.min_timeout_s * (1 + random.random())
        if life < 0:
            return  # like upstream, whose context has expired already
        timers = [loop.call_later(min(life, LONGEST_S), self.finish)]
        if o.allow_bookmarks and BOOKMARK_BEFORE_END_S < life <= LONGEST_S:
            timers.append(loop.call_later(life - BOOKMARK_BEFORE_END_S, self.ask_bookmark))
        w.begin(self)
        try:
            await write(b"")  # send the headers now, so that a watch of a quiet resource is seen to be open
            try:
                await self._initial(write)
                if self._initialized is not None:
                    self._initialized()
                    self._initialized = None
                time_slice = TimeSlice()
                if self._served.native and self._sieve is None and self._encoder.copies:
                    self._forward.begin = begin_of(write)
                while not self._ended:
                    if time_slice.over:  # a client may take every write at once, so the loop has to yield
                        await time_slice.pause()
                        if self._ended:  # no further wake-up would come
                            break
                    if self._watcher.ready:
                        frames = await self._framed(self._next())
                        if frames:
                            await self._send(write, frames[0] if len(frames) == 1 else b"".join(frames))
                    elif self._bookmark_due:
                        self._bookmark_due = False
                        if self._watcher.progress >= self._rv:  # a watch may have been started at a future revision
                            await write(self._counted_frame(self._encoder.bookmark(self._watcher.progress, None)))
                    else:
                        await self._wait()
                        time_slice = TimeSlice()
                        await self._write_unsent(write)
            except Compacted as e:
                expired = errors.expired(f"too old resource version: {e.requested} ({e.compacted})")
                await write(self._counted_frame(self._encoder.error(expired)))
            except FutureRevision as e:
                await write(self._counted_frame(self._encoder.error(too_large(e.requested, e.current))))
            except TransformError as e:
                await write(self._counted_frame(self._encoder.error(errors.internal(str(e)))))
            except ApiError as e:
                await write(self._counted_frame(self._encoder.error(e)))  # a conversion failed; no frame of its events was written
            except NotTakenError:
                # The connection is aborted and its buffer dropped: an ERROR event would queue behind the rest.
                raise errors.timeout("watch: what was sent was not taken in time") from None
        finally:
            for t in timers:
                t.cancel()
            w.end(self)
            if self._watcher is not None:
                self._watcher.close()
            # Break the reference cycles through these attributes. The cycle collector runs once in 30,000 allocations, and the remains of
            # thousands of watches would make the heap grow until then.
            self._watcher = self._forward.queued = self._forward.begin = self._forward.failed = None

    async def _initial(self, write: Write) -> None:
        """Send the current state if the options ask for it, and subscribe to the events after it."""
        o, store, r = self._options, self._served.registry.store, self._served.registry
        prefix = r.prefix(self._namespace)
        initial = o.send_initial_events if o.send_initial_events is not None else self._rv == 0
        after = self._rv
        if initial:
            if self._rv > store.revision:
                try:
                    await fresh(store, self._rv)
                except ApiError:
                    raise FutureRevision(self._rv, store.revision) from None
            after = await self._once_converted(write, store, prefix)
            if o.send_initial_events and o.allow_bookmarks and not self._ended:
                await write(self._counted_frame(self._encoder.bookmark(after, {INITIAL_EVENTS_END: "true"})))
                if self._watches.list_seconds is not None:
                    group, resource, _, _ = self.place
                    labels = (group, resource, self.scope, self._served.version)
                    self._watches.list_seconds.observe(labels, asyncio.get_running_loop().time() - self._opened)
        elif after == 0:
            after = store.revision
        elif after < self._served.oldest:
            raise Compacted(after, self._served.oldest)
        # A future revision means "only newer events": upstream waits silently.
        trigger = self._matcher.trigger if self._matcher is not None else None
        self._forward = self._forwarding(after)
        self._watcher = store.watch(prefix, min(after, store.revision), self._forward, self._target, trigger=trigger)
        self._forward.queued, self._rv = self._watcher, after

    async def _once_converted(self, write: Write, store, prefix: str) -> int:
        """Send the current objects, retrying while they cannot be converted. Returns their revision.

        Until then nothing is sent, as with upstream's cache that is not ready yet. A client that allows bookmarks, and so may wait for
        the end of the initial events, gets the error.
        """
        pause = FIRST_PAUSE_S
        while True:
            try:
                return await self._send_current(write, store, prefix)
            except ApiError:
                if self._begun or self._options.allow_bookmarks:
                    raise
            timer = asyncio.get_running_loop().call_later(pause, self._signal)
            if not self._ended:
                await self._wait()
            timer.cancel()
            if self._ended:
                return store.revision
            pause = min(2 * pause, LONGEST_PAUSE_S)

    async def _send_current(self, write: Write, store, prefix: str) -> int:
        """Send the current objects as ADDED events, in pages at one revision. Returns that revision."""
        if self._target is not None:
            return await self._send_target(write, store, self._target)
        with underway:
            return await self._send_pages(write, store, prefix)

    async def _send_target(self, write: Write, store, key: str) -> int:
        await room.enter(self._user, FIRST_BYTES)
        held = [FIRST_BYTES]
        try:
            revision, rec = store.revision, store.get(key)
            if rec is not None and (self._matcher is None or self._matcher.matches(rec)):
                revision = max(revision, rec.revision)
                await self._send_initial(write, [rec], held)
            return revision
        finally:
            room.add(self._user, -held[0])

    async def _send_initial(self, write: Write, records: list[Any], held: list[int]) -> int:
        """Send the records and return the size in bytes. ``held[0]`` is the number of bytes accounted to the user for them."""
        piece = b"".join(self._counted(await self._initial_frames(records)))
        records.clear()
        size = len(piece)
        room.add(self._user, size - held[0])
        held[0] = size
        self._begun = True
        await (write(piece) if size < LEAST_BYTES else room.taken(write, piece))
        return size

    async def _send_pages(self, write: Write, store, prefix: str) -> int:
        start, revision, items, time_slice = "", 0, FIRST_TAKE, TimeSlice()
        in_thread = many(store, prefix, self._matcher)
        while True:
            if time_slice.over:
                await time_slice.pause()
            await room.enter(self._user, FIRST_BYTES)
            held = [FIRST_BYTES]
            try:
                args: Any = (prefix, start, items, revision, self._matcher)
                size = underway.page_bytes
                if in_thread:
                    async with collecting:
                        page = await asyncio.to_thread(store.range, *args, max_bytes=size)
                else:
                    page = store.range(*args, max_bytes=size)
                start, revision, records = page.next_key if page.more else "", page.revision, page.records
                del page  # while a write waits for a slow client, this frame keeps what it refers to
                if records:
                    count = len(records)
                    items = next_items(count, await self._send_initial(write, records, held))
            finally:
                room.add(self._user, -held[0])
            if not start or self._ended:
                return revision

    async def _initial_frames(self, records: list[Any]) -> list[bytes]:
        if self._sieve is not None:
            selected = await self._unless_ended(asyncio.ensure_future(converted(self._served, records, self._sieve)))
            return [self._encoder.frame(ADDED, rec, rec.revision) for rec in selected if rec is not None]
        shown: Sequence[Shown]
        if self._offloads(records):
            shown = await self._unless_ended(asyncio.ensure_future(self._served.converted(records)))
            return await POOL.run(self._added, shown)
        found = self._served.convert(records)
        shown = found if isinstance(found, Sequence) else await self._unless_ended(asyncio.ensure_future(found))
        return self._added(shown)

    def _added(self, shown: Sequence[Shown]) -> list[bytes]:
        return [self._encoder.frame(ADDED, rec, rec.revision) for rec in shown]

    def _offloads(self, what: Sequence[Any]) -> bool:
        """Return whether frames are encoded in the thread pool: large records or events in a form that is not a copy of the stored bytes.
        """
        return not self._encoder.copies and (self._encoder.costly or large(what, self._served.converts_from))

    def _send(self, write: Write, piece: bytes) -> Awaitable[None]:
        """Write ``piece``. A large one counts as under way until the client has taken it."""
        return write(piece) if len(piece) < LEAST_BYTES else self._send_large(write, piece)

    async def _send_large(self, write: Write, piece: bytes) -> None:
        with underway:
            await room.enter(self._user, len(piece))
            try:
                await room.taken(write, piece)
            finally:
                room.add(self._user, -len(piece))

    def _next(self) -> list[Any]:
        """Take the next events, about a page of them."""
        events = self._watcher.take(self._take)
        if events:
            self._take = next_items(len(events), sum(map(len, events)))
        return events

    async def _framed(self, events: list[Event]) -> list[bytes]:
        if not self._served.native or self._sieve is not None:
            return self._counted(await self._converted_frames(events))
        if self._offloads(events):
            return self._counted(await POOL.run(self._forward.frames, events))
        return self._counted(self._forward.frames(events))

    async def _converted_frames(self, events: list[Event]) -> list[bytes]:
        """Encode events in another version, like ``Forward.frames``.

        Raises the conversion's error; then none of the events may be written.
        """
        if self._sieve is not None:
            selected = await self._sifted(events, self._sieve)
        else:
            selected = [(e, kind) for e in events if e.revision > self._rv and (kind := seen_as(e, self._matcher))]
        shown = await self._convert(selected)  # nothing when the watch has ended
        pairs = list(zip(selected, shown, strict=False))
        return await step(self._offloads(events), lambda: [_frame(self._encoder, e, kind, rec) for (e, kind), rec in pairs])

    async def _sifted(self, events: list[Event], sieve: Sieve) -> list[tuple[Event, str]]:
        """Return the events as this client sees them, selected by their objects in its version. Returns nothing if the watch has ended."""
        matcher, states = self._matcher, list[Record]()
        for e in events:
            if e.revision > self._rv:
                states += [rec for rec in (e.record, e.previous) if rec is not None and (matcher is None or matcher.matches(rec))]
        shown = await self._unless_ended(asyncio.ensure_future(converted(self._served, states, sieve)))
        seen = {id(rec) for rec, s in zip(states, shown, strict=False) if s is not None}
        out = []
        for e in events:
            is_in, was_in = id(e.record) in seen, id(e.previous) in seen
            if is_in or was_in:
                out.append((e, DELETED if not is_in else MODIFIED if was_in else ADDED))
        return out

    def _counted(self, frames: list[bytes]) -> list[bytes]:
        total, r = self._watches.events_total, self._served
        if frames and total is not None:
            total.inc((r.group, r.version, r.resource), len(frames))
        return frames

    def _counted_frame(self, frame: bytes) -> bytes:
        return self._counted([frame])[0]

    def _forwarding(self, after: int) -> Forward:
        """Return the object that sends events newer than ``after`` directly as they arrive, or wakes the task.

        It holds no reference to the stream.
        """
        encoder, r = self._encoder, self._served
        sent = self._watches.sent((r.group, r.version, r.resource))
        return Forward(encoder.key if encoder.shared else None, partial(_frame, encoder), self._matcher, after, sent, LEAST_BYTES)

    async def _convert(self, selected: list[tuple[Event, str]]) -> list[Any]:
        """Return what each event shows in this version, or None where its frame exists. All missing ones are converted in one step.

        Conversions that wait are stored on the events, so that streams of the same version share one conversion.
        """
        out: list[Any] = [None] * len(selected)
        missing: list[int] = []
        shared: list[int] = []
        for i, (e, kind) in enumerate(selected):
            if not self._encoder.shared or self._encoder.key + kind not in e.frames:
                (shared if self._conversion_key(kind) in e.frames else missing).append(i)
        if missing:
            which = [selected[i] for i in missing]
            states, revisions = [_state(e, kind) for e, kind in which], [e.revision for e, _ in which]
            found: Any
            if self._served.streams and large(states, self._served.converts_from):
                found = POOL.run(self._served.convert, states, revisions)
            else:
                found = self._served.convert(states, revisions)
            if isinstance(found, Sequence):
                for i, shown in zip(missing, found, strict=True):
                    out[i] = shown
            else:
                _publish([(e.frames, self._conversion_key(kind)) for e, kind in which], asyncio.ensure_future(found))
                shared += missing
        # Collected before the first wait: a failed conversion is removed from its events during a wait.
        for i, left in [(i, selected[i][0].frames[self._conversion_key(selected[i][1])]) for i in shared]:
            if isinstance(left, _PendingConversion):
                found = await self._unless_ended(left.pending)
                if self._ended:
                    return []
                out[i] = found[left.place]
            else:
                out[i] = left
        return out

    def _conversion_key(self, kind: str) -> tuple[Any, ...]:
        """Return the key under which an event caches its object converted to this version."""
        return (*self._served.identity, "converted", kind == DELETED)

    async def _unless_ended(self, pending: asyncio.Future[Sequence[T]]) -> Sequence[T]:
        """Return the result of ``pending``, or nothing if this watch ends first.

        ``pending`` is not cancelled: other streams may wait for it.
        """
        pending.add_done_callback(self._wake_up)
        while not pending.done() and not self._ended:
            await self._wait()
        return pending.result() if pending.done() else ()

    @property
    def served(self) -> Served:
        """The watched resource."""
        return self._served

    def _wait(self) -> Awaitable[None]:
        """Return a future that is done when there is something to do."""
        wake = self._forward.wake = asyncio.get_running_loop().create_future()
        return wake

    async def _write_unsent(self, write: Write) -> None:
        """Write what could not be sent directly. Raises the error met while sending directly."""
        forward = self._forward
        unsent, forward.unsent = forward.unsent, None
        if forward.failed is not None:
            raise forward.failed
        if unsent is not None:
            await (self._send(write, unsent) if isinstance(unsent, bytes) else unsent)

    def _wake_up(self, _: object) -> None:
        self._signal()

    def _signal(self) -> None:
        wake = self._forward.wake
        if wake is not None and not wake.done():
            wake.set_result(None)

    def over(self) -> None:
        """Mark the watch as ended without waking it; ``finish`` wakes it."""
        self._ended = True

    def finish(self) -> None:
        """End the stream after the current write."""
        self._ended = True
        self._signal()

    def ask_bookmark(self) -> None:
        """Request a bookmark. Every event up to its revision is written to this client before it."""
        if self._options.allow_bookmarks:
            self._bookmark_due = True
            self._signal()


def _call_soon(callback: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_soon(callback)


def _frame(encoder: Encoder, e: Event, kind: str, shown: Shown | None = None) -> bytes:
    """Return the frame of an event, encoded once for all streams with the same encoding."""
    frame = e.frames.get(encoder.key + kind) if encoder.shared else None
    if frame is None:
        frame = encoder.frame(kind, _state(e, kind) if shown is None else shown, e.revision)
        if encoder.shared:
            e.frames[encoder.key + kind] = frame
    return frame


def _state(e: Event, kind: str) -> Record:
    """Return the state that an event shows: the last one if the object was deleted or left the selector."""
    found = e.previous if kind == DELETED else e.record
    assert found is not None
    return found


class _PendingConversion(NamedTuple):
    """A record of a pending conversion.

    It is read from the future itself, because a future is done before its callbacks run.
    """

    pending: asyncio.Future[Sequence[Shown]]
    place: int


def _publish(places: list[tuple[dict[Any, Any], Any]], pending: asyncio.Future[Sequence[Shown]]) -> None:
    """Publish a pending conversion at the place of each of its records, and replace it by the record when it is done.

    A failure reaches every stream that waits; later ones convert again.
    """

    def done(task: asyncio.Future[Sequence[Shown]]) -> None:
        failed = task.cancelled() or task.exception() is not None
        for i, (frames, key) in enumerate(places):
            if failed:
                frames.pop(key, None)
            else:
                frames[key] = task.result()[i]

    for i, (frames, key) in enumerate(places):
        frames[key] = _PendingConversion(pending, i)
    pending.add_done_callback(done)
