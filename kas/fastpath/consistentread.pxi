# Reads that wait until the replica of an etcd is new enough: who has to, how they are put down, and how they go on. On one machine's store
# nobody waits, and none of this runs.
#
# Owns the lists of those who wait, and references. Bounded by the requests that the edge has open. Why C: nearly every read of a cluster
# that is not at resourceVersion=0 waits, with dozens of others, so that to be put down and to go on is all that it costs more than on LMDB;
# in Python that were fourteen functions (bench/on_etcd.py, get-newest).


cdef str ANY_VERSION = "resourceVersion=0"


@cython.final
cdef class PartOf:
    """What keeps the resource that a request is about: ``main``, but for those that ``others`` has by group and name."""

    def __init__(self, main, dict others not None):
        self._main, self._others = main, others

    def __call__(self, RequestInfo info not None):
        return self._others.get((info.api_group, info.resource), self._main) if self._others else self._main


@cython.final
@cython.freelist(64)
cdef class FreshRead:
    """A read that waits for ``part`` (``kas.request.parking.Wait``). ``passing(read, passed)`` is a coroutine of what its filter answers
    once ``passed`` is over. ``chain`` is None until the request waits as a whole, at that filter: those from ``at`` on are behind it."""

    def __cinit__(self, Request req not None, part, beside, passing):
        self.req, self.part, self.beside, self._passing = req, part, beside, passing

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
    """``before`` of a filter: the commonest reads are told apart here, all others by ``rest(request)``. ``passing`` is ``FreshRead``'s."""

    def __init__(self, part_of, beside, passing, rest):
        self._part_of, self._beside, self._passing, self._rest = part_of, beside, passing, rest

    def __call__(self, Request req not None):
        cdef RequestInfo info = req.info
        if not info.is_resource_request:
            return None
        if info.verb == "get":
            if req.query == "":
                return FreshRead(req, self._part_of(info), self._beside, self._passing)
            if req.query == ANY_VERSION:
                return None
        return self._rest(req)


@cython.final
@cython.freelist(64)
cdef class ParkedRequest:
    """Who is told that a parked request may go on (``kas.request.parking.Parked``). It is answered out of no task when that can be done at
    once; ``app`` sees to the rest."""

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
        except BaseException as e:  # the request's root: granian logs the error and ends the connection
            self.watcher.err(e)
        else:
            self.watcher.done()
        return 0

    def wait(self, passed):
        """See ``Parked``."""
        self.app.answer_later(self, self.waiting.after(passed))


cdef class RoundBase:
    """Those who share a question; ``kas.store.etcd.freshness.Round`` is that, and what happens to who waits long or in vain. ``parked`` were
    put down, ``readers`` are futures of others."""

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
        """Those who were put down, and are no more."""
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
        """Their question is over."""
        cdef long long revision
        if self._rounds._closed:
            return
        revision = self._rounds._question.revision(over)
        if revision < 0:
            self._rounds._unanswered(self, over)
        else:
            self._rounds._tell(self, revision)


cdef class FreshnessBase:
    """Whose question leaves when, and who goes on when it is answered; ``kas.store.etcd.freshness.Freshness`` is that, and what happens where
    nothing is answered, or the replica is behind."""

    def __init__(self, loop, question, replica, hub, wait, round_, double stint_s):
        self._loop, self._call_soon, self._question, self._wait, self._round = loop, loop.call_soon, question, wait, round_
        self._replica, self._hub, self._stint_s, self._ready, self._open = replica, hub, stint_s, deque(), deque()
        self._next = round_(self)

    def park(self, parked not None):
        """As ``join``, for who needs no task while etcd answers soon."""
        cdef RoundBase next_ = self._next
        next_.parked.append(parked)
        if len(next_.parked) == 1:
            next_.since = _now_s()
            self._open.append(next_)
            if self._timer is None:
                self._look_later()
            self._ask_soon()

    def _will_ask(self):
        """The next question leaves at the end of the loop's turn, for all who come in it, unless another one is under way."""
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
        self._next = self._round(self)  # whose is who comes from now on
        self._asking, asking.had = asking, self._replica.revision
        asking.asked = _now_s()
        if not self._question.ask(asking):
            self._find(asking)

    def _told(self, RoundBase asking not None, long long revision):
        """etcd's revision is as new as any acknowledged write; the replica has it, or will be told of it."""
        self._tell(asking, revision)

    cdef int _tell(self, RoundBase asking, long long revision) except -1:
        asking.told = True
        try:
            if revision < asking.had:
                self._went_back(asking)
            elif <long long>self._hub.revision >= revision or not self._wait(revision, asking):
                asking._reached()
            else:
                self._behind(asking)
        except Exception as e:  # who waits is told, not the connection
            asking.fail(e)
        self._asking = None
        self._ask()

    def _over(self):
        """No question is under way any more: who has come meanwhile asks the next one."""
        self._asking = None
        self._ask()

    cdef int _go_on(self, list parked) except -1:
        """They may, in the loop's next turn: never out of the round that they waited for, since what they do then is anything."""
        if not self._ready:
            self._call_soon(self._time_slice)
        self._ready.extend(parked)

    def _time_slice(self):
        """Has some of them go on, one at least, and keeps the loop for no longer than ``stint_s``."""
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
