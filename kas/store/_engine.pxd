# The storage engine's design page: the layout on disk, the ownership of memory, and the main functions.
#
# Parts, in the order of inclusion (each names at its top what it trusts and its benchmark):
#   lmdb      the functions of LMDB, keys, errors            scan      a range as records or as the bytes of a list
#   block     labels and fields as bytes                     history   the log: events, and states at older revisions
#   splice    a resourceVersion inside a protobuf message    watching  from an event to who watches
#   record    one stored object                              upkeep    compaction, expiry
#   record    one stored object                              upkeep    compaction, expiry
#   draft     an object before its revision is known         write     one transaction of a group commit
#   seal      the stored form of a sealed object             commit    operations, from Python to that transaction and back
#   match     selectors on heads                             shared    memory shared by the workers
#   frame     lines of a watch
#   env, gather: the environment and its transactions; walking a range
#
# Tables of the environment, one LMDB file:
#   (unnamed)  "kas.format" "kas.revision" "kas.compacted"   every commit writes its page anyway
#   current    key → Head, key, label block, field block     small and dense: selectors read nothing else
#   body       key → JSON as served, protobuf message        of a sealed object: the sealed payload
#   log        LogKey → LogHead, key, head and body of the record *before* the write
#   expiry     deadline (8 bytes, big endian), key → revision, full key
# Keys beyond 470 bytes are cut and digested (key_bytes). Integers are little endian unless stated otherwise.
#
# Ownership: pointers into the map are valid until their transaction ends or writes; none of them leaves the function that
# began the transaction. Results are bytes objects: a Record's `head` and `body`, the answer of a scan. A batch of writes
# points into the bytes of its operations, which the caller's list keeps alive, and owns (malloc, free) the previous records
# that it copies.

cimport cython
from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t

cdef extern from "<pthread.h>":
    ctypedef struct pthread_rwlock_t:
        pass

cdef extern from *:
    ctypedef struct kas_val:  # MDB_val: a pointer to bytes
        size_t size
        void *data


# -- on disk ------------------------------------------------------------------------------------------------------------

cdef packed struct Head:         # before each value of `current`; 72 bytes
    uint32_t magic               # HEAD_MAGIC
    uint32_t flags               # HEAD_SEALED
    uint64_t create_revision
    uint64_t mod_revision        # the resourceVersion
    uint64_t lease_expiry        # Unix seconds, 0 for never
    uint64_t version             # 1 after the create, one more with each update
    uint32_t json_len            # of the body; all of it if sealed
    uint32_t proto_len           # 0: no message
    uint32_t rv_off              # offset of the resourceVersion's digits in the JSON
    uint32_t meta_end            # end of the "metadata" member in the JSON, 0: unknown
    uint16_t rv_len
    uint16_t type_prefix_len     # {"kind":…,"apiVersion":…,
    uint32_t key_len
    uint32_t labels_len          # 0 if sealed, like fields_len
    uint32_t fields_len

cdef packed struct LogKey:       # key of `log`; both fields big endian. Format 1 had no index: its keys mean index 0
    uint64_t revision
    uint32_t index               # position among the writes of one revision

cdef packed struct LogHead:      # before each value of `log`
    uint32_t op                  # 1 create, 2 update, 3 delete
    uint32_t key_len
    uint32_t head_len            # 0: there was no previous record
    uint32_t body_len            # without protobuf: the history keeps JSON, or the sealed payload

cdef packed struct Payload:      # before the data that a transformer seals: a draft, which has no revision yet
    uint32_t magic               # PAYLOAD_MAGIC
    uint32_t head_len            # then head, tail, labels, fields and proto, in this order
    uint32_t tail_len
    uint32_t labels_len
    uint32_t fields_len
    uint32_t proto_len
    uint32_t metadata_tail
    uint16_t type_prefix_len
    uint16_t unused


# -- in memory ----------------------------------------------------------------------------------------------------------

cdef struct Splice:              # the position of the resourceVersion in a protobuf message
    size_t meta                  # offset of the content of the metadata
    size_t meta_len
    size_t at                    # the length byte of metadata.resourceVersion
    size_t digits                # its value

