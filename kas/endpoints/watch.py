"""watch: store events to frames, one bounded stream per client (apiserver's ``handlers/watch.go`` and the cacher's rules).

An event is matched once per stream, converted once per version where that waits, framed once per encoding and worker (both are kept
on the event), and leaves with whatever else is waiting in one write. Nothing grows without bound behind a client that does not read:
see ``WatchStream``.
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
from kas.endpoints.postfilter import LONG_QUERY, Asked, Sieve, asked_of, converted
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
from kas.store.hub import TOLD_AT_ONCE

T = TypeVar("T")
NAME = "metadata.name"
INITIAL_EVENTS_END = "k8s.io/initial-events-end"
BOOKMARK_BEFORE_END_S = 2.0
LONGEST_S = 10 * 365 * 86400.0
# A write carries about so much; a client that stalls holds one write and a queue that is bounded in the hub.
FIRST_TAKE = 32  # events or objects of which nothing is known yet
# How long a watch whose initial events cannot be converted waits before it tries again.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0
DRAINED_S = 0.01  # how often watches end while a server drains them

WATCH_TYPES = {"application/json": b"application/json", PROTOBUF: b"application/vnd.kubernetes.protobuf;stream=watch"}


class Watches:
    """Every open watch of this worker: ends them on shutdown and sends the periodic bookmarks."""

    def __init__(self, min_timeout_s: int, events_total=None, list_seconds: Histogram | None = None) -> None:
        """``events_total`` counts what is sent; ``list_seconds`` is told how long initial events took where a client asked for them."""
        self.min_timeout_s, self.events_total, self.list_seconds = min_timeout_s, events_total, list_seconds
        self._sent = WeakValueDictionary[tuple[str, ...], Sent]()
        self.open: set[WatchStream] = set()
        self.counts: dict[tuple[str, str, str, str], int] = {}  # of open ones, by group, resource, namespace and name; "" for any
        self.closing = False

    def sent(self, labels: tuple[str, ...]) -> Sent | None:
        """What counts the events of a resource that are sent; None where nobody does."""
        if self.events_total is None:
            return None
        found = self._sent.get(labels)
        if found is None:
            found = self._sent[labels] = Sent(_soon, partial(self.events_total.inc, labels))
        return found

    def begin(self, stream: WatchStream) -> None:
        """It is open."""
        self.open.add(stream)
        self.counts[stream.place] = self.counts.get(stream.place, 0) + 1

    def end(self, stream: WatchStream) -> None:
        """It is not any more."""
        self.open.discard(stream)
        left = self.counts.pop(stream.place) - 1
        if left:
            self.counts[stream.place] = left

    async def drain(self, grace_s: float, least_per_s: float) -> None:
        """End the watches one after another, ``least_per_s`` of them or more and all within ``grace_s``, so that their clients come to the
        other servers a few at a time. Those that are left when it is over are still open."""
        loop, waiting = asyncio.get_running_loop(), list(self.open)
        count, began = len(waiting), loop.time()
        rate = max(least_per_s, count / grace_s)
        while self.open and (took := loop.time() - began) < grace_s:
            for _ in range(len(waiting) - max(0, count - 1 - int(took * rate))):  # the first at once
                waiting.pop().finish()
            await asyncio.sleep(DRAINED_S)

    def end_all(self) -> None:
        """End every watch, and whatever begins from now on."""
        self.closing = True
        for s in list(self.open):
            s.finish()

    def end_of(self, served: Collection[Served]) -> None:
        """End the watches of resources that are served no more, or otherwise: nothing more is sent, and of thousands some in a turn of the
        loop say so."""
        ended = [s for s in self.open if s.served in served]
        for s in ended:
            s.over()
        _tell(iter(ended))

    async def send_bookmarks(self) -> None:
        """Ask every watch for a bookmark, as soon as it has nothing else to send: some in a turn of the loop, for each takes a moment to
        write it, and there may be tens of thousands."""
        for i, s in enumerate(list(self.open), 1):
            s.ask_bookmark()
            if not i % TOLD_AT_ONCE:
                await asyncio.sleep(0)


def _tell(ended: Iterator[WatchStream]) -> None:
    for told, s in enumerate(ended, 1):
        s.finish()
        if told == TOLD_AT_ONCE:
            asyncio.get_running_loop().call_soon(_tell, ended)
            break


def watch(req: Request, served: Served, namespace: str, name: str, watches: Watches) -> Response | Awaitable[Response]:
    """Opens a watch. Errors found before the stream starts are ordinary Statuses; an expired revision is an ERROR event."""
    if len(req.query) >= LONG_QUERY:
        return _watch_aside(req, served, namespace, name, watches)
    return _watch_asked(req, served, namespace, name, watches, asked_of(req, served, True))


async def _watch_aside(req: Request, served: Served, namespace: str, name: str, watches: Watches) -> Response:
    return _watch_asked(req, served, namespace, name, watches, await POOL.run(asked_of, req, served, True))


def _watch_asked(req: Request, served: Served, namespace: str, name: str, watches: Watches, asked: Asked) -> Response:
    o = asked.options
    if name and o.field_selector is not None and name_requirement(o) != name:
        raise bad_request("fieldSelector metadata.name doesn't match requested name")
    rv = resource_version(o.resource_version)
    # Only here a form without framing is refused. The end of initial events is told on an object of its own; a Table has no place for that.
    m = respond.media(req, watch=True, table=not (o.send_initial_events and o.allow_bookmarks))
    req.long_running = True
    include = req.params.get("includeObject")
    if m.convert is not None and m.convert.kind == respond.TABLE:
        # Refuses an includeObject it does not know before the stream starts.
        printers.table((served.group, served.version, served.kind), [], now=0.0, include_object=include, custom_columns=served.columns)
    encoder = encoder_for(served, m, include)
    s = WatchStream(watches, served, namespace, name, asked, rv, encoder, req.initialized, req.user.name if req.user else "")
    return Response(200, [(b"content-type", WATCH_TYPES[m.accepted])], stream=s.run)


class WatchStream:
    """One client's watch. Lives from ``run`` being awaited to its end; ``finish`` ends it cleanly from outside.

    Events are pulled from the store's watcher when the client has taken what was written before: a client that stalls
    holds one write and a bounded queue, and when it goes on it is served from the history.
    """

    __slots__ = (
        "_begun", "_bookmark_due", "_encoder", "_ended", "_forward", "_initialized", "_matcher", "_namespace", "_opened", "_options", "_rv",
        "_served", "_sieve", "_take", "_target", "_user", "_watcher", "_watches", "place",
    )  # fmt: skip

    def __init__(
        self, watches: Watches, served: Served, namespace: str, name: str, asked: Asked, rv: int, encoder: Encoder,
        initialized: Callable[[], None] | None, user: str,
    ) -> None:  # fmt: skip
        """``initialized`` is called once what was there when the watch began is sent; ``user`` has to have room for what is large."""
        self._initialized, self._user = initialized, user
        self.place = (served.group, served.resource, namespace, name)
        self._watches, self._served, self._namespace, self._rv, self._encoder = watches, served, namespace, rv, encoder
        # By name in all namespaces: the selector finds them.
        self._target = served.registry.key(namespace, name) if name and (namespace or not served.record.namespaced) else None
        self._take = FIRST_TAKE
        o, self._matcher, self._sieve = asked
        if self._target is not None and self._matcher is not None and len(self._matcher) == 1 and self._matcher.trigger == (NAME, name):
            self._matcher = None  # it asks for what the key says
        # What was compiled is enough: parsed, a selector of 600 terms is 150 kB for as long as the watch lasts.
        self._options = o._replace(label_selector=None, field_selector=None)
        self._ended = self._bookmark_due = self._begun = False
        self._watcher: Any = None
        self._forward = self._forwarding(rv)

    @property
    def scope(self) -> str:
        """What is watched, as metrics say it: resource, namespace or cluster."""
        _, _, namespace, name = self.place
        return "resource" if name else "namespace" if namespace else "cluster"

    async def run(self, write: Write) -> None:
        """Write events until the watch's time is over, the client goes or it fails; a failure is told as an ERROR event."""
        w = self._watches
        if w.closing:
            return
        loop = asyncio.get_running_loop()
        self._opened = loop.time()
        o = self._options
        life = o.timeout_s or w.min_timeout_s * (1 + random.random())
        if life < 0:
            return  # over before it began, as upstream's context is
        timers = [loop.call_later(min(life, LONGEST_S), self.finish)]
        if o.allow_bookmarks and BOOKMARK_BEFORE_END_S < life <= LONGEST_S:
            timers.append(loop.call_later(life - BOOKMARK_BEFORE_END_S, self.ask_bookmark))
        w.begin(self)
        try:
            await write(b"")  # the headers go out now: a watch of a quiet resource must still be seen to be open
            try:
                await self._initial(write)
                if self._initialized is not None:
                    self._initialized()
                    self._initialized = None
                time_slice = TimeSlice()
                if self._served.native and self._sieve is None and self._encoder.copies:
                    self._forward.begin = begin_of(write)
                while not self._ended:
                    if time_slice.over:  # a client may take whatever comes
                        await time_slice.pause()
                        if self._ended:  # nobody says so again
                            break
                    if self._watcher.ready:
                        frames = await self._framed(self._next())
                        if frames:
                            await self._send(write, frames[0] if len(frames) == 1 else b"".join(frames))
                    elif self._bookmark_due:
                        self._bookmark_due = False
                        if self._watcher.progress >= self._rv:  # a watch may wait for a revision to come
                            await write(self._one(self._encoder.bookmark(self._watcher.progress, None)))
                    else:
                        await self._woken()
                        time_slice = TimeSlice()
                        await self._rest(write)
            except Compacted as e:
                await write(self._one(self._encoder.error(errors.expired(f"too old resource version: {e.requested} ({e.compacted})"))))
            except FutureRevision as e:
                await write(self._one(self._encoder.error(too_large(e.requested, e.current))))
            except TransformError as e:
                await write(self._one(self._encoder.error(errors.internal(str(e)))))
            except ApiError as e:
                await write(self._one(self._encoder.error(e)))  # a conversion failed; nothing of its events was written
            except NotTakenError:
                # The connection ends without an end, and with what it holds: a last word would wait behind the rest.
                raise errors.timeout("watch: what was sent was not taken in time") from None
        finally:
            for t in timers:
                t.cancel()
            w.end(self)
            if self._watcher is not None:
                self._watcher.close()
            # Each of these leads back here. Cycles are looked for once in 30,000 objects, and what thousands of watches leave until then
            # is made anew beside it, so that the allocator grows by as much each time.
            self._watcher = self._forward.queued = self._forward.begin = self._forward.failed = None

    async def _initial(self, write: Write) -> None:
        """Sends the current state where one is due and subscribes to what follows it."""
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
                await write(self._one(self._encoder.bookmark(after, {INITIAL_EVENTS_END: "true"})))
                if self._watches.list_seconds is not None:
                    group, resource, _, _ = self.place
                    labels = (group, resource, self.scope, self._served.version)
                    self._watches.list_seconds.observe(labels, asyncio.get_running_loop().time() - self._opened)
        elif after == 0:
            after = store.revision
        elif after < self._served.oldest:
            raise Compacted(after, self._served.oldest)
        # A revision that has not happened yet means "only what is newer": upstream waits in silence.
        trigger = self._matcher.trigger if self._matcher is not None else None
        self._forward = self._forwarding(after)
        self._watcher = store.watch(prefix, min(after, store.revision), self._forward, self._target, trigger=trigger)
        self._forward.queued, self._rv = self._watcher, after

    async def _once_converted(self, write: Write, store, prefix: str) -> int:
        """``_send_current``; while the current objects cannot be converted nothing is sent, as upstream, whose cache is not ready then. A
        client that waits for the end of the initial events is told."""
        pause = FIRST_PAUSE_S
        while True:
            try:
                return await self._send_current(write, store, prefix)
            except ApiError:
                if self._begun or self._options.allow_bookmarks:
                    raise
            timer = asyncio.get_running_loop().call_later(pause, self._signal)
            if not self._ended:
                await self._woken()
            timer.cancel()
            if self._ended:
                return store.revision
            pause = min(2 * pause, LONGEST_PAUSE_S)

    async def _send_current(self, write: Write, store, prefix: str) -> int:
        """The current objects as ADDED events, in pages at one revision; returns that revision."""
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
        """Sends these; how many bytes they are. ``held`` is what the user's room holds for them."""
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
        aside = many(store, prefix, self._matcher)
        while True:
            if time_slice.over:
                await time_slice.pause()
            await room.enter(self._user, FIRST_BYTES)
            held = [FIRST_BYTES]
            try:
                args: Any = (prefix, start, items, revision, self._matcher)
                size = underway.page_bytes
                if aside:
                    async with collecting:
                        page = await asyncio.to_thread(store.range, *args, max_bytes=size)
                else:
                    page = store.range(*args, max_bytes=size)
                start, revision, records = page.next_key if page.more else "", page.revision, page.records
                del page  # a client that does not read keeps what is held here
                if records:
                    count = len(records)
                    items = next_items(count, await self._send_initial(write, records, held))
            finally:
                room.add(self._user, -held[0])
            if not start or self._ended:
                return revision

    async def _initial_frames(self, records: list[Any]) -> list[bytes]:
        if self._sieve is not None:
            sifted = await self._unless_ended(asyncio.ensure_future(converted(self._served, records, self._sieve)))
            return [self._encoder.frame(ADDED, rec, rec.revision) for rec in sifted if rec is not None]
        shown: Sequence[Shown]
        if self._aside(records):
            shown = await self._unless_ended(asyncio.ensure_future(self._served.converted(records)))
            return await POOL.run(self._added, shown)
        found = self._served.convert(records)
        shown = found if isinstance(found, Sequence) else await self._unless_ended(asyncio.ensure_future(found))
        return self._added(shown)

    def _added(self, shown: Sequence[Shown]) -> list[bytes]:
        return [self._encoder.frame(ADDED, rec, rec.revision) for rec in shown]

    def _aside(self, what: Sequence[Any]) -> bool:
        """Whether frames of records or events are made beside the loop: large ones in forms that are not just copied."""
        return not self._encoder.copies and (self._encoder.costly or large(what, self._served.converts_from))

    def _send(self, write: Write, piece: bytes) -> Awaitable[None]:
        """Writes it; a large one counts as under way until it is taken."""
        return write(piece) if len(piece) < LEAST_BYTES else self._send_large(write, piece)

    async def _send_large(self, write: Write, piece: bytes) -> None:
        with underway:
            await room.enter(self._user, len(piece))
            try:
                await room.taken(write, piece)
            finally:
                room.add(self._user, -len(piece))

    def _next(self) -> list[Any]:
        """The next events, about as many as make a page."""
        events = self._watcher.take(self._take)
        if events:
            self._take = next_items(len(events), sum(map(len, events)))
        return events

    async def _framed(self, events: list[Event]) -> list[bytes]:
        if not self._served.native or self._sieve is not None:
            return self._counted(await self._converted_frames(events))
        if self._aside(events):
            return self._counted(await POOL.run(self._forward.frames, events))
        return self._counted(self._forward.frames(events))

    async def _converted_frames(self, events: list[Event]) -> list[bytes]:
        """``Forward.frames`` in another version. Raises what a conversion raises; nothing is to be written of these events then."""
        if self._sieve is not None:
            selected = await self._sifted(events, self._sieve)
        else:
            selected = [(e, kind) for e in events if e.revision > self._rv and (kind := seen_as(e, self._matcher))]
        shown = await self._shown(selected)  # nothing when the watch has ended
        pairs = list(zip(selected, shown, strict=False))
        return await step(self._aside(events), lambda: [_frame(self._encoder, e, kind, rec) for (e, kind), rec in pairs])

    async def _sifted(self, events: list[Event], sieve: Sieve) -> list[tuple[Event, str]]:
        """Events as what this client sees them, selected by what their objects are in its version; nothing when the watch has ended."""
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

    def _one(self, frame: bytes) -> bytes:
        return self._counted([frame])[0]

    def _forwarding(self, after: int) -> Forward:
        """What sends events newer than ``after`` as they come, where that is possible, or wakes the task. It leads to nothing of this."""
        encoder, r = self._encoder, self._served
        sent = self._watches.sent((r.group, r.version, r.resource))
        return Forward(encoder.key if encoder.shared else None, partial(_frame, encoder), self._matcher, after, sent, LEAST_BYTES)

    async def _shown(self, selected: list[tuple[Event, str]]) -> list[Any]:
        """What is shown of these events in this version (None where there is a frame of it), all converted in one step.

        Conversions that wait are left on the events, so that streams of the same version wait for one and do not ask again.
        """
        out: list[Any] = [None] * len(selected)
        missing: list[int] = []
        shared: list[int] = []
        for i, (e, kind) in enumerate(selected):
            if not self._encoder.shared or self._encoder.key + kind not in e.frames:
                (shared if self._converted(kind) in e.frames else missing).append(i)
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
                _share([(e.frames, self._converted(kind)) for e, kind in which], asyncio.ensure_future(found))
                shared += missing
        # Taken at once: what fails while another is waited for is on the events no longer.
        for i, left in [(i, selected[i][0].frames[self._converted(selected[i][1])]) for i in shared]:
            if isinstance(left, _Coming):
                found = await self._unless_ended(left.pending)
                if self._ended:
                    return []
                out[i] = found[left.place]
            else:
                out[i] = left
        return out

    def _converted(self, kind: str) -> tuple[Any, ...]:
        """Under what events carry what is shown of them in this version."""
        return (*self._served.identity, "converted", kind == DELETED)

    async def _unless_ended(self, pending: asyncio.Future[Sequence[T]]) -> Sequence[T]:
        """What ``pending`` gives; nothing when this watch ends before. It is not cancelled then: others may wait for it."""
        pending.add_done_callback(self._wake_up)
        while not pending.done() and not self._ended:
            await self._woken()
        return pending.result() if pending.done() else ()

    @property
    def served(self) -> Served:
        """The resource that is watched."""
        return self._served

    def _woken(self) -> Awaitable[None]:
        """Waits until there is something to do."""
        wake = self._forward.wake = asyncio.get_running_loop().create_future()
        return wake

    async def _rest(self, write: Write) -> None:
        """What was not sent as it came. Raises what was met there."""
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
        """There is nothing more to send; who waits for something hears of it by ``finish``."""
        self._ended = True

    def finish(self) -> None:
        """End the stream after what it is writing."""
        self._ended = True
        self._signal()

    def ask_bookmark(self) -> None:
        """Everything up to the revision of the bookmark will have been written to this client before it."""
        if self._options.allow_bookmarks:
            self._bookmark_due = True
            self._signal()


