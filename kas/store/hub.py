"""The watch hub: delivers the writes of all workers to the watchers and listeners of one worker, on its event loop.

The hub follows the log. The worker's own committer hands its events over directly if they continue what the hub has
dispatched; everything else (another worker wrote, a wake-up arrived) is read from the log. ``revision`` is the revision up to
which everything was dispatched. It is always the end of a revision, never inside one, though a revision may have several
events, and many revisions have none here.

There are two kinds of followers:

- ``listen(prefix, callback)`` is for derived state (RBAC index, CRD table). The callback gets each batch of events
  synchronously during the dispatch, so after ``catch_up()`` all derived state is as new as the shared revision. An exception
  in one callback does not affect the others: that listener's ``reset`` is called to rebuild its state, and again until it
  succeeds; ``failing`` counts the listeners for which it has not. A listener is reset in the same way when one of its events
  has a sealed state that cannot be decrypted now: its derived state must not stay outdated once it can.
- ``watch(...)`` is for a client's stream. A ``Watcher`` has a bounded queue and is *pulled*: ``on_ready()`` is called when
  the queue becomes non-empty, ``take()`` returns what has arrived. What arrives between two takes leaves together. A watcher
  that does not take falls behind: its queue is dropped and later refilled from the log in bounded chunks. So a stalled client
  costs no memory and loses nothing; ``take()`` raises ``Compacted`` only when the history it needs has been compacted.

Guarantees to a watcher: events come in revision order, each once, none missing, starting after ``after``. All events of one
revision leave in one ``take()``, whatever its limit. ``progress`` is a revision up to which it has taken everything: the
resourceVersion of a bookmark. When a sealed state cannot be decrypted, the watcher gets the events before that revision, then
``take()`` raises ``TransformError``.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Protocol

from kas.store._engine import Event, Queued, push_event, push_events
from kas.store.errors import Compacted, TransformError

if TYPE_CHECKING:
    import logging

# Events kept in memory so that a watch that resumes shortly after does not read the log: bounded by number and bytes.
RING_EVENTS = 1024
RING_BYTES = 4 << 20
CHUNK = 512
# A watcher that does not take falls behind when its queue reaches its number of events, or this many bytes.
QUEUE_BYTES = 4 << 20

# Watchers notified in one loop iteration; what each then writes takes about 10 µs, or 50 µs with conversion. The others
# wait for later turns, so that an event with thousands of watchers does not delay other requests.
NOTIFIED_PER_TURN = 32

# The key in ``Hub.received`` that says that events were lost unseen.
LOST = ""

# Directories whose listeners are cached.
ROUTES = 4096

# Minimum pause before a listener's ``reset`` is called again: AGAIN_S seconds, and RESTS times the duration of the last call.
# The loop waits for ``reset``, which may have to read all objects of a kind, or wait for a plug-in.
AGAIN_S, RESTS = 1.0, 20


Trigger = tuple[str, str]  # a selectable field and its value
ReadEvents = Callable[[str, int, int], tuple[list[Event], int]]
Callback = Callable[[list[Event]], None]


def _log() -> logging.Logger:
    import logging  # not at the top: the supervisor loads this module, and writes no logs

    return logging.getLogger("kas.store")


class Watcher(Queued):
    """One stream's position in the sequence of events. Created by ``Hub.watch``; used on the loop's thread only."""

    __slots__ = ("_failed", "_hub", "closed", "key", "prefix", "trigger")

    def __init__(
        self, hub: Hub, prefix: str, key: str | None, trigger: Trigger | None, after: int, on_ready: Callable[[], None], limit: int
    ) -> None:
        super().__init__(on_ready, limit, after)
        self._hub, self.prefix, self.key = hub, prefix, key
        self.trigger = trigger if key is None else None  # a key is more specific
        self._failed: TransformError | None = None
        self.closed = False

    @property
    def ready(self) -> bool:
        """Whether another ``take()`` may return events now."""
        return bool(self._queue) or not (self._live or self.closed)

    @property
    def progress(self) -> int:
        """Every event up to this revision has been taken."""
        return self._hub.revision if self._live and not self._queue else self._taken

    def take(self, limit: int = CHUNK) -> list[Event]:
        """Returns the next events, about ``limit`` (a revision is not split); an empty list if there are none. Call it again
        while ``ready`` is True.

        Raises ``Compacted`` when the watcher fell behind the history, ``TransformError`` when the next event cannot be
        decrypted; the watcher is closed then.
        """
        if not self._queue and not self._live and not self.closed:
            if self._failed is not None:
                self.close()
                raise TransformError(self._failed.key, self._failed.why)
            return self._hub._refill(self, limit)
        queue = self._queue
        if len(queue) <= limit:
            events = list(queue)
            queue.clear()
            self._bytes = 0
        else:
            events = [queue.popleft() for _ in range(limit)]
            while queue and queue[0].revision == events[-1].revision:
                events.append(queue.popleft())
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

    def _fall_behind(self) -> None:
        """Drops the queue; its events are read from the log later."""
        self._queue.clear()
        self._bytes = 0
        self._live = False
        self._hub._leave(self)
        self._hub.fallen_behind += 1

    def _fail(self, event: Event) -> bool:
        """Ends the watcher before the revision of an event that cannot be decrypted. Returns whether it must be notified."""
        if not self._live or event.revision <= self._joined:
            return False
        first = not self._queue
        while self._queue and self._queue[-1].revision == event.revision:
            self._bytes -= len(self._queue.pop())
        self._failed, self._live = event.error, False
        self._hub._leave(self)
        return first


Watchers = dict[Watcher, None]


def _push(event: Event, watchers: Iterable[Watcher], woken: list[Watcher]) -> None:
    """Queues an event for the live ones of the watchers; appends to ``woken`` those whose queue was empty."""
    if event.error is not None:
        woken += [watcher for watcher in tuple(watchers) if watcher._fail(event)]
        return
    for watcher in push_event(event, watchers, woken, QUEUE_BYTES):
        watcher._fall_behind()


def _push_all(events: list[Event], watchers: Watchers, woken: list[Watcher]) -> None:
    """As ``_push``, for several events that could all be decrypted."""
    behind, joined = push_events(events, watchers, woken, QUEUE_BYTES)
    for watcher in behind:
        watcher._fall_behind()
    for event in events if joined else ():
        _push(event, joined, woken)


class _Listener:
    """A listener. ``due``: when its ``reset`` may be called again; ``why``: the error of the last call."""

    __slots__ = ("callback", "due", "prefix", "reset", "why")

    def __init__(self, prefix: str, callback: Callback, reset: Callable[[], None] | None) -> None:
        self.prefix, self.callback, self.reset = prefix, callback, reset
        self.due, self.why = 0.0, ""


class Timer(Protocol):
    """A delayed call."""

    def cancel(self) -> object:
        """Prevents the call."""


class Hub:
    """Dispatches events in revision order. Not thread-safe: everything but ``land`` runs on the loop's thread."""

    def __init__(self, read_events: ReadEvents, shared_revision: Callable[[], int], revision: int) -> None:
        self._read_events = read_events
        self._shared_revision = shared_revision
        self._by_prefix: dict[str, Watchers] = {}
        self._by_key: dict[str, Watchers] = {}
        self._by_field: dict[str, dict[str, dict[str, Watchers]]] = {}  # by prefix, field and field value
        self._listeners: tuple[_Listener, ...] = ()
        self._routes: dict[str, tuple[_Listener, ...]] = {}
        self._failing: dict[_Listener, None] = {}
        self._landed: deque[tuple[Sequence[Event], int, int]] = deque()  # events, the revisions before and after them
        self._ring: deque[Event] = deque()
        self._ring_bytes = 0
        self._ring_after = revision  # the ring holds every event with a revision greater than this
        self._dispatching = False
        self._unnotified: OrderedDict[Watcher, None] = OrderedDict()
        self.later: Callable[[Callable[[], None]], object] = lambda call: call()  # calls it in a later loop iteration, if there is one
        self.put_off: Callable[[float, Callable[[], None]], Timer] | None = None  # the same after some seconds
        self._reset_timer: Timer | None = None
        self.revision = revision
        self.watchers = 0
        self.fallen_behind = 0
        self.received: dict[str, int] = {}  # number of events by directory of their keys, since it was last read

    # -- coming in ----------------------------------------------------------------------------------------------------

    def land(self, events: Sequence[Event], after: int, reached: int) -> None:
        """Takes the events of a commit of this worker: all events of the revisions greater than ``after`` up to ``reached``.
        May be called from any thread, directly after the commit: ``catch_up`` then need not read these events from the log
        before they are published."""
        self._landed.append((events, after, reached))

    def publish(self, events: Sequence[Event], after: int, reached: int) -> None:
        """Dispatches the events of a commit of this worker; the arguments are those of ``land``."""
        if reached > self.revision:
            if after == self.revision and not self._dispatching:
                self._dispatch(events, reached)
            else:
                self.catch_up()
        if self._landed:
            self._next_landed()

    def _next_landed(self) -> tuple[Sequence[Event], int] | None:
        """Returns the landed events that continue what was dispatched, or None; discards those that were already dispatched."""
        landed = self._landed
        while landed and landed[0][2] <= self.revision:
            landed.popleft()
        return (landed[0][0], landed[0][2]) if landed and landed[0][1] == self.revision else None

    def catch_up(self, revision: int = 0) -> None:
        """Dispatches everything up to the shared revision (and up to ``revision``, which must have happened). Costs one
        atomic load when there is nothing to do.

        Call it before using derived state. Inside a listener it does nothing: the dispatch in progress is the one to wait for.
        """
        while max(self._shared_revision(), revision) > self.revision and not self._dispatching:
            own = self._next_landed()
            if own is not None:
                self._dispatch(*own)
                continue
            try:
                events, reached = self._read_events("", self.revision, CHUNK)
            except Compacted as e:
                self._lost(e.compacted)
                continue
            self._dispatch(events, reached)

    def _lost(self, compacted: int) -> None:
        """Handles a worker that slept longer than the history lasts. Watchers get ``Compacted`` from their next take;
        listeners rebuild."""
        by_value = [watchers for fields in self._by_field.values() for values in fields.values() for watchers in values.values()]
        for watcher in [w for watchers in (*self._by_prefix.values(), *self._by_key.values(), *by_value) for w in watchers]:
            watcher._queue.clear()
            watcher._live = False
            self._leave(watcher)
            watcher.on_ready()
        self._ring.clear()
        self._ring_bytes = 0
        self.received[LOST] = 0
        self.revision = self._ring_after = compacted
        for listener in self._listeners:
            self._reset(listener)
        self._schedule_reset()

    @property
    def failing(self) -> int:
        """The number of listeners that have missed something and could not rebuild their state."""
        return len(self._failing)

    def _reset(self, listener: _Listener) -> None:
        self._failing.pop(listener, None)
        if listener.reset is None:
            return
        began, why = monotonic(), ""
        try:
            listener.reset()
        except Exception as e:  # of any kind: the other listeners are reset all the same
            if listener not in self._listeners:
                return
            self._failing[listener] = None
            why = f"{type(e).__name__}: {e}"
            if why != listener.why:  # log an error once, not with each attempt
                _log().error("the state derived from %s could not be rebuilt: %s", listener.prefix, why)
        listener.why = why
        if self.put_off is not None:
            now = monotonic()
            listener.due = now + max(AGAIN_S, RESTS * (now - began))

    def _reset_due(self) -> None:
        """Resets the failing listeners that are due."""
        now = monotonic()
        for listener in [one for one in self._failing if one.due <= now]:
            self._reset(listener)
        self._schedule_reset()

    def _schedule_reset(self) -> None:
        """Schedules the next reset of failing listeners. Without a loop they are reset with the next dispatch."""
        if self._reset_timer is not None:
            self._reset_timer.cancel()
            self._reset_timer = None
        if self._failing and self.put_off is not None:
            soonest = min(listener.due for listener in self._failing)
            self._reset_timer = self.put_off(max(0.0, soonest - monotonic()), self._reset_now)

    def _reset_now(self) -> None:
        self._reset_timer, self._dispatching = None, True
        try:
            self._reset_due()
        finally:
            self._dispatching = False

    def close(self) -> None:
        """Stops the resets of failing listeners. Idempotent."""
        self.put_off = None
        if self._reset_timer is not None:
            self._reset_timer.cancel()
            self._reset_timer = None

    def _dispatch(self, events: Sequence[Event], reached: int) -> None:
        self._dispatching = True
        broken = False
        try:
            batches: dict[_Listener, list[Event]] = {}
            ring, routes, received, size = self._ring, self._routes, self.received, 0
            for event in events:
                ring.append(event)
                size += len(event)
                directory = event.key.rpartition("/")[0]
                received[directory] = received.get(directory, 0) + 1
                to = routes.get(directory)
                if to is None:
                    to = self._route(directory)
                if event.error is not None:
                    broken = True
                    self._failing.update(dict.fromkeys(to))
                    continue
                for listener in to:
                    if listener in batches:
                        batches[listener].append(event)
                    else:
                        batches[listener] = [event]
            self._ring_bytes += size
            self.revision = reached
            while len(ring) > RING_EVENTS or self._ring_bytes > RING_BYTES:
                oldest = ring.popleft()
                self._ring_bytes -= len(oldest)
                self._ring_after = oldest.revision
            if broken:
                # Watches that resume from here read the log: a decryption key may be available again by then.
                ring.clear()
                self._ring_bytes, self._ring_after = 0, reached
            for listener in self._listeners if len(batches) > 1 else tuple(batches):  # in order of registration; mostly one of dozens
                if listener in batches:
                    try:
                        listener.callback(batches[listener])
                    except Exception:  # a bug in the callback
                        _log().exception("the state derived from %s is rebuilt", listener.prefix)
                        self._failing[listener] = None
            if self._failing:
                self._reset_due()
        finally:
            self._dispatching = False
        if not self.watchers:
            return
        # Watchers are notified after everything is queued: one that takes at once must not get half of a revision.
        woken: list[Watcher] = []
        if len(events) == 1 or broken:
            for event in events:
                for watchers in self._watchers_of(event):
                    _push(event, watchers, woken)
        else:
            gathered: dict[int, tuple[Watchers, list[Event]]] = {}
            for event in events:
                for watchers in self._watchers_of(event):
                    gathered.setdefault(id(watchers), (watchers, []))[1].append(event)
            for watchers, batch in gathered.values():
                _push_all(batch, watchers, woken)
        if len(woken) <= NOTIFIED_PER_TURN and not self._unnotified:
            for watcher in woken:
                if not watcher.closed:
                    watcher.on_ready()
            return
        waiting = bool(self._unnotified)
        self._unnotified.update(dict.fromkeys(woken))
        if not waiting:
            self._notify()

    def _watchers_of(self, event: Event) -> list[Watchers]:
        """Returns the sets of watchers that an event is for: those of its key, of a prefix of it, and those whose trigger
        field has its value, before or after. Watchers of other values are not visited: each of ten thousand kubelets watches
        the pods of its node."""
        by_prefix, by_field = self._by_prefix, self._by_field
        key = event.key
        places = [self._by_key[key]] if key in self._by_key else []
        at = key.find("/")
        while at >= 0:
            prefix = key[: at + 1]
            if prefix in by_prefix:
                places.append(by_prefix[prefix])
            if by_field and prefix in by_field:
                for field, values in by_field[prefix].items():
                    places += [values[value] for value in (event.values(field) if event.error is None else values) if value in values]
            at = key.find("/", at + 1)
        return places

    def _notify(self) -> None:
        """Notifies the next watchers that have something to take; the rest follow in later loop iterations."""
        for _ in range(min(NOTIFIED_PER_TURN, len(self._unnotified))):
            watcher, _ = self._unnotified.popitem(last=False)
            if not watcher.closed:
                watcher.on_ready()
        if self._unnotified:
            self.later(self._notify)

    # -- followers ----------------------------------------------------------------------------------------------------

    def listen(self, prefix: str, callback: Callback, reset: Callable[[], None] | None = None) -> Callable[[], None]:
        """Calls ``callback`` with every later batch of events under ``prefix`` (empty, or ending with "/"); returns a
        function that ends this.

        ``reset`` is called when events were lost to compaction while the worker slept, or could not be decrypted: it must
        rebuild the state from a range. It is called again when it raises.
        """
        listener = _Listener(prefix, callback, reset)
        self._listeners = (*self._listeners, listener)
        self._routes.clear()

        def end() -> None:
            self._listeners = tuple(other for other in self._listeners if other is not listener)
            self._failing.pop(listener, None)
            self._routes.clear()

        return end

    def _route(self, directory: str) -> tuple[_Listener, ...]:
        """Returns the listeners for the keys of a directory (named without the slash at its end)."""
        path = directory + "/"
        if len(self._routes) >= ROUTES:
            self._routes.clear()
        found = self._routes[directory] = tuple(one for one in self._listeners if path.startswith(one.prefix))
        return found

    def watch(
        self, prefix: str, after: int, on_ready: Callable[[], None], key: str | None, limit: int, trigger: Trigger | None = None
    ) -> Watcher:
        """Returns a watcher of all keys under ``prefix``, or of exactly ``key``, for events after the revision ``after``.
        With a ``trigger``, dispatched events are only those with that value in that field, before or after; events read from
        the history may be more.

        ``on_ready`` is not called before this returns: check ``ready`` first. Raises ``Compacted`` or ``FutureRevision``.
        """
        watcher = Watcher(self, prefix, key, trigger, after, on_ready, limit)
        if after > self.revision:
            # Another worker's write can be read a moment before its revision is published.
            self._read_events(prefix, after, 0)
            self.catch_up(after)
        if after >= self._ring_after and after <= self.revision:
            backlog = self._newer(after, prefix, key)
            if len(backlog) <= limit:
                watcher._queue.extend(backlog)
                watcher._bytes = sum(map(len, backlog))
                self._join(watcher)
                return watcher
        self._read_events(key if key is not None else prefix, after, 0)  # raises for revisions that cannot be served
        return watcher

    def _newer(self, after: int, prefix: str, key: str | None) -> list[Event]:
        """Returns the events of the ring after ``after``. It searches from the newest: most watches begin there, and
        thousands may begin at once."""
        found = []
        for e in reversed(self._ring):
            if e.revision <= after:
                break
            if e.key == key if key is not None else e.key.startswith(prefix):
                found.append(e)
        found.reverse()
        return found

    def _join(self, watcher: Watcher) -> None:
        index, at = self._index_of(watcher)
        index.setdefault(at, {})[watcher] = None
        watcher._live = True
        watcher._joined = self.revision
        self.watchers += 1

    def _index_of(self, watcher: Watcher) -> tuple[dict[str, Watchers], str]:
        """Returns where a live watcher is registered: an index, and the key in it."""
        if watcher.key is not None:
            return self._by_key, watcher.key
        if watcher.trigger is None:
            return self._by_prefix, watcher.prefix
        field, value = watcher.trigger
        return self._by_field.setdefault(watcher.prefix, {}).setdefault(field, {}), value

    def _leave(self, watcher: Watcher) -> None:
        index, at = self._index_of(watcher)
        watchers = index.get(at)
        if watchers is not None and watchers.pop(watcher, self) is None:
            self.watchers -= 1
            if not watchers:
                del index[at]
        if watcher.trigger is not None and not index:
            fields = self._by_field[watcher.prefix]
            del fields[watcher.trigger[0]]
            if not fields:
                del self._by_field[watcher.prefix]

    def _refill(self, watcher: Watcher, limit: int) -> list[Event]:
        """Returns the next chunk from the log for a watcher that is behind; makes it live once it has caught up."""
        self.catch_up()
        where = watcher.key if watcher.key is not None else watcher.prefix
        try:
            events, reached = self._read_events(where, watcher._taken, limit)
        except Compacted:
            watcher.close()
            raise
        if watcher.key is not None:
            events = [e for e in events if e.key == watcher.key]
        failed = next((e for e in events if e.error is not None), None)
        if failed is not None:
            watcher._failed, watcher._taken = failed.error, failed.revision - 1
            return [e for e in events if e.revision < failed.revision] or watcher.take()
        if reached >= self.revision:
            # Events newer than the hub's revision will be dispatched.
            while events and events[-1].revision > self.revision:
                events.pop()
            reached = self.revision
            self._join(watcher)
        watcher._taken = reached
        return events
