# The hot path of a request, in the order in which a request passes it. Other compiled units may rely on what is declared here and on
# nothing else. Start reading here; the rules and their sources are documented at the functions.
#
#     Request, Response                 a request's head, which filters complete; its answer    fastpath/record.pxi
#     RequestInfo, parse()              what the request line means to the API                  _fastpath.pyx
#     audit_id(), new_uid()             IDs of requests and of objects                          fastpath/identity.pxi
#     keyed_digest()                    key of a cached credential                              fastpath/digest.pxi
#     Attributes, attributes_of()       what authorizers decide about                           fastpath/attributes.pxi
#     forbidden_message(), plain_failure(), go_quote()   texts and bodies of failures           fastpath/status.pxi
#     Rule, Matcher, Decisions          RBAC: matching rules, and decisions compiled per user   fastpath/rbac.pxi
#     PathTable                         handlers of non-resource paths                          fastpath/mux.pxi
#     RequestMetrics                    request counts and durations                            fastpath/requestmetrics.pxi
#     FilterChain                       runs a request through filters to its endpoint          fastpath/filterchain.pxi
#     RequestInfoFilter, CredentialLookup, ResourceRouter, HandlerCache, PlainGet, Timer        fastpath/filterchain.pxi
#                                       steps of that: RequestInfo, cached credentials, routing, handlers, stored bytes, durations
#     whole(), sent()                   send an answer                                          fastpath/filterchain.pxi
#     FreshRead, ParkedRequest          a waiting read, at its filter and at the edge           fastpath/consistentread.pxi
#     FreshnessBase, RoundBase          the rounds in which such reads share one call to etcd   fastpath/consistentread.pxi
#
# Ownership: every object here is an ordinary Python object, and none keeps a pointer into another. Strings are referenced, not copied,
# wherever possible. Nothing does I/O or blocks. Nothing is thread-safe: a worker process has one event loop.
#
# Input is untrusted: lengths are unbounded, and any code point or byte may occur. No function here costs more than one pass over its
# characters, and no table grows with the input (the bounds of RBAC's tables are enforced by their owner).

from cpython.array cimport array
from cpython.mem cimport PyMem_Calloc, PyMem_Free


cdef class RequestInfo:
    """The fields of upstream's request.RequestInfo; strings are never None."""

    cdef public bint is_resource_request
    cdef public bint by_prefix          # the deprecated /watch/ and /proxy/ forms
    cdef int first_part                 # index of the resource among the path's segments, -1 for a non-resource request
    cdef public str path
    cdef public str verb
    cdef public str api_prefix
    cdef public str api_group
    cdef public str api_version
    cdef public str namespace
    cdef public str resource
    cdef public str subresource
    cdef public str name
    cdef public str field_selector
    cdef public str label_selector


cdef class Request:
    cdef public str method
    cdef public str path                # percent-decoded
    cdef public str query               # raw
    cdef public str raw_path            # as received
    cdef public str client              # address
    cdef public object peer             # kas.request.http.Connection, or None
    cdef public str scheme
    cdef public str http_version
    cdef public str audit_id
    cdef public object body             # bytes
    cdef public object incoming         # kas.request.http.Incoming while the body has not been read yet, else None
    cdef public object info             # RequestInfo
    cdef public object params           # kas.request.requestinfo.Query
    cdef public object user             # kas.auth.user.UserInfo
    cdef public object warnings         # dict of texts (each once, in order), or None
    cdef public object annotations      # dict of str, or None
    cdef public object audit            # kas.request.http.AuditEvent if the request is audited, else None
    cdef public double started          # time.monotonic()
    cdef public double deadline         # likewise
    cdef public double waited_s         # seconds spent waiting in flow control's queues and for admission webhooks
    cdef public double authenticating   # seconds that authentication took
    cdef public bint long_running
    cdef public bint known              # the resource is served
    cdef public bint read_only_port
    cdef public int in_flight           # the class in which the max-in-flight filter counted it
    cdef public object ticket           # flow control's ticket (kas.flowcontrol), or None
    cdef public object initialized      # called once a watch has sent its initial events, or None
    cdef list _raw                      # header pairs as received
    cdef dict _map                      # name -> joined values, built on first use
    cdef bint _dropped
    cdef bint _impersonates
    cdef bint _vouches

    cdef dict names(self)


cdef class Response:
    cdef public int status
    cdef public list headers            # (name, value) pairs of bytes
    cdef public object body             # bytes
    cdef public object stream           # kas.request.http.Stream, or None
    cdef public Py_ssize_t sent         # bytes of a stream that have been written
    cdef public object finish           # called once a stream, or the connection after an upgrade, has ended; or None


cdef class Attributes:
    cdef public object user
    cdef public str verb
    cdef public str namespace
    cdef public str api_group
    cdef public str api_version
    cdef public str resource
    cdef public str subresource
    cdef public str name
    cdef public bint resource_request
    cdef public str path
    cdef public object field_requirements
    cdef public object label_requirements
    cdef public str field_error
    cdef public str label_error


