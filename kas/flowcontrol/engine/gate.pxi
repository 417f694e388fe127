# The gate: one call for each request when it arrives, one when it is answered, one when it is over.

cdef frozenset READS = frozenset(("get", "list", "watch"))


cdef class Gate:
    """``begin``, ``after`` and ``release`` are the functions of a filter.

    ``classify(request)`` returns the Flow of a request for whose kind the user has none remembered. ``estimate(request, flow)``
    returns (initial seats, final seats, seconds of the latter); it is called for lists and watches, and for writes if ``watched`` is
    not empty. ``waits(ticket)`` and ``refused(ticket)`` return the result of a request that cannot run now.
    """

    cdef object classify, estimate, waits, refused
    cdef public object epoch                  # replaced after every change of the schemas
    cdef public dict watched                  # what is watched in this worker; if empty, writes notify nobody
    cdef readonly int64_t reading, writing, queued_reads, queued_writes
    cdef object last                          # the user of the last request
    cdef double mixed                         # when the user last changed, in seconds of the monotonic clock

    def __init__(self, classify, estimate, waits, refused):
        self.classify, self.estimate, self.waits, self.refused = classify, estimate, waits, refused
        self.epoch, self.watched = object(), {}

    @property
    def shared(self) -> bool:
        """Whether several users have sent requests within ``MIXED_S``."""
        return now_s() - self.mixed < MIXED_S

    def begin(self, Request req not None):
        """None if the request may run, or what ``waits`` or ``refused`` returned."""
        cdef RequestInfo info = <RequestInfo?>req.info
        cdef str verb = info.verb
        cdef Ticket t
        cdef Flow flow
        cdef int outcome
        cdef object kept, found, user
        if req.long_running and verb != "watch":
            return None
        user = req.user
        if user is not self.last:
            if self.last is not None and user.name != self.last.name:
                self.mixed = now_s()
            self.last = user
        kept = user.flows
        if kept is not None and (<tuple?>kept)[0] is self.epoch:
            if info.is_resource_request:
                found = (<dict>(<tuple>kept)[1]).get((verb, info.api_group, info.resource, info.subresource, info.namespace))
            else:
                found = (<dict>(<tuple>kept)[1]).get((verb, req.path))
        else:
            found = None
        flow = <Flow?>(self.classify(req) if found is None else found)
        t = Ticket.__new__(Ticket)
        t.flow, t.request, t.initial = flow, req, 1
        t.arrived = now_s()
        t.mutating = verb not in READS
        if t.mutating:
            if self.watched and info.is_resource_request:
                t.initial, t.final, t.latency = self.estimate(req, flow)
        elif verb != "get" and info.is_resource_request:
            t.initial, t.final, t.latency = self.estimate(req, flow)
            if verb == "watch":
                req.initialized = t.end
        req.ticket = t
        outcome = flow.level.admit(t)
        if outcome == RUNS:
            if t.mutating:
                self.writing += 1
            else:
                self.reading += 1
            return None
        if outcome == WAITS:
            if t.mutating:
                self.queued_writes += 1
            else:
                self.queued_reads += 1
            return self.waits(t)
        t.state, t.request = ENDED, None
        return self.refused(t)

    def left_queue(self, Ticket t not None, bint runs):
        """Ends the wait of ``t``, which ``runs`` or was cancelled."""
        if t.mutating:
            self.queued_writes -= 1
            self.writing += runs
        else:
            self.queued_reads -= 1
            self.reading += runs

    def after(self, Request req not None, resp):
        """Adds the headers that name the request's FlowSchema and level."""
        cdef Ticket t
        if req.ticket is None:
            return
        t = <Ticket?>req.ticket
        resp.headers += t.flow.headers
        if resp.stream is not None and req.initialized is not None and t.state == RUNNING:
            t.watching = True
            resp.finish = t.end
        elif resp.stream is None and type(req) is Request and t.state == RUNNING and len(resp.body) > LARGE_BYTES:
            # A large response is encrypted and written behind everything given before it: without this, a flood would have one of them
            # there for each connection, and not for each seat.
            t.answering = True
            resp.finish = t.end

    def release(self, Request req not None):
        """The request is over. The seats of a watch that has begun, and of a large response, are released separately."""
        cdef Ticket t
        if req.ticket is None:
            return
        t = <Ticket?>req.ticket
        req.ticket = None
        if t.state == RUNNING or t.state == ENDED:
            if t.began > 0:
                if t.mutating:
                    self.writing -= 1
                else:
                    self.reading -= 1
        if t.state == RUNNING and not t.watching and not t.answering:
            t.flow.level.finish(t)
