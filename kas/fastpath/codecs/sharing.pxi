# Sharing of managed field sets among stored objects.
#
# A writer parses the whole stored object, mostly to pass these sets on unchanged, and they are a third of a pod. All pods of a Deployment
# have the same sets, and an object keeps them from write to write. So a FieldsV1 text that was seen before is not parsed again: the objects
# share its dict, which must not be changed (see kas/patch/_fieldsets.pyx), and encoders copy its text.

cdef enum:
    SHARED_BYTES = 32 << 20   # the most memory of all sets
    SHARED_EACH = 400         # per set, besides its contents
    SHARED_FOR_BYTE = 40      # memory per byte of text: "a":{} is a str and a dict
    SHARED_LONGEST = 32 << 10
    SHARED_DEPTH = 100


@cython.final
cdef class SharedFields:
    """A set shared by several objects: its parsed dict, its text, and the schema node that it was last found to fit."""

    def __init__(self, dict fields not None, bytes text not None):
        self.fields, self.text = fields, text


# The sets seen lately, by the head of their text: a text that begins with a known one *is* that one, as an object ends where its braces do.
# So the end of a known text need not be searched. Borrowed from _shared_texts, the latest of a head first.
cdef enum:
    LATE_HEADS = 256
    LATE_EACH = 4
    LATE_BYTES = 64  # of a head; shorter texts are not listed

cdef PyObject* _late[LATE_HEADS * LATE_EACH]
cdef dict _shared_texts = {}
cdef dict _shared_ids = {}  # by the address of the dict, which is alive as long as it is listed here
cdef Py_ssize_t _shared_size = 0


def shared_bytes():
    """Returns (estimated memory of the shared sets, their limit), in bytes."""
    return _shared_size, SHARED_BYTES


cdef SharedFields shared_of(dict fields):
    """The SharedFields of a shared dict, else None."""
    cdef PyObject* found = PyDict_GetItem(_shared_ids, PyLong_FromVoidPtr(<void*>fields))
    return <SharedFields>found if found != NULL else None


cdef inline PyObject** _late_of(const char* text) noexcept:
    """The places of the sets whose texts begin like ``text``, which has LATE_BYTES or more."""
    cdef uint64_t word, h = 0
    cdef int i
    for i in range(0, LATE_BYTES, 8):
        memcpy(&word, text + i, 8)
        h = (h ^ word) * <uint64_t>0x9E3779B97F4A7C15
    return _late + (h >> 56) * LATE_EACH


cdef SharedFields _shared_lately(const char* text, Py_ssize_t most):
    """The set whose text begins here and takes at most ``most`` bytes; None when it is not known."""
    cdef PyObject** places
    cdef bytes known
    cdef int i
    if most >= LATE_BYTES:
        places = _late_of(text)
        for i in range(LATE_EACH):
            if places[i] == NULL:
                break
            known = (<SharedFields>places[i]).text
            if PyBytes_GET_SIZE(known) <= most and memcmp(text, PyBytes_AS_STRING(known), PyBytes_GET_SIZE(known)) == 0:
                return <SharedFields>places[i]
    return None


cdef void _note_late(SharedFields found) noexcept:
    cdef PyObject** places
    if PyBytes_GET_SIZE(found.text) >= LATE_BYTES:
        places = _late_of(PyBytes_AS_STRING(found.text))
        memmove(places + 1, places, (LATE_EACH - 1) * sizeof(PyObject*))
        places[0] = <PyObject*>found


cdef bint _only_objects(dict level, int depth):
    cdef PyObject* key
    cdef PyObject* value
    cdef Py_ssize_t pos = 0
    if depth > SHARED_DEPTH:
        return False
    while PyDict_Next(level, &pos, &key, &value):
        if type(<object>value) is not dict or (PyDict_Size(<object>value) and not _only_objects(<dict>value, depth + 1)):
            return False
    return True


