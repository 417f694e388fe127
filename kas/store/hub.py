"""The watch hub: one per worker, on its event loop; brings every write of every worker to those who watch it.

It follows the log. The own committer hands over its events directly when they continue what the hub has seen; anything else
(another worker wrote, a wake-up came) is read from the log. ``revision`` says up to where everything was dispatched: always the end
of a revision, never inside one, though a revision may have several events and many revisions have none here.

Two kinds of followers:

- ``listen(prefix, callback)``: derived state (RBAC index, CRD table). The callback gets each batch of events synchronously while
  the hub dispatches, so after ``catch_up()`` all derived state is as new as the shared revision. One that raises takes nothing from the
  others: it is told to build its state anew, and again until it can; ``failing`` counts who has not. So is one that had to be told of a
  sealed state which cannot be opened now: what is derived from it must not stay as it was once it can.
- ``watch(...)``: a client's stream. A ``Watcher`` has a bounded queue and is *pulled*: ``on_ready()`` is called when there is something
  after there was nothing, ``take()`` gives what has come. What arrives between two takes leaves together. A watcher that does not
  take falls behind: its queue is dropped and later refilled from the log in bounded chunks, so a stalled client costs no memory and
  loses nothing; only when the history has passed it by does ``take()`` raise ``Compacted``.

Promises to a watcher: events come in revision order, each once, none missing, from ``after`` on; those of one revision leave in one
``take()``, whatever its limit. ``progress`` is a revision up to which it has taken everything: the resourceVersion of a bookmark.
When a sealed state cannot be opened, the watcher gets what came before that revision, then ``take()`` raises ``TransformError``.
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
# A watcher that does not take is let fall behind at its number of events, or at so many bytes.
QUEUE_BYTES = 4 << 20

# Watchers that are told in one turn of the loop; what each then writes takes some 10 µs, 50 where it is converted. The others wait for the
# next turns, so that an event that thousands watch does not keep everybody else waiting.
TOLD_AT_ONCE = 32

# In ``Hub.received``: there were events that nobody saw.
LOST = ""

# Directories whose listeners are remembered.
ROUTES = 4096

# A listener that has built its state anew, or could not, is asked again so much later, and not before so many times what it took have
# passed: the loop waits for it, and it may have to read all of a kind, or to wait for a plug-in.
AGAIN_S, RESTS = 1.0, 20


Trigger = tuple[str, str]  # a selectable field and its value
ReadEvents = Callable[[str, int, int], tuple[list[Event], int]]
Callback = Callable[[list[Event]], None]


def _log() -> logging.Logger:
    import logging  # here, because the supervisor loads this module, and writes no logs

    return logging.getLogger("kas.store")


class Watcher(Queued):
    """One stream's place in the sequence of events. Made by ``Hub.watch``; used on the loop's thread only."""

    __slots__ = ("_failed", "_hub", "closed", "key", "prefix", "trigger")

    def __init__(
        self, hub: Hub, prefix: str, key: str | None, trigger: Trigger | None, after: int, on_ready: Callable[[], None], limit: int
    ) -> None:
        super().__init__(on_ready, limit, after)
        self._hub, self.prefix, self.key = hub, prefix, key
        self.trigger = trigger if key is None else None  # a key tells more
        self._failed: TransformError | None = None
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
        """The next events, about ``limit`` (a revision is not split); an empty list when there are none. While ``ready`` stays True,
        call it again.

        Raises ``Compacted`` when the watcher fell behind the history, ``TransformError`` when the next event cannot be opened; it
        is closed then.
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
        """Drops the queue: the log has it all."""
        self._queue.clear()
        self._bytes = 0
        self._live = False
        self._hub._leave(self)
        self._hub.fallen_behind += 1

    def _fail(self, event: Event) -> bool:
        """Ends the watcher before the revision of an event that cannot be opened."""
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
    """Queues an event for those of the watchers that are live; notes in ``woken`` who had nothing before."""
    if event.error is not None:
        woken += [watcher for watcher in tuple(watchers) if watcher._fail(event)]
        return
    for watcher in push_event(event, watchers, woken, QUEUE_BYTES):
        watcher._fall_behind()


def _push_all(events: list[Event], watchers: Watchers, woken: list[Watcher]) -> None:
    """``_push`` of several that can be opened."""
    behind, joined = push_events(events, watchers, woken, QUEUE_BYTES)
    for watcher in behind:
        watcher._fall_behind()
    for event in events if joined else ():
        _push(event, joined, woken)


class _Listener:
    """``due``: when it may be asked again to begin anew; ``why`` it could not."""

    __slots__ = ("callback", "due", "prefix", "reset", "why")

    def __init__(self, prefix: str, callback: Callback, reset: Callable[[], None] | None) -> None:
        self.prefix, self.callback, self.reset = prefix, callback, reset
        self.due, self.why = 0.0, ""


class Timer(Protocol):
    """What was put off."""

    def cancel(self) -> object:
        """It does not come."""


