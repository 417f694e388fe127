# Reads that wait until the replica of an etcd is new enough: who has to, how they are put down, and how they go on. On one machine's store
# nobody waits, and none of this runs.
#
# Owns the lists of those who wait, and references. Bounded by the requests that the edge has open. Why C: nearly every read of a cluster
# that is not at resourceVersion=0 waits, with dozens of others, so that to be put down and to go on is all that it costs more than on LMDB;
# in Python that were fourteen functions (bench/on_etcd.py, get-newest).


cdef str ANY_VERSION = "resourceVersion=0"


cdef class FreshRead:
    """A read that waits for ``part`` (``kas.request.parking.Wait``, but for what awaits it, which is who inherits it)."""

    def __cinit__(self, Request req not None, part, beside):
        self.req, self.part, self.beside = req, part, beside

    cpdef park(self, parked):
        """See ``Wait``."""
        self.part.park(parked)


cdef class ConsistentRead:
    """``before`` of a filter: the commonest reads are told apart here, all others by ``rest(request)``. ``wait`` makes who waits: a
    ``FreshRead``."""

    def __init__(self, part_of, beside, wait, rest):
        self._part_of, self._beside, self._wait, self._rest = part_of, beside, wait, rest

    def __call__(self, Request req not None):
        cdef RequestInfo info = req.info
        if not info.is_resource_request:
            return None
        if info.verb == "get":
            if req.query == "":
                return self._wait(req, self._part_of(info), self._beside)
            if req.query == ANY_VERSION:
                return None
        return self._rest(req)


cdef class OnItsWay:
    """A request that waits at a filter: those from ``at`` on are behind it (``kas.request.parking.Waiting``, but for what awaits it)."""

    def __cinit__(self, Way way not None, Request req not None, FreshRead wait not None, Py_ssize_t at):
        self.way, self.req, self.wait, self.at = way, req, wait, at

    cpdef park(self, parked):
        """See ``Waiting``."""
        self.wait.part.park(parked)

    cpdef go_on(self):
        """See ``Waiting``."""
        return self.way._go_on(self.req, self.at)


cdef class PutDown:
    """Who is told that a parked request may go on (``kas.request.parking.Parked``, but for what takes longer). ``answered(result)`` and
    ``failed(error)`` are who inherits it's."""

    def __cinit__(self, app, Request req not None, waiting, receive, send, watcher, spawn):
        self.app, self.req, self.waiting, self.receive, self.send, self.watcher, self.spawn = (
            app, req, waiting, receive, send, watcher, spawn
        )

    cpdef go_on(self):
        """See ``Parked``."""
        try:
            result = (<OnItsWay>self.waiting).go_on() if isinstance(self.waiting, OnItsWay) else self.waiting.go_on()
        except BaseException as e:  # the request's root
            self.failed(e)
        else:
            self.answered(result)


cdef class Lot:
    """Where reads are put down until a question for all of them leaves; ``first()`` is called for the first of them."""

    def __init__(self, first):
        self._first, self._parked = first, []

    def park(self, parked not None):
        """Another one."""
        self._parked.append(parked)
        if len(self._parked) == 1:
            self._first()

    def take(self) -> list:
        """Those who are there, and are no more."""
        cdef list parked = self._parked
        self._parked = []
        return parked

    def __len__(self):
        return len(self._parked)


def go_on_for(ready not None, double stint_s) -> bool:
    """Has those of a deque go on, one at least, until that has taken ``stint_s``; whether somebody is left."""
    cdef double until = _now_s() + stint_s
    while ready:
        parked = ready.popleft()
        if isinstance(parked, PutDown):
            (<PutDown>parked).go_on()
        else:
            parked.go_on()
        if _now_s() > until:
            break
    return bool(ready)
