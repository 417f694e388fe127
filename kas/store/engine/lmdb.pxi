# The LMDB engine, called directly.
#
# The engine is the patched LMDB inside py-lmdb's extension module (never the system library): its C functions are looked up
# once with dlsym. The Python classes are not used because they release and reacquire the GIL around every put, get and cursor
# step: a batch of 64 writes beside a busy event loop took 264 ms (0.14 ms without contention), and a scan cost 0.6 µs per
# item. Here a whole batch, or a whole scan, is one nogil region. Only the public ABI of lmdb.h 0.9 is used.
#
# Buffers: values point into the map and are valid until the transaction ends or writes; every read transaction holds
# `env.lock` for reading, so the map cannot be remapped or closed meanwhile. Trusted: LMDB's own pages (a damaged page may
# crash this process, so the length of the file is checked when it is opened); their content is checked where it is read.
# Benchmark: bench/test_store.py::test_get (one transaction, two lookups).

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_Next
from cpython.object cimport PyObject
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.stdlib cimport free, malloc, qsort, realloc
from libc.string cimport memchr, memcmp, memcpy, memset

cdef extern from *:
    """
    #include <dlfcn.h>
    #include <errno.h>
    #include <pthread.h>
    #include <stdio.h>
    #include <stdint.h>
    #include <string.h>
    #include <sys/mman.h>

    typedef struct { size_t size; void *data; } kas_val;
    typedef struct { unsigned int psize, depth; size_t branch, leaf, overflow, entries; } kas_stat;
    typedef struct { void *addr; size_t mapsize, last_pgno, last_txnid; unsigned int maxreaders, numreaders; } kas_info;

    static struct kas_engine {
        int (*env_create)(void **);
        int (*env_open)(void *, const char *, unsigned int, unsigned int);
        void (*env_close)(void *);
        int (*env_info)(void *, kas_info *);
        int (*env_stat)(void *, kas_stat *);
        int (*env_set_mapsize)(void *, size_t);
        int (*env_set_maxreaders)(void *, unsigned int);
        int (*env_set_maxdbs)(void *, unsigned int);
        int (*env_sync)(void *, int);
        int (*reader_check)(void *, int *);
        int (*txn_begin)(void *, void *, unsigned int, void **);
        int (*txn_commit)(void *);
        void (*txn_abort)(void *);
        void (*txn_reset)(void *);
        int (*txn_renew)(void *);
        int (*dbi_open)(void *, const char *, unsigned int, unsigned int *);
        int (*stat)(void *, unsigned int, kas_stat *);
        int (*get)(void *, unsigned int, kas_val *, kas_val *);
        int (*put)(void *, unsigned int, kas_val *, kas_val *, unsigned int);
        int (*del)(void *, unsigned int, kas_val *, kas_val *);
        int (*cursor_open)(void *, unsigned int, void **);
        void (*cursor_close)(void *);
        int (*cursor_get)(void *, kas_val *, kas_val *, int);
        int (*cursor_del)(void *, unsigned int);
        const char *(*strerror)(int);
    } L;

    /* Returns the name of the symbol that is missing, NULL when all are there. */
    static const char *kas_engine_load(const char *path)
    {
        static const char *names[] = {
            "env_create", "env_open", "env_close", "env_info", "env_stat", "env_set_mapsize", "env_set_maxreaders",
            "env_set_maxdbs", "env_sync", "reader_check", "txn_begin", "txn_commit", "txn_abort", "txn_reset",
            "txn_renew", "dbi_open", "stat", "get", "put", "del", "cursor_open", "cursor_close", "cursor_get",
            "cursor_del", "strerror"};
        void **slot = (void **)&L;
        char name[48];
        size_t i;
        void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (!lib)
            return "the module itself";
        for (i = 0; i < sizeof(names) / sizeof(*names); i++) {
            snprintf(name, sizeof name, "mdb09_%s", names[i]);
            slot[i] = dlsym(lib, name);
            if (!slot[i]) {
                snprintf(name, sizeof name, "mdb_%s", names[i]);
                slot[i] = dlsym(lib, name);
            }
            if (!slot[i])
                return names[i];
        }
        return NULL;
    }

    /* memcmp() == 0, without the call for the short names and prefixes that scans compare all the time. */
    static inline int kas_same(const char *a, const char *b, size_t n)
    {
        uint64_t x, y;
        uint32_t u, v;
        if (n >= 8) {
            memcpy(&x, a, 8);
            memcpy(&y, b, 8);
            if (x != y)
                return 0;
            if (n > 16)
                return memcmp(a + 8, b + 8, n - 8) == 0;
            memcpy(&x, a + n - 8, 8);
            memcpy(&y, b + n - 8, 8);
            return x == y;
        }
        if (n >= 4) {
            memcpy(&u, a, 4);
            memcpy(&v, b, 4);
            if (u != v)
                return 0;
            memcpy(&u, a + n - 4, 4);
            memcpy(&v, b + n - 4, 4);
            return u == v;
        }
        while (n--)
            if (a[n] != b[n])
                return 0;
        return 1;
    }

    static void kas_hugepages(char *p, size_t n)
    {
        size_t a = ((size_t)p + 4095) & ~(size_t)4095, e = ((size_t)p + n) & ~(size_t)4095;
    #ifdef MADV_HUGEPAGE
        if (e > a)
            madvise((void *)a, e - a, MADV_HUGEPAGE);
    #endif
    }
    """
    ctypedef struct kas_stat:
        unsigned int psize, depth
        size_t branch, leaf, overflow, entries
    ctypedef struct kas_info:
        void *addr
        size_t mapsize, last_pgno, last_txnid
        unsigned int maxreaders, numreaders
    ctypedef struct kas_engine:
        int (*env_create)(void **) noexcept nogil
        int (*env_open)(void *, const char *, unsigned int, unsigned int) noexcept nogil
        void (*env_close)(void *) noexcept nogil
        int (*env_info)(void *, kas_info *) noexcept nogil
        int (*env_stat)(void *, kas_stat *) noexcept nogil
        int (*env_set_mapsize)(void *, size_t) noexcept nogil
        int (*env_set_maxreaders)(void *, unsigned int) noexcept nogil
        int (*env_set_maxdbs)(void *, unsigned int) noexcept nogil
        int (*env_sync)(void *, int) noexcept nogil
        int (*reader_check)(void *, int *) noexcept nogil
        int (*txn_begin)(void *, void *, unsigned int, void **) noexcept nogil
        int (*txn_commit)(void *) noexcept nogil
        void (*txn_abort)(void *) noexcept nogil
        void (*txn_reset)(void *) noexcept nogil
        int (*txn_renew)(void *) noexcept nogil
        int (*dbi_open)(void *, const char *, unsigned int, unsigned int *) noexcept nogil
        int (*stat)(void *, unsigned int, kas_stat *) noexcept nogil
        int (*get)(void *, unsigned int, kas_val *, kas_val *) noexcept nogil
        int (*put)(void *, unsigned int, kas_val *, kas_val *, unsigned int) noexcept nogil
        int (*del_ "del")(void *, unsigned int, kas_val *, kas_val *) noexcept nogil
        int (*cursor_open)(void *, unsigned int, void **) noexcept nogil
        void (*cursor_close)(void *) noexcept nogil
        int (*cursor_get)(void *, kas_val *, kas_val *, int) noexcept nogil
        int (*cursor_del)(void *, unsigned int) noexcept nogil
        const char *(*strerror)(int) noexcept nogil
    kas_engine L
    const char *kas_engine_load(const char *path) nogil
    bint kas_same(const char *a, const char *b, size_t n) noexcept nogil
    void kas_hugepages(char *p, size_t n) noexcept nogil
    int pthread_rwlock_init(pthread_rwlock_t *, void *) nogil
    int pthread_rwlock_destroy(pthread_rwlock_t *) nogil
    int pthread_rwlock_rdlock(pthread_rwlock_t *) nogil
    int pthread_rwlock_wrlock(pthread_rwlock_t *) nogil
    int pthread_rwlock_unlock(pthread_rwlock_t *) nogil
    int errno, ENOSPC, EIO, EFBIG, EDQUOT, EINVAL, ENOMEM, EBUSY