cdef struct Parts:               # input of compose(); points into a Draft or an opened payload
    const char *head
    size_t head_len
    const char *tail
    size_t tail_len
    const char *labels
    size_t labels_len
    const char *fields
    size_t fields_len
    const char *proto
    size_t proto_len
    Splice splice
    uint16_t type_prefix_len
    uint32_t metadata_tail

cdef struct Value:
    const char *p
    size_t n

cdef struct Requirement:         # one requirement of a selector; all must hold
    int op                       # R_…
    bint needs                   # fails if its key is absent
    bint exact                   # holds for its first value and no other
    const char *key
    size_t key_len
    Value *values                # sorted
    size_t n_values
    int64_t bound                # for gt and lt

cdef struct Item:                # a record found by a walk, in the map or in an opened record that Gather.opened keeps
    const char *head
    size_t head_len
    const char *body
    size_t body_len

cdef enum:
    GIVES_ALL = 0
    GIVES_JSON = 1
    GIVES_PROTO = 2

cdef struct Gather:              # the parameters and results of a walk
    Item *items                  # malloc'd, freed by scan()
    size_t n, cap, looked        # looked: records of the range up to the end of the page, selected or not
    const char *prefix
    size_t prefix_len
    const char *start            # full start key
    size_t start_len
    size_t limit                 # 0: none
    size_t max_bytes, held       # size at which a page ends, 0 for none, and the size so far; the record that reaches it is included
    int gives                    # the part of a record to return, and to count: GIVES_JSON, GIVES_PROTO, or everything stored
    int count                    # whether to count the remaining keys
    int want_body
    bint refuses_plain           # records stored in plain form may not be read
    uint64_t revision
    int64_t remaining
    bint more
    void *opened                 # scan()'s list of opened records; its last element is the error if one could not be opened

cdef struct Prepared:            # one operation of a batch
    int kind                     # PUT, DEL, CHECK (a precondition only) or NOTHING (a revision only)
    int group                    # operations with the same number are adjacent, and are applied together or not at all
    int64_t at                   # EACH, ONE or an externally assigned revision
    uint32_t index               # position among the writes of its revision
    const char *key
    size_t key_len
    const char *full
    size_t full_len
    int64_t expected             # -1: no precondition
    Parts parts
    const char *sealed           # stored instead of the body; NULL: not sealed
    size_t sealed_len
    int64_t lease_s
    # results
    int status                   # ST_…
    int op
    uint64_t revision
    char *new_head
    char *new_body
    size_t new_body_len
    char *old                    # malloc'd: head and body of the previous record
    size_t old_head_len
    size_t old_body_len

cdef struct Slot:                # a worker's counters in the shared memory; its own cache lines
    int64_t pid
    int64_t mutating
    int64_t readonly
    int64_t beats               # ticks of its event loop's clock
    int64_t unused[12]


cdef class Env:                          # one data directory, open
    cdef void *env                       # MDB_env, NULL once closed
    cdef void *spare                     # one read transaction, reset, kept for the next reader
    cdef pthread_rwlock_t lock           # read: held by every transaction; write: held for remapping and closing
    cdef unsigned int main, current, body, log, expiry
    cdef readonly size_t limit           # bytes that the operator allows; the map may grow a little above it so that deletes still work
    cdef readonly str path
    cdef public object transformer_for   # key → Transformer or None; None if nothing is ever sealed

    cdef int _open_table(self, void *txn, str name, bint write) except? -1
    cdef int begin_read(self, void **txn) noexcept nogil   # end_read must follow
    cdef void end_read(self, void *txn) noexcept nogil
    cdef int begin_write(self, void **txn) noexcept nogil  # waits for the one writer of all processes; end_write must follow
    cdef int end_write(self, void *txn, int rc) noexcept nogil
    cdef int adopt_size(self, size_t size) noexcept nogil  # remaps; waits for running reads
    cdef int number(self, void *txn, const char *name, uint64_t *out) noexcept nogil
    cdef int set_number(self, void *txn, const char *name, uint64_t value) noexcept nogil
    cdef size_t free_pages(self, void *txn) noexcept nogil

cdef class Record:               # one stored object at one revision; immutable
    cdef readonly bytes head     # Head, key, labels, fields: checked by head_ok
    cdef readonly bytes body     # JSON, protobuf: checked by body_ok
    cdef readonly bint sealed    # the record is stored sealed (and was opened)
    cdef readonly bint stale     # sealed with an outdated key or form
    cdef object spliced(self, uint64_t revision, bint partial)

