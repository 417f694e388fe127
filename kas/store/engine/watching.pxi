# From an event to its watchers: queues of watchers, and streams that forward an event directly.
#
# Owns only references; bounded by the hub's limits (kas/store/hub.py). Everything runs on the loop's thread. It is compiled
# because each event passes a thousand watches of the same objects, and nearly all work per watch is here
# (bench/end_to_end.py, watch-1000).

from collections import deque

cdef str ADDED = "ADDED"
cdef str MODIFIED = "MODIFIED"
cdef str DELETED = "DELETED"


cdef class Queued:
    """The queue of one watcher (``kas.store.hub.Watcher``): events of whole revisions, ``bytes`` in total. ``live``:
    dispatched events are queued. It had every event up to the revision ``joined`` before it became live; events up to
    ``taken`` were taken."""

    def __init__(self, on_ready not None, Py_ssize_t limit, taken not None):
        self._queue = deque()
        self.on_ready, self.limit, self._taken, self._joined = on_ready, limit, taken, 0


def push_event(event not None, watchers not None, list woken not None, Py_ssize_t most_bytes) -> list:
    """Queues an event for the live ones of ``watchers`` (``Queued``); appends to ``woken`` those whose queue was empty.
    Returns the watchers that have reached their limit, or more than ``most_bytes``, and so have fallen behind."""
    cdef Queued queued
    cdef list behind = []
    cdef object revision = event.revision
    cdef Py_ssize_t size = len(event)
    for queued in watchers:
        # During a dispatch, a listener may end a watcher, or make it join, with the events of this dispatch already taken
        # from the ring.
        if not queued._live or revision <= queued._joined:
            continue
        if not len(queued._queue):
            queued._taken = revision - 1  # live with an empty queue: it has taken everything before
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
    """``push_event`` for several events that could all be opened, in one step per watcher: a batch may write hundreds of
    objects with thousands of watchers. Returns the watchers that have fallen behind, and those that joined at one of these
    revisions or later, for which nothing was queued."""
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


# The last joined piece, and its frames: streams that are notified one after another mostly have the same.
cdef list _frames_of_piece = []
cdef bytes _piece = b""


cdef bytes in_one(list frames):
    """Joins frames into one piece."""
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
    """Counts events sent by many streams: ``report(n)`` is called with their number once per loop iteration, scheduled by
    ``soon``."""

    def __init__(self, soon not None, report not None):
        self._soon, self._report = soon, report

    cdef int add(self, Py_ssize_t n) except -1:
        if self._n == 0:
            self._soon(self.tell)
        self._n += n
        return 0

    def tell(self):
        cdef Py_ssize_t n = self._n
        self._n = 0
        self._report(n)


cdef class Forward:
    """The ``on_ready`` of a watcher whose stream's task waits in ``wake``. Events that arrive while the task waits for
    nothing else are sent directly, in one piece, because waking the task would cost more than everything else. Larger
    amounts, and what cannot be sent at once, are left to the task, which is woken.

    ``begin(piece)`` sends a piece, and returns an awaitable for the rest, or None (``kas.request.http.begin_of``); it is None
    if the task must do everything. ``frame(event, kind)`` makes a frame; frames with the same ``key`` are shared by all
    streams with that key, None: they are not shared. Events up to the revision ``after`` are skipped, and those that
    ``matcher`` does not select; ``sent`` counts the events sent. A piece of ``most_bytes`` or more is not sent here.
    ``unsent`` and ``failed`` are left for the task.
    """

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
        except Exception as e:  # of any kind: it is raised in the stream, not in the writer
            self.failed = e
        if self.unsent is not None or self.failed is not None:
            wake.set_result(None)

    cdef bint _may_pass_on(self) except -1:
        """Whether the queue holds all pending events, and not too many; otherwise ``take()`` would read the log, or raise, or
        return several parts."""
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
        """Returns the frames of the events that are for this stream."""
        cdef list frames = []
        cdef bytes frame
        for event in events:
            frame = self._seen(<Event?>event)
            if frame is not None:
                frames.append(frame)
        return frames

    cdef bytes _seen(self, Event event):
        """Returns the frame of an event, None if the event is not for this stream."""
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
    """Returns the event type for a client whose selector is ``matcher``; None if it does not see the event."""
    cdef bint is_in, was_in
    if matcher is None:
        return DELETED if e.record is None else ADDED if e.previous is None else MODIFIED
    is_in = e.record is not None and selected(matcher, PyBytes_AS_STRING(e.record.head))
    was_in = e.previous is not None and selected(matcher, PyBytes_AS_STRING(e.previous.head))
    if is_in:
        return MODIFIED if was_in else ADDED
    return DELETED if was_in else None


def seen_as(Event event not None, Matcher matcher) -> str:
    """Returns the event type for a client whose selector is ``matcher``, "" if it does not see the event."""
    return kind_of(event, matcher) or ""