# From lmdb.h 0.9 (its documented, stable interface).
cdef enum:
    ENV_NOSYNC = 0x10000
    ENV_NOTLS = 0x200000
    ENV_NORDAHEAD = 0x800000
    TXN_RDONLY = 0x20000
    DBI_CREATE = 0x40000
    PUT_APPEND = 0x20000
    OP_FIRST = 0
    OP_LAST = 6
    OP_NEXT = 8
    OP_PREV = 12
    OP_SET = 15
    OP_SET_RANGE = 17
    ERR_NOTFOUND = -30798
    ERR_PAGE_NOTFOUND = -30797
    ERR_CORRUPTED = -30796
    ERR_PANIC = -30795
    ERR_VERSION = -30794
    ERR_INVALID = -30793
    ERR_MAP_FULL = -30792
    ERR_READERS_FULL = -30790
    ERR_TXN_FULL = -30788
    ERR_MAP_RESIZED = -30785
    ERR_UNSEAL = -1  # our own: a sealed value could not be opened; the exception is in Gather.opened

# The longest key kept verbatim; a longer one is cut here and followed by its 32-byte digest (see key_bytes). 470 + 32 + 8
# bytes of deadline in the expiry table stay within LMDB's 511.
cdef enum:
    KEY_INLINE = 470
    KEY_HASHED = 502
    KEY_MAX = 4096

