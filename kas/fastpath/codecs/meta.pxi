# ObjectMeta's maps and lists as nearly every object has them: one pass says that there is nothing to complain about. What it does not
# recognise, however valid, it leaves to the rules in kas.meta.objectmeta, which alone word complaints. Input is a decoded
# document of any shape: types are checked, references borrowed, nothing is changed, and every index stays below the length given.

cdef extern from "Python.h":
    bint PyUnicode_IS_COMPACT_ASCII(object o)
    void* PyUnicode_DATA(object o)
    bint PyDict_CheckExact(object o)
    bint PyList_CheckExact(object o)

cdef enum:
    LOWER = 1   # a-z
    UPPER = 2
    DIGIT = 4
    DASH = 8
    DOT = 16
    UNDERSCORE = 32
    SUBDOMAIN_MAX = 253
    NAME_MAX = 63
    ANNOTATIONS_MAX = 256 * 1024
    MANAGER_MAX = 128
    SUBRESOURCE_MAX = 256

cdef uint8_t SORT[256]


cdef void _init_sort() noexcept:
    cdef int c
    memset(SORT, 0, 256)
    for c in range(97, 123):
        SORT[c] = LOWER
        SORT[c - 32] = UPPER
    for c in range(48, 58):
        SORT[c] = DIGIT
    SORT[45], SORT[46], SORT[95] = DASH, DOT, UNDERSCORE

_init_sort()


cdef inline bint ascii_text(object s, const char** p, Py_ssize_t* n):
    if not PyUnicode_CheckExact(s) or not PyUnicode_IS_COMPACT_ASCII(s):
        return False
    p[0], n[0] = <const char*>PyUnicode_DATA(s), PyUnicode_GET_LENGTH(s)
    return True


cdef bint is_label_key(const char* p, Py_ssize_t n):
    """``([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]``, at most 63."""
    cdef Py_ssize_t i
    if n < 1 or n > NAME_MAX:
        return False
    if not SORT[<uint8_t>p[0]] & (LOWER | UPPER | DIGIT) or not SORT[<uint8_t>p[n - 1]] & (LOWER | UPPER | DIGIT):
        return False
    for i in range(n):
        if not SORT[<uint8_t>p[i]]:
            return False
    return True


cdef bint is_subdomain(const char* p, Py_ssize_t n, int letters):
    """RFC 1123 labels with dots between, at most 253; ``letters`` says whether upper case counts too."""
    cdef Py_ssize_t i
    cdef uint8_t sort, before = DOT
    if n < 1 or n > SUBDOMAIN_MAX:
        return False
    for i in range(n):
        sort = SORT[<uint8_t>p[i]]
        if sort & (letters | DIGIT):
            pass
        elif sort == DASH:
            if before == DOT:
                return False
        elif sort == DOT:
            if before == DOT or before == DASH:
                return False
        else:
            return False
        before = sort
    return before != DOT and before != DASH


cdef bint is_qualified(const char* p, Py_ssize_t n, int letters):
    cdef const char* slash = <const char*>memchr(p, 47, n)
    if slash == NULL:
        return is_label_key(p, n)
    # A second slash is no character of a label key.
    return is_subdomain(p, slash - p, letters) and is_label_key(slash + 1, n - (slash - p) - 1)


cdef bint quick_label_map(object labels):
    cdef Py_ssize_t at = 0, n = 0
    cdef const char* p = NULL
    cdef PyObject* k
    cdef PyObject* v
    if not PyDict_CheckExact(labels):
        return False
    while PyDict_Next(labels, &at, &k, &v):
        if not ascii_text(<object>k, &p, &n) or not is_qualified(p, n, LOWER):
            return False
        if not ascii_text(<object>v, &p, &n) or not (n == 0 or is_label_key(p, n)):
            return False
    return True


cdef bint quick_annotation_map(object annotations):
    cdef Py_ssize_t at = 0, n = 0, total = 0
    cdef const char* p = NULL
    cdef PyObject* k
    cdef PyObject* v
    if not PyDict_CheckExact(annotations):
        return False
    while PyDict_Next(annotations, &at, &k, &v):
        if not ascii_text(<object>k, &p, &n) or not is_qualified(p, n, LOWER | UPPER):
            return False
        total += n
        if not ascii_text(<object>v, &p, &n):
            return False
        total += n
    return total <= ANNOTATIONS_MAX


