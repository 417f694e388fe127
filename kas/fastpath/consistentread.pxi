# Consistent reads: reads that wait until the local replica of etcd is recent enough. This part decides which reads wait, parks them, and
# resumes them. With the store of a single machine (LMDB) nothing waits, and none of this runs.
#
# It owns the lists of waiting requests, bounded by the requests that the edge has open. Why C: in a cluster, nearly every read without
# resourceVersion=0 waits together with dozens of others, so parking and resuming is all that it costs more than on LMDB; in Python that
# took fourteen functions (bench/on_etcd.py, get-newest).


cdef str ANY_VERSION = "resourceVersion=0"


@cython.final
cdef class PartOf:
    """Selects the store part that keeps a request's resource: ``main``, except for resources that ``others`` maps by (group, name)."""

    def __init__(self, main, dict others not None):
        self._main, self._others = main, others

    def __call__(self, RequestInfo info not None):
        return self._others.get((info.api_group, info.resource), self._main) if self._others else self._main


@cython.final
@cython.freelist(64)
cdef class FreshRead:
    """A read that waits until ``part`` is recent enough; implements ``kas.request.parking.Wait``.

    ``passing(read, passed)`` returns a coroutine of the filter's answer after ``passed`` has been awaited. ``chain`` is None until the
    whole request waits at its filter; filters from index ``at`` on have not run yet.
    """

    def __cinit__(self, Request req not None, part, fallback, passing):
        self.req, self.part, self.fallback, self._passing = req, part, fallback, passing

    def park(self, parked not None):
        """See ``Wait``."""
        self.part.park(parked)

    def go_on(self):
        """See ``Wait``."""
        return self.chain._go_on(self.req, self.at)

    def after(self, passed):
        """See ``Wait``."""
        found = self._passing(self, passed)
        return found if self.chain is None else self.chain._later(self.req, found, self.at)

    def __await__(self):
        return self.after(self.part.fresh()).__await__()


cdef class ConsistentRead:
    """The ``before`` function of the consistent-read filter: handles the most common reads, and passes all others to ``rest(request)``.
    ``passing`` is that of ``FreshRead``.
    """

    def __init__(self, part_of, fallback, passing, rest):
        self._part_of, self._fallback, self._passing, self._rest = part_of, fallback, passing, rest

    def __call__(self, Request req not None):
        cdef RequestInfo info = req.info
        if not info.is_resource_request:
            return None
        if info.verb == "get":
            if req.query == "":
                return FreshRead(req, self._part_of(info), self._fallback, self._passing)
            if req.query == ANY_VERSION:
                return None
        return self._rest(req)


@cython.final
@cython.freelist(64)
cdef class ParkedRequest:
    """A parked request at the edge; implements ``kas.request.parking.Parked``.

    When it is resumed, it is answered without a task if that is possible at once; otherwise ``app`` (``kas.edge.asgi.App``) completes it.
    """

    def __cinit__(self, app, Request req not None, FreshRead waiting not None, receive, send, watcher, spawn):
        self.app, self.req, self.waiting, self.receive, self.send, self.watcher, self.spawn = (
            app, req, waiting, receive, send, watcher, spawn
        )

    def go_on(self):
        """See ``Parked``."""
        self._go_on()

    cdef int _go_on(self) except -1:
        cdef FreshRead waiting = self.waiting
        cdef object result, left
        try:
            result = waiting.chain._go_on(self.req, waiting.at)
            left = _sent(self.req, result, self.send)
            if left is None:
                self.app.answer_later(self, result)
                return 0
            if left:
                self.app.send_later(self, left)
                return 0
        except BaseException as e:  # the request's root: granian logs the error and closes the connection
            self.watcher.err(e)
        else:
            self.watcher.done()
        return 0

    def wait(self, passed):
        """See ``Parked``."""
        self.app.answer_later(self, self.waiting.after(passed))


