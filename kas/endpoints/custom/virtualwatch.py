"""A watch of a resource that an embedding program stores: its events, selected and encoded as frames."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any

from kas.endpoints import respond
from kas.endpoints.frames import ADDED, BOOKMARK, DELETED, MODIFIED, Encoder, JsonNative, encoder_for
from kas.endpoints.options import ListOptions, list_options
from kas.endpoints.selection import with_served_fields
from kas.endpoints.watch import INITIAL_EVENTS_END, WATCH_TYPES, Watches
from kas.meta.errors import ApiError, bad_request
from kas.meta.waiting import TimeSlice
from kas.registry.rest import Event, ObjectList, event_of
from kas.registry.strategy import Obj
from kas.request.http import Request, Response, Write

if TYPE_CHECKING:
    from kas.endpoints.custom.virtual import VirtualServed

Open = Callable[[str], AsyncIterator[Event]]
List = Callable[[], Awaitable[ObjectList]]
Selects = Callable[[ListOptions, Obj], bool]


class VirtualWatch:
    """One client's watch. It takes an event from the storage after the previous one has been written, so nothing accumulates here."""

    def __init__(
        self, served: VirtualServed, name: str, o: ListOptions, encoder: Encoder, watches: Watches, open: Open, list_: List,
        selects: Selects,
    ) -> None:  # fmt: skip
        self.served, self._name, self._options, self._encoder = served, name, o, encoder
        self._watches, self._open, self._list, self._selects = watches, open, list_, selects
        self._unlabelled = o._replace(label_selector=None)
        # Whether the client has an object, for watches with a label selector. For a watch that resumes from a version, ``_unknown`` is
        # true: the client may have any object, and gets one DELETED event for each that is not selected.
        self._has: dict[tuple[str, str], bool] = {}
        self._unknown = False
        self._task: asyncio.Task[Any] | None = None
        self._ended = False

    @staticmethod
    def begin(req: Request, served: VirtualServed, name: str, watches: Watches, open: Open, list_: List, selects: Selects) -> Response:
        """Return the response. Errors found before the stream starts are ordinary Statuses."""
        o = with_served_fields(served, list_options(req.params, force_watch=True))
        m = respond.media(req, watch=True, table=not (o.send_initial_events and o.allow_bookmarks))
        encoder = encoder_for(served, m, req.params.get("includeObject"))
        if isinstance(encoder, JsonNative):
            encoder = Encoder(served)  # there are no stored bytes to copy
        req.long_running = True
        watch = VirtualWatch(served, name, o, encoder, watches, open, list_, selects)
        return Response(200, [(b"content-type", WATCH_TYPES[m.accepted])], stream=watch.run)

    def finish(self) -> None:
        """End the watch cleanly from outside."""
        self._ended = True
        if self._task is not None:
            self._task.cancel()

    def ask_bookmark(self) -> None:
        """Do nothing: only the storage knows up to which revision it has sent events, so it sends the bookmarks."""

    async def run(self, write: Write) -> None:
        """Write events until the timeout, the client's disconnect, or an error of the storage, which is sent as an ERROR event."""
        if self._watches.closing:
            return
        o = self._options
        life = o.timeout_s or self._watches.min_timeout_s * (1 + random.random())
        self._watches.open.add(self)  # type: ignore[arg-type]
        try:
            self._task = asyncio.ensure_future(self._send(write))
            try:
                if not self._ended:
                    await asyncio.wait({self._task}, timeout=life)
            finally:
                self._task.cancel()
                await asyncio.wait({self._task})
            if not self._task.cancelled():
                self._task.result()
        finally:
            self._watches.open.discard(self)

    async def _send(self, write: Write) -> None:
        try:
            listed = await self._listed()
            await write(b"")  # send the headers now, so that the watch is seen to be open
            version = "" if self._options.resource_version == "0" else self._options.resource_version
            if listed is not None:
                version = listed.resource_version
                await self._initial(write, listed)
            self._unknown = version != "" and not self._options.send_initial_events
            time_slice = TimeSlice()
            async with contextlib.aclosing(self._open(version)) as events:  # type: ignore[type-var]
                async for event in events:
                    if time_slice.over:
                        await time_slice.pause()
                    frame = self._frame(event_of(self.served.resource_of, event))
                    if frame:
                        await write(frame)
        except ApiError as e:
            await write(self._encoder.error(e))

    async def _listed(self) -> ObjectList | None:
        """Return the current objects if the client wants initial events, or only events after the current state; otherwise None."""
        o = self._options
        if o.send_initial_events is None or (not o.send_initial_events and o.resource_version not in ("", "0")):
            return None
        listed = await self._list()
        if not listed.resource_version:
            raise bad_request("sendInitialEvents wants a resourceVersion, and lists of this resource have none")
        return listed

    async def _initial(self, write: Write, listed: ObjectList) -> None:
        if not self._options.send_initial_events:
            return
        time_slice = TimeSlice()
        for obj in listed.items:
            if time_slice.over:  # a client may take every write at once, so the loop has to yield
                await time_slice.pause()
            frame = self._frame(Event(ADDED, obj))
            if frame:
                await write(frame)
        if self._options.allow_bookmarks:
            await write(self._encoder.bookmark(int(listed.resource_version), {INITIAL_EVENTS_END: "true"}))

    def _frame(self, event: Event) -> bytes:
        kind, obj = event
        meta = obj["metadata"]
        if kind == BOOKMARK:
            revision = int(meta.get("resourceVersion") or 0)
            return self._encoder.bookmark(revision, None) if self._options.allow_bookmarks else b""
        if (self._name and meta["name"] != self._name) or not self._selects(self._unlabelled, obj):
            return b""  # later events cannot change its name or namespace, so nothing has to be remembered
        if self._options.label_selector is not None:
            wanted = self._options.label_selector.matches(meta.get("labels") or {})
            kind = self._selected(kind, (meta.get("namespace") or "", meta["name"]), wanted)
            if not kind:
                return b""
        rec = self.served.shown(obj)
        return self._encoder.frame(kind, rec, rec.revision)

    def _selected(self, kind: str, key: tuple[str, str], wanted: bool) -> str:
        """Return the event type for a client that sees only ``wanted`` objects, or "" for no event."""
        has = kind != ADDED and self._has.get(key, self._unknown)
        if kind == DELETED:
            self._has.pop(key, None)
        else:
            self._has[key] = wanted
            if wanted:
                return MODIFIED if has else ADDED
        return DELETED if has else ""