def _soon(tell: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_soon(tell)


def _frame(encoder: Encoder, e: Event, kind: str, shown: Shown | None = None) -> bytes:
    """The frame of an event, made once for all streams of its encoding."""
    frame = e.frames.get(encoder.key + kind) if encoder.shared else None
    if frame is None:
        frame = encoder.frame(kind, _state(e, kind) if shown is None else shown, e.revision)
        if encoder.shared:
            e.frames[encoder.key + kind] = frame
    return frame


def _state(e: Event, kind: str) -> Record:
    """What is shown of an event: what left, or left the selector, as it was last."""
    found = e.previous if kind == DELETED else e.record
    assert found is not None
    return found


class _Coming(NamedTuple):
    """One of what is waited for. It is read from there: a future is done before anybody who waits for it is told."""

    pending: asyncio.Future[Sequence[Shown]]
    place: int


def _share(places: list[tuple[dict[Any, Any], Any]], pending: asyncio.Future[Sequence[Shown]]) -> None:
    """Puts what is waited for where each of its records is to be found, and the record itself there once it has come. A failure is
    everybody's who waits; who comes later tries anew."""

    def done(task: asyncio.Future[Sequence[Shown]]) -> None:
        failed = task.cancelled() or task.exception() is not None
        for i, (frames, key) in enumerate(places):
            if failed:
                frames.pop(key, None)
            else:
                frames[key] = task.result()[i]

    for i, (frames, key) in enumerate(places):
        frames[key] = _Coming(pending, i)
    pending.add_done_callback(done)