cdef class Rule:
    """A PolicyRule; None in place of a set means "all"."""

    cdef readonly dict source
    cdef readonly frozenset verbs
    cdef readonly frozenset groups
    cdef readonly frozenset resources
    cdef readonly frozenset subresources  # of "*/scale"
    cdef readonly frozenset names         # None: any name
    cdef readonly frozenset urls
    cdef readonly tuple url_prefixes

    cpdef bint matches_resource(self, str verb, str group, str resource, str subresource)
    cpdef bint matches_path(self, str verb, str path)


cdef class Matcher:
    cdef readonly dict keys             # keys of the subjects that match the user; the values are unused
    cdef public object epoch
    # namespace -> ([(role, reason)], [error]), or None while being looked up; ("ClusterRole", its name) -> None
    cdef readonly dict scopes
    cdef readonly dict shapes           # (verb, group, resource, subresource, namespace) -> ((names or None, outcome), ...)
    cdef readonly dict paths            # (verb, path, namespace) -> outcome


cdef class Decisions:
    cdef public object epoch


cdef class PathTable:
    cdef dict _exact
    cdef dict _prefixes
    cdef Py_ssize_t _longest


cdef class RequestMetricsRow:
    """Counts of one combination of labels. Buckets are not cumulative; the last one counts values above all bounds. The row owns all
    buckets, in one block of memory.
    """

    cdef readonly tuple labels
    cdef readonly long count
    cdef readonly double seconds
    cdef readonly double own_seconds    # without the time spent waiting (Request.waited_s), and without dry runs
    cdef readonly double bytes_sent
    cdef readonly long sized
    cdef long *durations
    cdef long *own
    cdef long *sizes


cdef class RequestMetrics:
    cdef dict _rows                     # labels -> RequestMetricsRow
    cdef dict _sending                  # requests whose streams have not ended -> (RequestMetricsRow, Response)
    cdef int _n, _m
    cdef array _bounds                  # doubles
    cdef array _sizes

    cdef void _measure(self, RequestMetricsRow row, double started, double waited_s, Py_ssize_t size)


cdef class FilterChain:
    cdef public tuple _before
    cdef public tuple _after
    cdef public tuple _release
    cdef public object _endpoint
    cdef public double _soon_s          # a request whose deadline is nearer than this is not parked

    cpdef _go_on(self, Request req, Py_ssize_t at)
    cpdef _answered(self, Request req, Response resp)
    cpdef _released(self, Request req)


cdef class Timer:
    cdef public double quick_s
    cdef public array row               # the histogram's row; None until the first observation
    cdef object _histogram
    cdef tuple _labels
    cdef tuple _bounds

    cpdef add(self, double seconds)


cdef class PluginChain:
    cpdef _run(self, tuple steps, str what, a)


cdef class HandlerCache:
    cdef set _acceptable
    cdef int _types
    cdef object _read_first
    cdef dict _known                    # (group, version, resource, verb) -> (served, handler, whether namespaced, whether named)


cdef class ResourceRouter:
    cdef readonly object _rest
    cdef readonly object _versions      # the (group, version) pairs that are served as resources
    cdef readonly object _claims        # (group, version) -> handler of all its requests
    cdef public object peers            # proxies to other API servers of the cluster; when it returns None the request is answered here


cdef class PartOf:
    cdef object _main
    cdef dict _others                   # (group, resource) -> the store that keeps it


cdef class FreshRead:
    cdef readonly Request req
    cdef readonly object part
    cdef readonly object fallback
    cdef object _passing
    cdef readonly FilterChain chain
    cdef readonly Py_ssize_t at


cdef class ConsistentRead:
    cdef object _part_of
    cdef object _fallback
    cdef object _passing
    cdef object _rest


cdef class ParkedRequest:
    cdef readonly object app            # kas.edge.asgi.App
    cdef readonly Request req
    cdef readonly FreshRead waiting
    cdef readonly object receive
    cdef readonly object send
    cdef readonly object watcher
    cdef readonly object spawn

    cdef int _go_on(self) except -1


cdef class FreshnessBase


cdef class RoundBase:
    cdef readonly FreshnessBase _rounds
    cdef public list parked
    cdef public list readers
    cdef public list until              # the deadline of each reader
    cdef public object timer            # timer of the reader that has waited longest
    cdef public bint answered           # etcd has answered
    cdef public long long had           # the replica's revision before the call
    cdef public double asked            # when the call started
    cdef public double since            # when the first request was parked

    cdef bint _done(self) except -1
    cdef list _take(self)
    cdef int _reached(self) except -1


cdef class FreshnessBase:
    cdef readonly object _loop
    cdef object _call_soon
    cdef object _wait
    cdef object _round                  # the class of rounds, a subclass of RoundBase
    cdef readonly object _question      # kas.store.etcd.sharedcall.SharedCall
    cdef object _replica, _hub          # have a revision: the replica's, and the last one that the hub dispatched
    cdef public RoundBase _next           # the round that has not called etcd yet
    cdef public RoundBase _asking
    cdef public bint _due               # the next call is scheduled for the end of this loop iteration
    cdef public bint _closed
    cdef object _ready                  # deque of parked requests that may continue
    cdef public object _open            # deque of rounds that have had parked requests
    cdef public object _timer           # checks those rounds
    cdef double _stint_s

    cdef int _ask_soon(self) except -1
    cdef int _tell(self, RoundBase asking, long long revision) except -1
    cdef int _go_on(self, list parked) except -1
