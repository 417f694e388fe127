# From an event to who watches: queues of watchers, and the streams that pass an event on at once.
#
# Owns references only; bounded by the hub's limits (kas/store/hub.py). Everything runs on the loop's thread. Why C: a thousand watches of
# the same come by here with each event, and nearly all of what one of them does is here (bench/end_to_end.py, watch-1000).

from collections import deque

cdef str ADDED = "ADDED"
cdef str MODIFIED = "MODIFIED"
cdef str DELETED = "DELETED"


cdef class Queued:
    """What waits for one watcher (``kas.store.hub.Watcher``): events of whole revisions, ``bytes`` of them. ``live``: what is dispatched is
    queued; up to the revision ``joined`` it had everything before that, and up to ``taken`` it was given it."""

    def __init__(self, on_ready not None, Py_ssize_t limit, taken not None):
        self._queue = deque()
        self.on_ready, self.limit, self._taken, self._joined = on_ready, limit, taken, 0


def push_event(event not None, watchers not None, list woken not None, Py_ssize_t most_bytes) -> list:
    """Queues an event for those of ``watchers`` (``Queued``) that are live; notes in ``woken`` who had nothing before. Those who have as
    much as their limit, or more than ``most_bytes``, have fallen behind, and are given back."""
    cdef Queued queued
    cdef list behind = []
    cdef object revision = event.revision
    cdef Py_ssize_t size = len(event)
    for queued in watchers:
        # A listener may end a watcher, or let it join, in the middle of a dispatch whose events it has had from the ring.
        if not queued._live or revision <= queued._joined:
            continue
        if not len(queued._queue):
            queued._taken = revision - 1  # live and nothing queued: it had seen all before
            queued._bytes = size
            queued._queue.append(event)
            woken.append(queued)
        elif len(queued._queue) >= queued.limit or queued._bytes > most_bytes:
            behind.append(queued)
        else:
            queued._bytes += size
            queued._queue.append(event)
    return behind


def push_events(list events not None, watchers not None, list woken not None, Py_ssize_t most_bytes) -> tuple:
    """``push_event`` of several that can be opened, in one step for each watcher: thousands may watch what hundreds are written to at once.
    Gives back who has fallen behind, and who joined at one of their revisions or later, who was given none of them."""
    cdef Queued queued
    cdef list behind = [], joined = []
    cdef object first = events[0].revision
    cdef Py_ssize_t count = len(events), last = len(events[count - 1]), size = 0
    for event in events:
        size += len(event)
    for queued in watchers:
        if not queued._live:
            continue
        if first <= queued._joined:
            joined.append(queued)
            continue
        if not len(queued._queue):
            queued._taken, queued._bytes = first - 1, 0
            woken.append(queued)
        if len(queued._queue) + count > queued.limit or queued._bytes + size - last > most_bytes:
            behind.append(queued)
        else:
            queued._bytes += size
            queued._queue.extend(events)
    return behind, joined


# The piece that was put together last, and of what: of streams that are told one after another most have the same.
cdef list _frames_of_piece = []
cdef bytes _piece = b""


cdef bytes in_one(list frames):
    """Frames as one piece."""
    global _frames_of_piece, _piece
    cdef Py_ssize_t i, n = len(frames)
    if n == 1:
        return <bytes?>frames[0]
    if n != len(_frames_of_piece):
        n = 0
    for i in range(n):
        if frames[i] is not _frames_of_piece[i]:
            n = 0
            break
    if n == 0:
        _frames_of_piece, _piece = frames, b"".join(frames)
    return _piece


cdef class Sent:
    """How many events were sent, for many streams: ``told(n)`` is called with it once a turn of the loop, by what ``soon`` was given."""

    def __init__(self, soon not None, told not None):
        self._soon, self._told = soon, told

    cdef int add(self, Py_ssize_t n) except -1:
        if self._n == 0:
            self._soon(self.tell)
        self._n += n
        return 0

    def tell(self):
        cdef Py_ssize_t n = self._n
        self._n = 0
        self._told(n)