class Hub:
    """Dispatches events in revision order. Not thread-safe: everything runs on the loop's thread."""

    def __init__(self, read_events: ReadEvents, shared_revision: Callable[[], int], revision: int) -> None:
        self._read_events = read_events
        self._shared_revision = shared_revision
        self._by_prefix: dict[str, Watchers] = {}
        self._by_key: dict[str, Watchers] = {}
        self._by_field: dict[str, dict[str, dict[str, Watchers]]] = {}  # by prefix, field and its value
        self._listeners: tuple[_Listener, ...] = ()
        self._routes: dict[str, tuple[_Listener, ...]] = {}
        self._failing: dict[_Listener, None] = {}
        self._landed: deque[tuple[Sequence[Event], int, int]] = deque()  # events, the revisions before and after them
        self._ring: deque[Event] = deque()
        self._ring_bytes = 0
        self._ring_after = revision  # the ring holds every event with a revision greater than this
        self._dispatching = False
        self._untold: OrderedDict[Watcher, None] = OrderedDict()
        self.later: Callable[[Callable[[], None]], object] = lambda tell: tell()  # begins it in a turn of its own, where there is a loop
        self.put_off: Callable[[float, Callable[[], None]], Timer] | None = None  # the same after some seconds
        self._mending: Timer | None = None
        self.revision = revision
        self.watchers = 0
        self.fallen_behind = 0
        self.received: dict[str, int] = {}  # events by the directory of their keys, since somebody took them

    # -- coming in ----------------------------------------------------------------------------------------------------

    def land(self, events: Sequence[Event], after: int, reached: int) -> None:
        """The events of an own commit, all there are of the revisions greater than ``after`` up to ``reached``; right after it, from any
        thread: whoever catches up before they are published need not read them from the log."""
        self._landed.append((events, after, reached))

    def publish(self, events: Sequence[Event], after: int, reached: int) -> None:
        """Takes the events of an own commit, as ``land`` is given them."""
        if reached > self.revision:
            if after == self.revision and not self._dispatching:
                self._dispatch(events, reached)
            else:
                self.catch_up()
        if self._landed:
            self._next_landed()

    def _next_landed(self) -> tuple[Sequence[Event], int] | None:
        """The landed events that continue what was dispatched, if they are there; lets go of those that were dispatched."""
        landed = self._landed
        while landed and landed[0][2] <= self.revision:
            landed.popleft()
        return (landed[0][0], landed[0][2]) if landed and landed[0][1] == self.revision else None

    def catch_up(self, revision: int = 0) -> None:
        """Dispatches everything up to the shared revision (and up to ``revision``, which must have happened). One atomic load when
        there is nothing to do.

        Call it before using derived state. Inside a listener it does nothing: the dispatch that runs is the one to wait for.
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
        """The worker slept longer than the history lasts. Watchers meet ``Compacted`` at their next take; listeners rebuild."""
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
        self._mend_later()

    @property
    def failing(self) -> int:
        """How many listeners have missed something and could not build their state anew."""
        return len(self._failing)

    def _reset(self, listener: _Listener) -> None:
        self._failing.pop(listener, None)
        if listener.reset is None:
            return
        began, why = monotonic(), ""
        try:
            listener.reset()
        except Exception as e:  # whatever it is: the others' state is built all the same
            if listener not in self._listeners:
                return
            self._failing[listener] = None
            why = f"{type(e).__name__}: {e}"
            if why != listener.why:  # not again with each attempt
                _log().error("what is derived from %s could not be built anew: %s", listener.prefix, why)
        listener.why = why
        if self.put_off is not None:
            now = monotonic()
            listener.due = now + max(AGAIN_S, RESTS * (now - began))

    def _mend(self) -> None:
        """Those who are failing, and due, build their state anew."""
        now = monotonic()
        for listener in [one for one in self._failing if one.due <= now]:
            self._reset(listener)
        self._mend_later()

    def _mend_later(self) -> None:
        """The others by and by. Where there is no loop they do with the next dispatch."""
        if self._mending is not None:
            self._mending.cancel()
            self._mending = None
        if self._failing and self.put_off is not None:
            soonest = min(listener.due for listener in self._failing)
            self._mending = self.put_off(max(0.0, soonest - monotonic()), self._mend_now)

    def _mend_now(self) -> None:
        self._mending, self._dispatching = None, True
        try:
            self._mend()
        finally:
            self._dispatching = False

    def close(self) -> None:
        """Nobody is asked again. Idempotent."""
        self.put_off = None
        if self._mending is not None:
            self._mending.cancel()
            self._mending = None

    def _dispatch(self, events: Sequence[Event], reached: int) -> None:
        self._dispatching = True
        broken = False
        try:
            mine: dict[_Listener, list[Event]] = {}
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
                    if listener in mine:
                        mine[listener].append(event)
                    else:
                        mine[listener] = [event]
            self._ring_bytes += size
            self.revision = reached
            while len(ring) > RING_EVENTS or self._ring_bytes > RING_BYTES:
                oldest = ring.popleft()
                self._ring_bytes -= len(oldest)
                self._ring_after = oldest.revision
            if broken:
                # Who resumes from here on reads the log: a key may have come back meanwhile.
                ring.clear()
                self._ring_bytes, self._ring_after = 0, reached
            for listener in self._listeners if len(mine) > 1 else tuple(mine):  # in their order; mostly there is one, among dozens
                if listener in mine:
                    try:
                        listener.callback(mine[listener])
                    except Exception:  # a bug of its own
                        _log().exception("what is derived from %s is built anew", listener.prefix)
                        self._failing[listener] = None
            if self._failing:
                self._mend()
        finally:
            self._dispatching = False
        if not self.watchers:
            return
        # Readers are told when all is queued: who takes at once must not get half of a revision.
        woken: list[Watcher] = []
        if len(events) == 1 or broken:
            for event in events:
                for watchers in self._places(event):
                    _push(event, watchers, woken)
        else:
            gathered: dict[int, tuple[Watchers, list[Event]]] = {}
            for event in events:
                for watchers in self._places(event):
                    gathered.setdefault(id(watchers), (watchers, []))[1].append(event)
            for watchers, theirs in gathered.values():
                _push_all(theirs, watchers, woken)
        if len(woken) <= TOLD_AT_ONCE and not self._untold:
            for watcher in woken:
                if not watcher.closed:
                    watcher.on_ready()
            return
        waiting = bool(self._untold)
        self._untold.update(dict.fromkeys(woken))
        if not waiting:
            self._tell()

    def _places(self, event: Event) -> list[Watchers]:
        """Who is to be told of an event: who watches its key, a prefix of it, or one whose field has their value, before or after. Who
        waits for others is not looked at: each of ten thousand kubelets watches the pods of its node."""
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

    def _tell(self) -> None:
        """Tells the next of those who have something to take, and the rest of them in later turns."""
        for _ in range(min(TOLD_AT_ONCE, len(self._untold))):
            watcher, _ = self._untold.popitem(last=False)
            if not watcher.closed:
                watcher.on_ready()
        if self._untold:
            self.later(self._tell)

    # -- followers ----------------------------------------------------------------------------------------------------

    def listen(self, prefix: str, callback: Callback, reset: Callable[[], None] | None = None) -> Callable[[], None]:
        """Calls back with every later batch of events under ``prefix`` (empty, or ending with "/"); returns the function that ends it.

        ``reset`` is called when events were lost to compaction while the worker slept, or could not be opened: build the state anew from
        a range. It is called again when it raises.
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
        """The listeners of the keys of a directory (which is named without the slash at its end)."""
        path = directory + "/"
        if len(self._routes) >= ROUTES:
            self._routes.clear()
        found = self._routes[directory] = tuple(one for one in self._listeners if path.startswith(one.prefix))
        return found

    def watch(
        self, prefix: str, after: int, on_ready: Callable[[], None], key: str | None, limit: int, trigger: Trigger | None = None
    ) -> Watcher:
        """A watcher of all keys under ``prefix``, or of exactly ``key``, from the revision ``after`` on. With a ``trigger`` what comes by
        dispatch is only what has that value in that field, before or after; what is read from history may be more.

        ``on_ready`` is not called before this returns: look at ``ready`` first. Raises ``Compacted`` or ``FutureRevision``.
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
        self._read_events(key if key is not None else prefix, after, 0)  # refuses revisions that cannot be served
        return watcher

    def _newer(self, after: int, prefix: str, key: str | None) -> list[Event]:
        """What is newer of the ring, from its end: most begin at the newest, and thousands begin anew at once."""
        found = []
        for e in reversed(self._ring):
            if e.revision <= after:
                break
            if e.key == key if key is not None else e.key.startswith(prefix):
                found.append(e)
        found.reverse()
        return found

    def _join(self, watcher: Watcher) -> None:
        index, at = self._place(watcher)
        index.setdefault(at, {})[watcher] = None
        watcher._live = True
        watcher._joined = self.revision
        self.watchers += 1

    def _place(self, watcher: Watcher) -> tuple[dict[str, Watchers], str]:
        """Where it is to be found while it is live: an index, and its place there."""
        if watcher.key is not None:
            return self._by_key, watcher.key
        if watcher.trigger is None:
            return self._by_prefix, watcher.prefix
        field, value = watcher.trigger
        return self._by_field.setdefault(watcher.prefix, {}).setdefault(field, {}), value

    def _leave(self, watcher: Watcher) -> None:
        index, at = self._place(watcher)
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
        failed = next((e for e in events if e.error is not None), None)
        if failed is not None:
            watcher._failed, watcher._taken = failed.error, failed.revision - 1
            return [e for e in events if e.revision < failed.revision] or watcher.take()
        if reached >= self.revision:
            # What is newer than the hub comes by dispatch.
            while events and events[-1].revision > self.revision:
                events.pop()
            reached = self.revision
            self._join(watcher)
        watcher._taken = reached
        return events
