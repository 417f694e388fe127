"""The watch hub: one per worker, on its event loop; brings every write of every worker to those who watch it.

It follows the log. The own committer hands over its events directly when they continue what the hub has seen; anything else
(another worker wrote, a wake-up came) is read from the log. ``revision`` says up to where everything was dispatched.

Two kinds of followers:

- ``listen(prefix, callback)``: derived state (RBAC index, CRD table). The callback gets each batch of events synchronously while
  the hub dispatches, so after ``catch_up()`` all derived state is as new as the shared revision.
- ``watch(...)``: a client's stream. A ``Watcher`` has a bounded queue and is *pulled*: ``on_ready()`` is called when there is something
  after there was nothing, ``take()`` gives what has come. What arrives between two takes leaves together. A watcher that does not
  take falls behind: its queue is dropped and later refilled from the log in bounded chunks, so a stalled client costs no memory and
  loses nothing; only when the history has passed it by does ``take()`` raise ``Compacted``.

Promises to a watcher: events come in revision order, each once, none missing, from ``after`` on. ``progress`` is a revision up to
which it has taken everything: the resourceVersion of a bookmark.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from kas._fastpath import Event
from kas.store import Compacted

# Events kept in memory so that a watch that resumes shortly after does not read the log: bounded by number and bytes.
RING_EVENTS = 1024
RING_BYTES = 4 << 20
CHUNK = 512
# A watcher that does not take is let fall behind at its number of events, or at so many bytes.
QUEUE_BYTES = 4 << 20

# Directories whose listeners are remembered.
ROUTES = 4096

ReadEvents = Callable[[str, int, int], tuple[list[Event], int]]
Callback = Callable[[list[Event]], None]


class Watcher:
    """One stream's place in the sequence of events. Made by ``Hub.watch``; used on the loop's thread only."""

    __slots__ = ("_bytes", "_hub", "_joined", "_live", "_queue", "_taken", "closed", "key", "limit", "on_ready", "prefix")

    def __init__(self, hub: Hub, prefix: str, key: str | None, after: int, on_ready: Callable[[], None], limit: int) -> None:
        self._hub, self.prefix, self.key, self.on_ready, self.limit = hub, prefix, key, on_ready, limit
        self._queue: deque[Event] = deque()
        self._bytes = 0
        self._taken = after
        self._live = False
        self._joined = 0
        self.closed = False

    @property
    def ready(self) -> bool:
        """Whether another ``take()`` may give something now."""
        return bool(self._queue) or not (self._live or self.closed)

    @property
    def progress(self) -> int:
        """Every event up to this revision has been taken."""
        return self._hub.revision if self._live and not self._queue else self._taken

    def take(self, limit: int = CHUNK) -> list[Event]:
        """The next events, at most ``limit``; an empty list when there are none. While ``ready`` stays True, call it again.

        Raises ``Compacted`` when the watcher fell behind the history; it is closed then.
        """
        if not self._queue and not self._live and not self.closed:
            return self._hub._refill(self, limit)
        queue = self._queue
        if len(queue) <= limit:
            events = list(queue)
            queue.clear()
            self._bytes = 0
        else:
            events = [queue.popleft() for _ in range(limit)]
            self._bytes -= sum(map(len, events))
        if events:
            self._taken = events[-1].revision
        return events

    def close(self) -> None:
        """Leaves the hub. Idempotent."""
        if not self.closed:
            self.closed = True
            self._live = False
            self._queue.clear()
            self._hub._leave(self)

    def _push(self, event: Event) -> None:
        # A callback may end this watcher, or let it join, in the middle of a dispatch whose events it has had from the ring.
        if not self._live or event.revision <= self._joined:
            return
        queue = self._queue
        if len(queue) >= self.limit or (queue and self._bytes > QUEUE_BYTES):
            # Falls behind: the log has it all.
            queue.clear()
            self._bytes = 0
            self._live = False
            self._hub._leave(self)
            self._hub.fallen_behind += 1
            return
        queue.append(event)
        self._bytes += len(event)
        if len(queue) == 1:
            self._taken = event.revision - 1  # live and nothing queued: it had seen all before
            self.on_ready()


class _Listener:
    __slots__ = ("callback", "prefix", "reset")

    def __init__(self, prefix: str, callback: Callback, reset: Callable[[], None] | None) -> None:
        self.prefix, self.callback, self.reset = prefix, callback, reset


class Hub:
    """Dispatches events in revision order. Not thread-safe: everything runs on the loop's thread."""

    def __init__(self, read_events: ReadEvents, shared_revision: Callable[[], int], revision: int) -> None:
        self._read_events = read_events
        self._shared_revision = shared_revision
        self._by_prefix: dict[str, dict[Watcher, None]] = {}
        self._by_key: dict[str, dict[Watcher, None]] = {}
        self._listeners: tuple[_Listener, ...] = ()
        self._routes: dict[str, tuple[_Listener, ...]] = {}
        self._landed: deque[list[Event]] = deque()
        self._ring: deque[Event] = deque()
        self._ring_bytes = 0
        self._ring_after = revision  # the ring holds every event with a revision greater than this
        self._dispatching = False
        self.revision = revision
        self.watchers = 0
        self.fallen_behind = 0

    # -- coming in ----------------------------------------------------------------------------------------------------

    def land(self, events: list[Event]) -> None:
        """The events of an own commit, right after it, from any thread: whoever catches up before they are published need not read
        them from the log."""
        self._landed.append(events)

    def publish(self, events: list[Event]) -> None:
        """Takes the events of an own commit."""
        if events and events[-1].revision > self.revision:
            if events[0].revision == self.revision + 1 and not self._dispatching:
                self._dispatch(events, events[-1].revision)
            else:
                self.catch_up()
        self._next_landed()

    def _next_landed(self) -> list[Event] | None:
        """The landed events that continue what was dispatched, if they are there; lets go of those that were dispatched."""
        landed = self._landed
        while landed and landed[0][0].revision <= self.revision:
            landed.popleft()
        return landed[0] if landed and landed[0][0].revision == self.revision + 1 else None

    def catch_up(self, revision: int = 0) -> None:
        """Dispatches everything up to the shared revision (and up to ``revision``, which must have happened). One atomic load when
        there is nothing to do.

        Call it before using derived state. Inside a listener it does nothing: the dispatch that runs is the one to wait for.
        """
        while max(self._shared_revision(), revision) > self.revision and not self._dispatching:
            own = self._next_landed()
            if own is not None:
                self._dispatch(own, own[-1].revision)
                continue
            try:
                events, reached = self._read_events("", self.revision, CHUNK)
            except Compacted as e:
                self._lost(e.compacted)
                continue
            self._dispatch(events, reached)

    def _lost(self, compacted: int) -> None:
        """The worker slept longer than the history lasts. Watchers meet ``Compacted`` at their next take; listeners rebuild."""
        for index in (self._by_prefix, self._by_key):
            for watcher in [w for watchers in index.values() for w in watchers]:
                watcher._queue.clear()
                watcher._live = False
                self._leave(watcher)
                watcher.on_ready()
        self._ring.clear()
        self._ring_bytes = 0
        self.revision = self._ring_after = compacted
        for listener in self._listeners:
            if listener.reset is not None:
                listener.reset()

    def _dispatch(self, events: list[Event], reached: int) -> None:
        self._dispatching = True
        try:
            for event in events:
                self._ring.append(event)
                self._ring_bytes += len(event)
            self.revision = reached
            while len(self._ring) > RING_EVENTS or self._ring_bytes > RING_BYTES:
                oldest = self._ring.popleft()
                self._ring_bytes -= len(oldest)
                self._ring_after = oldest.revision
            mine: dict[_Listener, list[Event]] = {}
            routes = self._routes
            for event in events:
                directory = event.key.rpartition("/")[0]
                to = routes.get(directory)
                for listener in to if to is not None else self._route(directory):
                    if listener in mine:
                        mine[listener].append(event)
                    else:
                        mine[listener] = [event]
            for listener in self._listeners if mine else ():
                if listener in mine:
                    listener.callback(mine[listener])
        finally:
            self._dispatching = False
        if not self.watchers:
            return
        by_prefix, by_key = self._by_prefix, self._by_key
        for event in events:
            key = event.key
            found = by_key.get(key)
            if found:
                for watcher in tuple(found):
                    watcher._push(event)
            at = key.find("/")
            while at >= 0:
                found = by_prefix.get(key[: at + 1])
                if found:
                    for watcher in tuple(found):
                        watcher._push(event)
                at = key.find("/", at + 1)

    # -- followers ----------------------------------------------------------------------------------------------------

    def listen(self, prefix: str, callback: Callback, reset: Callable[[], None] | None = None) -> Callable[[], None]:
        """Calls back with every later batch of events under ``prefix`` (empty, or ending with "/"); returns the function that ends it.

        ``reset`` is called when events were lost to compaction while the worker slept: build the state anew from a range.
        """
        listener = _Listener(prefix, callback, reset)
        self._listeners = (*self._listeners, listener)
        self._routes.clear()

        def end() -> None:
            self._listeners = tuple(other for other in self._listeners if other is not listener)
            self._routes.clear()

        return end

    def _route(self, directory: str) -> tuple[_Listener, ...]:
        """The listeners of the keys of a directory (which is named without the slash at its end)."""
        path = directory + "/"
        if len(self._routes) >= ROUTES:
            self._routes.clear()
        found = self._routes[directory] = tuple(one for one in self._listeners if path.startswith(one.prefix))
        return found

    def watch(self, prefix: str, after: int, on_ready: Callable[[], None], key: str | None, limit: int) -> Watcher:
        """A watcher of all keys under ``prefix``, or of exactly ``key``, from the revision ``after`` on.

        ``on_ready`` is not called before this returns: look at ``ready`` first. Raises ``Compacted`` or ``FutureRevision``.
        """
        watcher = Watcher(self, prefix, key, after, on_ready, limit)
        if after > self.revision:
            # Another worker's write can be read a moment before its revision is published.
            self._read_events(prefix, after, 0)
            self.catch_up(after)
        if after >= self._ring_after and after <= self.revision:
            backlog = [e for e in self._ring if e.revision > after and (e.key == key if key is not None else e.key.startswith(prefix))]
            if len(backlog) <= limit:
                watcher._queue.extend(backlog)
                watcher._bytes = sum(map(len, backlog))
                self._join(watcher)
                return watcher
        self._read_events(key if key is not None else prefix, after, 0)  # refuses revisions that cannot be served
        return watcher

    def _join(self, watcher: Watcher) -> None:
        index, at = (self._by_prefix, watcher.prefix) if watcher.key is None else (self._by_key, watcher.key)
        index.setdefault(at, {})[watcher] = None
        watcher._live = True
        watcher._joined = self.revision
        self.watchers += 1

    def _leave(self, watcher: Watcher) -> None:
        index, at = (self._by_prefix, watcher.prefix) if watcher.key is None else (self._by_key, watcher.key)
        watchers = index.get(at)
        if watchers is not None and watchers.pop(watcher, self) is None:
            self.watchers -= 1
            if not watchers:
                del index[at]

    def _refill(self, watcher: Watcher, limit: int) -> list[Event]:
        """The next chunk from the log for a watcher that is behind; it joins the live ones when it has reached them."""
        self.catch_up()
        where = watcher.key if watcher.key is not None else watcher.prefix
        try:
            events, reached = self._read_events(where, watcher._taken, limit)
        except Compacted:
            watcher.close()
            raise
        if watcher.key is not None:
            events = [e for e in events if e.key == watcher.key]
        if reached >= self.revision:
            # What is newer than the hub comes by dispatch.
            while events and events[-1].revision > self.revision:
                events.pop()
            reached = self.revision
            self._join(watcher)
        watcher._taken = reached
        return events