cdef class Draft:                # an object before its revision is known; immutable
    cdef readonly bytes head, tail
    cdef bytes labels, fields, proto
    cdef readonly int type_prefix_len
    cdef readonly int metadata_tail
    cdef readonly int64_t lease_s
    cdef Splice splice

@cython.final
cdef class Matcher:              # a compiled selector; immutable
    cdef Requirement *reqs       # for labels, then for fields; each sorted by key
    cdef Value *values
    cdef size_t n, n_labels
    cdef size_t needed_labels, needed_fields  # numbers of requirements that need their key
    cdef bytes keep              # owns every byte the requirements point to

cdef class RangeResult:          # one page of a range
    cdef readonly list records
    cdef readonly Py_ssize_t count, looked
    cdef readonly object revision
    cdef readonly bint more
    cdef readonly str next_key
    cdef readonly object remaining
    cdef readonly bytes body
    cdef readonly bytes end
    cdef readonly Py_ssize_t size

cdef class Event:                # one write, with the states before and after
    cdef readonly object revision
    cdef readonly int op
    cdef readonly str key
    cdef readonly Record record
    cdef readonly Record previous
    cdef readonly object error   # why a sealed state could not be opened
    cdef dict _frames

cdef class Queued:               # the events queued for one watcher
    cdef readonly object _queue  # a deque of Events
    cdef public object on_ready
    cdef public Py_ssize_t limit, _bytes
    cdef public object _taken, _joined  # revisions
    cdef public bint _live

cdef class Sent:                 # events sent in the current loop iteration
    cdef object _soon, _report, __weakref__
    cdef Py_ssize_t _n
    cdef int add(self, Py_ssize_t n) except -1

cdef class Forward:              # passes a watcher's events to a stream's connection
    cdef public object wake, begin, unsent, failed
    cdef public Queued queued
    cdef Matcher _matcher
    cdef object _after, _frame
    cdef Sent _sent
    cdef Py_ssize_t _most_bytes
    cdef str _added, _modified, _deleted
    cdef bint _may_pass_on(self) except -1
    cdef int _pass_on(self) except -1
    cpdef list frames(self, list events)
    cdef bytes _seen(self, Event event)
    cdef bytes _made(self, Event event, str kind)

cdef class Op:                   # one write: the request, later the result
    cdef readonly str key
    cdef readonly bint check     # writes nothing
    cdef readonly object expected
    cdef readonly Draft draft
    cdef readonly int status     # ST_…
    cdef readonly uint64_t revision  # 0 before the commit, and when it failed
    cdef readonly Record record
    cdef readonly Record previous
    cdef readonly Event event
    cdef readonly object error   # why the previous record could not be opened
    cdef bytes raw, full         # the engine's key and the whole key
    cdef bytes sealed

cdef class SharedMemory:         # a worker's view of the memory shared by all
    cdef object map
    cdef char *base              # one page: the revision at 64; then the slots
    cdef Slot *own
    cdef readonly int workers
    cdef readonly int index


# -- main functions -----------------------------------------------------------------------------------------------------

cdef bytes key_bytes(str key)                                  # the engine's key of a path
cdef Record stored_record(Env env, const char *head, size_t head_len, const char *body, size_t body_len)  # checked, copied, opened
cdef size_t compose(const Parts *s, const char *key, size_t key_len, uint64_t revision, char *head, char *body) noexcept nogil  # Parts → head, body
cdef bytes payload_of(Draft d)                                 # the input of a transformer's seal
cdef object refused_plain(Env env, str key)                    # why a record stored in plain form may not be read, or None
cdef Record open_record(Env env, const char *head, const char *body, size_t body_len)  # a sealed record as if it were plain
cdef int gather(Env env, void *txn, Matcher matcher, Gather *g) noexcept nogil           # a range in its current state
cdef int gather_old(Env env, void *txn, Matcher matcher, Gather *g, dict undo) except? -2  # a range at an older revision
cdef dict undo_since(Env env, void *txn, uint64_t revision, bytes prefix)                # key → position of its state in the log
cdef int write_batch(Env env, Prepared *ops, size_t n, uint64_t now_s, uint64_t *before, uint64_t *newest) noexcept nogil  # one transaction
