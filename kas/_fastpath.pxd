# The hot path of a request, in the order in which a request meets it. What is declared here is all that other compiled
# units may rely on, and the page to read first; the rules and their sources are told where the functions are.
#
#   Request, Response                 a request's head, which filters complete; its answer    fastpath/record.pxi
#   RequestInfo, parse()              what the request line means to the API                  _fastpath.pyx
#   audit_id(), new_uid()             IDs of requests and of objects                          fastpath/identity.pxi
#   keyed_digest()                    key of a cached credential                              fastpath/digest.pxi
#   Attributes, attributes_of()       what authorizers decide about                           fastpath/attributes.pxi
#   forbidden_message(), plain_failure(), go_quote()   texts and bodies of failures           fastpath/status.pxi
#   Rule, Matcher, Decisions          RBAC: matching rules, and decisions compiled per user   fastpath/rbac.pxi
#   PathTable                         handlers of non-resource paths                          fastpath/mux.pxi
#   RequestMetrics                    request counts and durations                            fastpath/requestmetrics.pxi
#   FilterChain                       runs a request through filters to its endpoint          fastpath/filterchain.pxi
#   RequestInfoFilter, CredentialLookup, ResourceRouter, HandlerCache, PlainGet, Timer        fastpath/filterchain.pxi
#                                     steps of that: RequestInfo, cached credentials, routing, handlers, stored bytes, durations
#   whole(), sent()                   send an answer                                          fastpath/filterchain.pxi
#   FreshRead, ParkedRequest          a waiting read, at its filter and at the edge           fastpath/consistentread.pxi
#   FreshnessBase, RoundBase          the rounds in which such reads share one call to etcd   fastpath/consistentread.pxi
#
# Ownership: every object here is an ordinary Python object; none keeps a pointer into another. Strings are never copied
# where a reference does. Nothing does I/O, nothing waits, nothing is safe for threads: a worker has one loop.
# Input is what clients sent: lengths are unbounded, any code point and any byte may come; no function here costs more than a
# look at each character, and no table grows with it (RBAC's are bounded by their owner).

from cpython.array cimport array
from cpython.mem cimport PyMem_Calloc, PyMem_Free


cdef class RequestInfo:
    """upstream's request.RequestInfo, field by field; strings are never None."""

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
    cdef public str raw_path            # as it came
    cdef public str client              # address
    cdef public object peer             # kas.request.http.Connection, or None
    cdef public str scheme
    cdef public str http_version
    cdef public str audit_id
    cdef public object body             # bytes
    cdef public object incoming         # kas.request.http.Incoming while the body is still to be read, else None
    cdef public object info             # RequestInfo
    cdef public object params           # kas.request.requestinfo.Query
    cdef public object user             # kas.auth.user.UserInfo
    cdef public object warnings         # dict of texts, each once and in order, or None
    cdef public object annotations      # dict of str, or None
    cdef public object audit            # kas.request.http.AuditEvent of a request that is recorded, or None
    cdef public double started          # time.monotonic()
    cdef public double deadline         # likewise
    cdef public double aside            # seconds that were others': in flow control's queues and with admission webhooks
    cdef public double authenticating   # seconds it took to find out who asks
    cdef public bint long_running
    cdef public bint known              # the resource is one that is served
    cdef public bint read_only_port
    cdef public int in_flight           # what the max-in-flight filter counted it as
    cdef public object ticket           # what flow control has given it (kas.flowcontrol), or None
    cdef public object initialized      # to be called once a watch has sent what was there when it began, or None
    cdef list _raw                      # header pairs as received
    cdef dict _map                      # name -> joined values, made on first use
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
    cdef public object finish           # called once a stream, or what an upgrade leads to, has ended; or None


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
    """A PolicyRule; None instead of a set means "all"."""

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
    cdef readonly dict keys             # of the subjects that the user is; the values are nothing
    cdef public object epoch
    cdef readonly dict scopes           # namespace -> ([(role, reason)], [error]), or None: asked about; ("ClusterRole", its name) -> None
    cdef readonly dict shapes           # (verb, group, resource, subresource, namespace) -> ((names or None, outcome), ...)
    cdef readonly dict paths            # (verb, path, namespace) -> outcome


cdef class Decisions:
    cdef public object epoch


cdef class PathTable:
    cdef dict _exact
    cdef dict _prefixes
    cdef Py_ssize_t _longest


cdef class RequestMetricsRow:
    """Counts of one combination of labels. Buckets are not cumulative; the last is what is above all bounds. The row owns all of them,
    which lie one after the other."""

    cdef readonly tuple labels
    cdef readonly long count
    cdef readonly double seconds
    cdef readonly double own_seconds    # without what was others', of what is no dry run
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

    cdef void _measure(self, RequestMetricsRow row, double started, double aside, Py_ssize_t size)


cdef class FilterChain:
    cdef public tuple _before
    cdef public tuple _after
    cdef public tuple _release
    cdef public object _endpoint
    cdef public double _soon_s          # a deadline that near holds for who is parked, too

    cpdef _go_on(self, Request req, Py_ssize_t at)
    cpdef _answered(self, Request req, Response resp)
    cpdef _released(self, Request req)


cdef class Timer:
    cdef public double quick_s
    cdef public array row               # the histogram's; None until there is something to show
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
    cdef readonly object _versions      # (group, version) of what is served as resources
    cdef readonly object _claims        # (group, version) -> who answers all of it
    cdef public object peers            # other API servers of the cluster; None from it: answered here


cdef class PartOf:
    cdef object _main
    cdef dict _others                   # (group, resource) -> what keeps it


cdef class FreshRead:
    cdef readonly Request req
    cdef readonly object part
    cdef readonly object beside
    cdef object _passing
    cdef readonly FilterChain chain
    cdef readonly Py_ssize_t at


cdef class ConsistentRead:
    cdef object _part_of
    cdef object _beside
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
    cdef public list until              # when each of the readers has waited for too long
    cdef public object timer            # of who has waited longest
    cdef public bint told               # the question has been answered
    cdef public long long had           # the revision here before it was asked
    cdef public double asked            # when it was
    cdef public double since            # when the first was put down

    cdef bint _done(self) except -1
    cdef list _take(self)
    cdef int _reached(self) except -1


cdef class FreshnessBase:
    cdef readonly object _loop
    cdef object _call_soon
    cdef object _wait
    cdef object _round                  # the class of rounds, of RoundBase
    cdef readonly object _question      # kas.store.etcd.sharedcall.SharedCall
    cdef object _replica, _hub          # have a revision: what is here, what was dispatched here
    cdef public RoundBase _next           # has not asked yet
    cdef public RoundBase _asking
    cdef public bint _due               # the next one asks at the end of the loop's turn
    cdef public bint _closed
    cdef object _ready                  # a deque of those who may go on
    cdef public object _open            # a deque of rounds in which somebody was put down
    cdef public object _timer           # looks at these
    cdef double _stint_s

    cdef int _ask_soon(self) except -1
    cdef int _tell(self, RoundBase asking, long long revision) except -1
    cdef int _go_on(self, list parked) except -1