cdef class RoundBase:
    """Compiled base class of ``kas.store.etcd.freshness.Round``: reads that share one call to etcd.

    ``parked`` are parked requests, ``readers`` the futures of other readers. The subclass handles those that wait long or in vain.
    """

    def __cinit__(self, FreshnessBase rounds not None):
        self._rounds, self.parked, self.readers = rounds, [], []

    def done(self) -> bool:
        """See ``kas.store.etcd.freshness.Waiter``."""
        return self._done()

    cdef bint _done(self) except -1:
        if self.parked:
            return False
        for reader in self.readers:
            if not reader.done():
                return False
        return True

    def take(self) -> list:
        """Removes and returns the parked requests."""
        return self._take()

    cdef list _take(self):
        cdef list parked = self.parked
        self.parked = []
        return parked

    def reached(self):
        """See ``kas.store.etcd.freshness.Waiter``."""
        self._reached()

    cdef int _reached(self) except -1:
        if self.parked:
            self._rounds._go_on(self._take())
        if self.readers:  # mostly there are none
            self.wake()

    def __call__(self, over):
        """Callback of the round's call to etcd, when it has ended."""
        cdef long long revision
        if self._rounds._closed:
            return
        revision = self._rounds._question.revision(over)
        if revision < 0:
            self._rounds._unanswered(self, over)
        else:
            self._rounds._tell(self, revision)


cdef class FreshnessBase:
    """Compiled base class of ``kas.store.etcd.freshness.Freshness``: decides when a round calls etcd, and resumes its reads when the answer
    is there.

    The subclass handles calls that fail, and a replica that is behind. ``stint_s`` bounds, in seconds, how long resumed requests hold the
    loop.
    """

    def __init__(self, loop, question, replica, hub, wait, round_, double stint_s):
        self._loop, self._call_soon, self._question, self._wait, self._round = loop, loop.call_soon, question, wait, round_
        self._replica, self._hub, self._stint_s, self._ready, self._open = replica, hub, stint_s, deque(), deque()
        self._next = round_(self)

    def park(self, parked not None):
        """Adds a parked request to the next round. Unlike ``join``, this needs no task while etcd answers quickly."""
        cdef RoundBase next_ = self._next
        next_.parked.append(parked)
        if len(next_.parked) == 1:
            next_.since = _now_s()
            self._open.append(next_)
            if self._timer is None:
                self._look_later()
            self._ask_soon()

    def _will_ask(self):
        """Schedules the next round's call for the end of this loop iteration, for all reads that arrive within it, unless another call is
        in progress.
        """
        self._ask_soon()

    cdef int _ask_soon(self) except -1:
        if not self._due and self._asking is None:
            self._due = True
            self._call_soon(self._ask)

    def _ask(self):
        cdef RoundBase asking = self._next
        self._due = False
        if self._closed or asking._done():
            return
        self._next = self._round(self)  # reads that arrive from now on join a new round
        self._asking, asking.had = asking, self._replica.revision
        asking.asked = _now_s()
        if not self._question.ask(asking):
            self._find(asking)

    def _on_answer(self, RoundBase asking not None, long long revision):
        """Ends the call of ``asking``: ``revision`` is etcd's, at least as new as any write acknowledged before the call. The round's reads
        continue once the hub has reached it.
        """
        self._tell(asking, revision)

    cdef int _tell(self, RoundBase asking, long long revision) except -1:
        asking.answered = True
        try:
            if revision < asking.had:
                self._went_back(asking)
            elif <long long>self._hub.revision >= revision or not self._wait(revision, asking):
                asking._reached()
            else:
                self._behind(asking)
        except Exception as e:  # the error goes to the waiting reads, not to the connection
            asking.fail(e)
        self._asking = None
        self._ask()

    def _over(self):
        """Ends the call in progress; reads that arrived in the meantime start the next one."""
        self._asking = None
        self._ask()

    cdef int _go_on(self, list parked) except -1:
        """Resumes parked requests in the next loop iteration: never from within their round, since a resumed request may do anything."""
        if not self._ready:
            self._call_soon(self._time_slice)
        self._ready.extend(parked)

    def _time_slice(self):
        """Resumes parked requests, at least one, for no longer than ``stint_s``; the rest follow in the next iteration."""
        cdef double until = _now_s() + self._stint_s
        while self._ready:
            parked = self._ready.popleft()
            if isinstance(parked, ParkedRequest):
                (<ParkedRequest>parked)._go_on()
            else:
                parked.go_on()
            if _now_s() > until:
                break
        if self._ready:
            self._call_soon(self._time_slice)