cdef SharedFields _shared(bytes text, object loads):
    """The shared set of a text; None when it is not a set."""
    global _shared_size
    cdef SharedFields found
    cdef PyObject* known = PyDict_GetItem(_shared_texts, text)
    cdef Py_ssize_t size = SHARED_EACH + SHARED_FOR_BYTE * PyBytes_GET_SIZE(text)
    if known != NULL:
        _note_late(<SharedFields>known)
        return <SharedFields>known
    value = loads(text)
    if type(value) is not dict or not _only_objects(<dict>value, 0):
        return None
    if _shared_size + size > SHARED_BYTES:
        _shared_texts.clear()
        _shared_ids.clear()
        _shared_size = 0
        memset(_late, 0, sizeof(_late))
    found = SharedFields(<dict>value, text)
    _shared_texts[text] = found
    _shared_ids[PyLong_FromVoidPtr(<void*>value)] = found
    _shared_size += size
    _note_late(found)
    return found


cdef Py_ssize_t _object_end(const char* s, Py_ssize_t i, Py_ssize_t end) noexcept:
    """The offset after the object that begins at ``i``; -1 when it does not end."""
    cdef int depth = 0
    cdef char c, escaped
    while i < end:
        c = s[i]
        if c == 34:
            i = scan_string(s, i + 1, end, &escaped)
            if i < 0:
                return -1
        elif c == 123:
            depth += 1
        elif c == 125:
            depth -= 1
            if depth == 0:
                return i + 1
        i += 1
    return -1


def parse_sharing(bytes data not None, Py_ssize_t metadata_end, object loads not None):
    """``loads(data)`` for a stored object of a built-in type as canonical JSON, with its managed field sets shared. ``metadata_end`` is the
    end of its metadata; 0 when unknown, and then nothing is shared.
    """
    cdef const char* s = PyBytes_AS_STRING(data)
    cdef const char* begin
    cdef Py_ssize_t end = min(metadata_end, PyBytes_GET_SIZE(data)), i, at = 0, stop, size = 0, entry = -1
    cdef int depth = 0
    cdef char c, escaped
    cdef char* out
    cdef list found = [], cuts = []
    cdef SharedFields fields
    cdef bytes short
    begin = <const char*>memmem(s, end, b'"managedFields":[{', 18) if end > 0 else NULL
    if begin == NULL or begin == s or ((begin - 1)[0] != 44 and (begin - 1)[0] != 123):
        return loads(data)
    i = begin - s + 16
    while i < end:
        c = s[i]
        if c == 34:
            stop = scan_string(s, i + 1, end, &escaped)
            if stop < 0:
                return loads(data)
            if depth == 2 and stop - i == 9 and stop + 2 < end and memcmp(s + i + 1, b'fieldsV1":{', 11) == 0:
                i = stop + 2
                fields = _shared_lately(s + i, end - i)
                if fields is not None:
                    stop = i + PyBytes_GET_SIZE(fields.text)
                else:
                    stop = _object_end(s, i, end)
                    if stop < 0 or stop - i > SHARED_LONGEST:
                        return loads(data)
                    fields = _shared(s[i:stop], loads)
                    if fields is None:
                        return loads(data)
                found.append((entry, fields))
                cuts.append((i, stop))
                size += stop - i - 1
                i = stop
                continue
            i = stop
        elif c == 123 or c == 91:
            entry += depth == 1
            depth += 1
        elif c == 125 or c == 93:
            depth -= 1
            if depth == 0:
                break
        i += 1
    if not found:
        return loads(data)
    short = PyBytes_FromStringAndSize(NULL, PyBytes_GET_SIZE(data) - size)
    out = PyBytes_AS_STRING(short)
    for start, stop in cuts:
        memcpy(out, s + at, <Py_ssize_t>start - at)
        out += <Py_ssize_t>start - at
        out[0] = 48
        out += 1
        at = stop
    memcpy(out, s + at, PyBytes_GET_SIZE(data) - at)
    obj = loads(short)
    entries = obj["metadata"]["managedFields"]
    for entry, fields in found:
        entries[entry]["fieldsV1"] = fields.fields
    return obj