cdef class Forward:
    """``on_ready`` of a watcher, for the task of a stream that waits in ``wake``: events that come while the task waits for nothing else
    leave here and now, in one piece, since to wake it would cost more than all the rest. What is more than that, or cannot be done at once,
    is the task's, which is woken.

    ``begin(piece)`` sends one, and returns what is left of it to be awaited, or None (``kas.request.http.begin_of``); None where the task
    is to do everything. ``frame(event, kind)`` makes a frame; those of a ``key`` are shared by all streams that have it, None: of none.
    Events up to the revision ``after`` are passed over, and those that ``matcher`` does not select; ``sent`` counts what is
    sent. A piece of ``most_bytes`` and more is not sent here. ``unsent`` and ``failed`` are what is left for the task."""

    def __init__(self, str key, frame not None, matcher, after not None, Sent sent, Py_ssize_t most_bytes):
        self._matcher, self._after, self._frame, self._sent, self._most_bytes = matcher, after, frame, sent, most_bytes
        self._added, self._modified, self._deleted = (None, None, None) if key is None else (key + ADDED, key + MODIFIED, key + DELETED)

    def __call__(self):
        cdef object wake = self.wake
        if wake is None or wake.done():
            return
        if not self._may_pass_on():
            wake.set_result(None)
            return
        try:
            self._pass_on()
        except Exception as e:  # of whatever kind: the stream raises it, not who has written
            self.failed = e
        if self.unsent is not None or self.failed is not None:
            wake.set_result(None)

    cdef bint _may_pass_on(self) except -1:
        """Whether what is queued is all there is, and not too much; else ``take()`` would read the log, or raise, or give several parts."""
        cdef Py_ssize_t n
        if self.begin is None or self.queued is None or not self.queued._live:
            return False
        n = len(self.queued._queue)
        return n == 1 or (n > 1 and self.queued._bytes < self._most_bytes)

    cdef int _pass_on(self) except -1:
        cdef Queued queued = self.queued
        cdef Py_ssize_t n = len(queued._queue)
        cdef list events, frames
        cdef Event event
        cdef bytes piece
        queued._bytes = 0
        if n == 1:
            event = <Event?>queued._queue.pop()
            queued._taken = event.revision
            piece = self._seen(event)
        else:
            events = list(queued._queue)
            queued._queue.clear()
            queued._taken = (<Event?>events[n - 1]).revision
            frames = self.frames(events)
            n = len(frames)
            piece = in_one(frames) if n else None
        if piece is None:
            return 0
        if self._sent is not None:
            self._sent.add(n)
        self.unsent = self.begin(piece) if PyBytes_GET_SIZE(piece) < self._most_bytes else piece
        return 0

    cpdef list frames(self, list events):
        """Those of the events that the stream is to have."""
        cdef list frames = []
        cdef bytes frame
        for event in events:
            frame = self._seen(<Event?>event)
            if frame is not None:
                frames.append(frame)
        return frames

    cdef bytes _seen(self, Event event):
        """The frame of an event, None where the stream is not to have it."""
        cdef str kind
        if event.revision <= self._after:
            return None
        kind = kind_of(event, self._matcher)
        return None if kind is None else self._made(event, kind)

    cdef bytes _made(self, Event event, str kind):
        cdef str key = self._modified if kind is MODIFIED else self._added if kind is ADDED else self._deleted
        cdef object found = event._frames.get(key) if key is not None and event._frames is not None else None
        return <bytes?>(found if found is not None else self._frame(event, kind))


cdef str kind_of(Event e, Matcher matcher):
    """As what a client whose selector is ``matcher`` sees an event; None when it does not."""
    cdef bint is_in, was_in
    if matcher is None:
        return DELETED if e.record is None else ADDED if e.previous is None else MODIFIED
    is_in = e.record is not None and selected(matcher, PyBytes_AS_STRING(e.record.head))
    was_in = e.previous is not None and selected(matcher, PyBytes_AS_STRING(e.previous.head))
    if is_in:
        return MODIFIED if was_in else ADDED
    return DELETED if was_in else None


def seen_as(Event event not None, Matcher matcher) -> str:
    """As what a client sees an event, "" when it does not."""
    return kind_of(event, matcher) or ""