# Exception classes of the store; the store passes them in, because this module must not import it.
cdef object FullError = OSError
cdef object CorruptError = OSError
cdef object FailedError = OSError
cdef object EngineError = OSError
cdef object KeyTooLongError = ValueError
cdef object TransformError = ValueError


def bind_errors(full, failed, corrupt, engine, key_too_long, transform):
    """Sets the classes that this module raises for a full map or disk, a failed disk, a damaged file, any other engine error,
    a long key, and a sealed value that cannot be opened."""
    global FullError, FailedError, CorruptError, EngineError, KeyTooLongError, TransformError
    FullError, FailedError, CorruptError, EngineError, KeyTooLongError, TransformError = full, failed, corrupt, engine, key_too_long, transform


cdef bint engine_loaded = False


cdef int load_engine() except -1:
    global engine_loaded
    if engine_loaded:
        return 0
    import lmdb.cpython

    cdef bytes path = lmdb.cpython.__file__.encode()
    cdef const char *missing = kas_engine_load(path)
    if missing != NULL:
        raise ImportError(f"this build of py-lmdb does not export its engine ({missing.decode()} is missing); install lmdb 3.0 from a wheel")
    engine_loaded = True
    return 0


cdef bint is_full(int rc) noexcept nogil:
    return rc == ERR_MAP_FULL or rc == ERR_TXN_FULL or rc == ENOSPC or rc == EFBIG or rc == EDQUOT


cdef object engine_error(int rc, str what):
    """Returns the exception for an engine's return code."""
    cdef str text = f"{what}: {L.strerror(rc).decode()}"
    if is_full(rc):
        return FullError(text)
    if rc == EIO:  # LMDB returns this also for a partial write: the caller checks whether there is space
        return FailedError(text)
    if rc in (ERR_CORRUPTED, ERR_PAGE_NOTFOUND, ERR_INVALID, ERR_VERSION):
        return CorruptError(f"{text}; it is damaged or was not written by this program: restore it from a backup, or serve another directory")
    return EngineError(text)


cdef bytes key_bytes(str key):
    """Returns the engine's key of a path: the path itself up to 470 bytes, otherwise its first 470 bytes and a digest of the whole.

    Every key longer than 470 bytes has the second form, so keys that share their first 470 bytes are neighbours whatever
    their length. Neighbours are ordered by digest; a scan sorts such a run by the full keys, which each record contains.
    """
    cdef bytes raw = key.encode()
    if PyBytes_GET_SIZE(raw) <= KEY_INLINE:
        if not raw:
            raise KeyTooLongError("an empty key cannot be stored")
        return raw
    if PyBytes_GET_SIZE(raw) > KEY_MAX:
        raise KeyTooLongError(f"key of {len(raw)} bytes is longer than {KEY_MAX}")
    from hashlib import sha256

    return raw[:KEY_INLINE] + sha256(raw).digest()
