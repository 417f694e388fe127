"""A watch of a resource whose objects an embedding program keeps: its events, selected and framed."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

from kas.endpoints import respond
from kas.endpoints.frames import ADDED, BOOKMARK, DELETED, MODIFIED, Encoder, JsonNative, encoder_for
from kas.endpoints.options import ListOptions, list_options
from kas.endpoints.selection import with_served_fields
from kas.endpoints.watch import WATCH_TYPES, Watches
from kas.meta.errors import ApiError
from kas.registry.rest import Event
from kas.registry.strategy import Obj
from kas.request.http import Request, Response, Write

if TYPE_CHECKING:
    from kas.endpoints.custom.virtual import VirtualServed

Open = Callable[[str], AsyncIterator[Event]]
Selects = Callable[[ListOptions, Obj], bool]


class VirtualWatch:
    """One client's watch; one event is taken from the storage when the one before has been written, so that nothing piles up here."""

    def __init__(self, served: VirtualServed, name: str, o: ListOptions, encoder: Encoder, watches: Watches, open: Open, selects: Selects):
        self.served, self._name, self._options, self._encoder = served, name, o, encoder
        self._watches, self._open, self._selects = watches, open, selects
        self._seen: set[tuple[str, str]] = set()  # what the client knows of, where it does not see all
        self._task: asyncio.Task[Any] | None = None
        self._ended = False

    @staticmethod
    def begin(req: Request, served: VirtualServed, name: str, watches: Watches, open: Open, selects: Selects) -> Response:
        """The answer; errors found before it starts are ordinary Statuses."""
        o = with_served_fields(served, list_options(req.params, force_watch=True))
        m = respond.media(req, watch=True)
        encoder = encoder_for(served, m, req.params.get("includeObject"))
        if isinstance(encoder, JsonNative):
            encoder = Encoder(served)  # there are no stored bytes to copy
        req.long_running = True
        watch = VirtualWatch(served, name, o, encoder, watches, open, selects)
        return Response(200, [(b"content-type", WATCH_TYPES[m.accepted])], stream=watch.run)

    def finish(self) -> None:
        """Ends it cleanly, from outside."""
        self._ended = True
        if self._task is not None:
            self._task.cancel()

    def ask_bookmark(self) -> None:
        """Bookmarks are the storage's to send: nobody else knows how far it has told."""

    async def run(self, write: Write) -> None:
        """Write events until the watch's time is over, the client goes, or the storage fails, which is told as an ERROR event."""
        if self._watches.closing:
            return
        o = self._options
        life = o.timeout_s or self._watches.min_timeout_s * (1 + random.random())
        self._watches.open.add(self)  # type: ignore[arg-type]
        try:
            await write(b"")
            version = "" if o.resource_version == "0" or o.send_initial_events else o.resource_version
            async with contextlib.aclosing(self._open(version)) as events:  # type: ignore[type-var]
                self._task = asyncio.ensure_future(self._send(write, events))
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

    async def _send(self, write: Write, events: AsyncIterator[Event]) -> None:
        try:
            async for event in events:
                frame = self._frame(event)
                if frame:
                    await write(frame)
        except ApiError as e:
            await write(self._encoder.error(e))

    def _frame(self, event: Event) -> bytes:
        kind, obj = event
        meta = obj["metadata"]
        if kind == BOOKMARK:
            revision = int(meta.get("resourceVersion") or 0)
            return self._encoder.bookmark(revision, None) if self._options.allow_bookmarks else b""
        key = meta.get("namespace") or "", meta["name"]
        wanted = (not self._name or meta["name"] == self._name) and self._selects(self._options, obj)
        known = key in self._seen or (kind != ADDED and self._everything)
        if kind == DELETED or not wanted:
            self._seen.discard(key)
            kind = DELETED if known else ""
        elif not self._everything:
            self._seen.add(key)
            kind = MODIFIED if known else ADDED
        if not kind:
            return b""
        rec = self.served.shown(obj)
        return self._encoder.frame(kind, rec, rec.revision)

    @property
    def _everything(self) -> bool:
        return not self._name and self._options.label_selector is None and self._options.field_selector is None
