# Watch frames: one JSON object per line, built once per event and shared by all its watchers.
#
# Nothing is parsed: the object is copied, and if it needs another resourceVersion (a deletion carries the revision of the
# delete, and so does an object that left a selector) its digits are replaced at the record's splice offset. A frame owns its
# bytes. Trusted: records, whose offsets were checked when they were made. Benchmark: bench/test_store.py::test_frame.

cdef bytes FRAME_MIDDLE = b'","object":'


def frame_json(str type not None, bytes json not None) -> bytes:
    """Returns ``{"type":"<type>","object":<json>}`` and a newline."""
    cdef bytes t = type.encode()
    cdef Py_ssize_t tn = PyBytes_GET_SIZE(t), n = PyBytes_GET_SIZE(json)
    cdef bytes out = PyBytes_FromStringAndSize(NULL, 9 + tn + 11 + n + 2)
    cdef char *p = PyBytes_AS_STRING(out)
    memcpy(p, b'{"type":"', 9)
    memcpy(p + 9, PyBytes_AS_STRING(t), tn)
    memcpy(p + 9 + tn, PyBytes_AS_STRING(FRAME_MIDDLE), 11)
    memcpy(p + 20 + tn, PyBytes_AS_STRING(json), n)
    memcpy(p + 20 + tn + n, b'}\n', 2)
    return out


def frame_record(str type not None, Record record not None, uint64_t revision=0) -> bytes:
    """Returns the frame of a record; with ``revision``, that replaces its resourceVersion."""
    cdef const Head *h = head_of(record)
    cdef bytes t = type.encode()
    cdef bytes digits
    cdef const char *s = PyBytes_AS_STRING(record.body)
    cdef Py_ssize_t tn = PyBytes_GET_SIZE(t), dn, n = h.json_len
    cdef bytes out
    cdef char *p
    if revision == 0 or revision == h.mod_revision:
        dn = h.rv_len
        digits = s[h.rv_off:h.rv_off + h.rv_len]
    else:
        digits = b"%d" % revision
        dn = PyBytes_GET_SIZE(digits)
    n += dn - h.rv_len
    out = PyBytes_FromStringAndSize(NULL, 9 + tn + 11 + n + 2)
    p = PyBytes_AS_STRING(out)
    memcpy(p, b'{"type":"', 9)
    memcpy(p + 9, PyBytes_AS_STRING(t), tn)
    p += 9 + tn
    memcpy(p, PyBytes_AS_STRING(FRAME_MIDDLE), 11)
    p += 11
    memcpy(p, s, h.rv_off)
    memcpy(p + h.rv_off, PyBytes_AS_STRING(digits), dn)
    memcpy(p + h.rv_off + dn, s + h.rv_off + h.rv_len, h.json_len - h.rv_off - h.rv_len)
    memcpy(p + n, b'}\n', 2)
    return out