cdef inline bint set_text(dict d, object key, const char** p, Py_ssize_t* n):
    """Whether the value is a text that is not empty."""
    cdef PyObject* v = PyDict_GetItem(d, key)
    return v != NULL and ascii_text(<object>v, p, n) and n[0] > 0


cdef bint quick_owners(object references):
    cdef Py_ssize_t i, n = 0
    cdef const char* p = NULL
    cdef const char* slash
    cdef dict ref
    cdef PyObject* v
    cdef bint controlled = False
    if not PyList_CheckExact(references):
        return False
    for i in range(PyList_GET_SIZE(references)):
        if not PyDict_CheckExact(<object>PyList_GET_ITEM(references, i)):
            return False
        ref = <dict><object>PyList_GET_ITEM(references, i)
        if not set_text(ref, "name", &p, &n) or not set_text(ref, "uid", &p, &n):
            return False
        if not set_text(ref, "kind", &p, &n) or (n == 5 and memcmp(p, b"Event", 5) == 0):
            return False
        if not set_text(ref, "apiVersion", &p, &n):
            return False
        slash = <const char*>memchr(p, 47, n)
        if slash != NULL and (slash == p + n - 1 or memchr(slash + 1, 47, p + n - slash - 1) != NULL):
            return False
        v = PyDict_GetItem(ref, "controller")
        if v != NULL and <object>v is not None and <object>v is not False:
            if controlled:
                return False
            controlled = True
    return True


cdef bint quick_finalizers(object finalizers):
    cdef Py_ssize_t i, n = 0
    cdef const char* p = NULL
    if not PyList_CheckExact(finalizers):
        return False
    for i in range(PyList_GET_SIZE(finalizers)):
        if not ascii_text(<object>PyList_GET_ITEM(finalizers, i), &p, &n) or not is_qualified(p, n, LOWER):
            return False
    return not ("orphan" in finalizers and "foregroundDeletion" in finalizers)


cdef bint quick_managers(object entries):
    cdef Py_ssize_t i, j, n = 0
    cdef const char* p = NULL
    cdef dict entry
    cdef PyObject* v
    if not PyList_CheckExact(entries):
        return False
    for i in range(PyList_GET_SIZE(entries)):
        if not PyDict_CheckExact(<object>PyList_GET_ITEM(entries, i)):
            return False
        entry = <dict><object>PyList_GET_ITEM(entries, i)
        v = PyDict_GetItem(entry, "operation")
        if v == NULL or not (<object>v == "Update" or <object>v == "Apply"):
            return False
        v = PyDict_GetItem(entry, "fieldsType")
        if v != NULL and not <object>v == "FieldsV1":
            return False
        v = PyDict_GetItem(entry, "manager")
        if v != NULL:
            if not ascii_text(<object>v, &p, &n) or n > MANAGER_MAX:
                return False
            for j in range(n):
                if p[j] < 0x20 or p[j] > 0x7E:
                    return False
        v = PyDict_GetItem(entry, "subresource")
        if v != NULL and (not ascii_text(<object>v, &p, &n) or n > SUBRESOURCE_MAX):
            return False
    return True


def quick_annotations(annotations):
    """Whether annotations certainly have nothing wrong; False means that somebody must look."""
    return annotations is None or quick_annotation_map(annotations)


def quick_metadata(dict meta not None):
    """Whether labels, annotations, owner references, finalizers and managed fields certainly have nothing wrong."""
    cdef PyObject* v = PyDict_GetItem(meta, "labels")
    if v != NULL and <object>v is not None and not quick_label_map(<object>v):
        return False
    v = PyDict_GetItem(meta, "annotations")
    if v != NULL and <object>v is not None and not quick_annotation_map(<object>v):
        return False
    v = PyDict_GetItem(meta, "ownerReferences")
    if v != NULL and <object>v is not None and not quick_owners(<object>v):
        return False
    v = PyDict_GetItem(meta, "finalizers")
    if v != NULL and <object>v is not None and not quick_finalizers(<object>v):
        return False
    v = PyDict_GetItem(meta, "managedFields")
    return v == NULL or <object>v is None or quick_managers(<object>v)
