# Blocks: labels and selectable fields as bytes, a sequence of pairs sorted by name: u16 name length, u32 value length, name, value.
#
# Blocks are parts of a record's head and belong to it. Not trusted: next_pair() stops at inconsistent lengths, so a damaged
# block has fewer pairs and no other effect. Benchmark: bench/test_store.py::test_list_by_label.


cdef inline int next_pair(const char **at, const char *end, const char **name, size_t *name_len,
                          const char **value, size_t *value_len) noexcept nogil:
    """Steps over one pair of a block; returns 0 at its end or where it is damaged."""
    cdef uint16_t n
    cdef uint32_t v
    cdef const char *p = at[0]
    if end - p < 6:
        return 0
    memcpy(&n, p, 2)
    memcpy(&v, p + 2, 4)
    if <uint64_t>(end - p) < <uint64_t>6 + n + v:
        return 0
    name[0] = p + 6
    name_len[0] = n
    value[0] = p + 6 + n
    value_len[0] = v
    at[0] = p + 6 + n + v
    return 1


cdef dict block_dict(const char *p, size_t n):
    cdef const char *end = p + n
    cdef const char *name
    cdef const char *value
    cdef size_t name_len, value_len
    cdef dict out = {}
    while next_pair(&p, end, &name, &name_len, &value, &value_len):
        out[name[:name_len].decode()] = value[:value_len].decode()
    return out


cdef enum:
    FEW_PAIRS = 32  # up to this number are sorted on the C stack


cdef struct Pair:
    const char *name
    const char *value
    Py_ssize_t name_len
    Py_ssize_t value_len


cdef inline bint comes_before(const Pair *a, const Pair *b) noexcept:
    cdef int order = memcmp(a.name, b.name, min(a.name_len, b.name_len))
    return order < 0 or (order == 0 and a.name_len < b.name_len)


cdef int pair_of(Pair *pair, object name, object value) except -1:
    """Points into the strings, which own the bytes."""
    pair.name = PyUnicode_AsUTF8AndSize(name, &pair.name_len)
    pair.value = PyUnicode_AsUTF8AndSize(value, &pair.value_len)
    if pair.name_len > 65535:
        raise ValueError("the name of a label or field is longer than 65535 bytes")
    return 0


cdef char *put_pair(char *p, const Pair *pair) noexcept:
    cdef uint16_t n = <uint16_t>pair.name_len
    cdef uint32_t v = <uint32_t>pair.value_len
    memcpy(p, &n, 2)
    memcpy(p + 2, &v, 4)
    memcpy(p + 6, pair.name, n)
    memcpy(p + 6 + n, pair.value, v)
    return p + 6 + n + v


cdef bytes block_bytes(dict pairs):
    """Returns the block of a str→str dict. Names are at most 65,535 bytes."""
    if not pairs:
        return b""
    cdef Pair few[FEW_PAIRS]
    cdef Pair one
    cdef Py_ssize_t total = 6 * len(pairs), pos = 0, count = 0, at
    cdef PyObject *name
    cdef PyObject *value
    cdef bint many = len(pairs) > FEW_PAIRS
    while PyDict_Next(pairs, &pos, &name, &value):
        pair_of(&one, <object>name, <object>value)
        total += one.name_len + one.value_len
        if many:
            continue
        at = count
        while at > 0 and comes_before(&one, &few[at - 1]):
            few[at] = few[at - 1]
            at -= 1
        few[at] = one
        count += 1
    cdef bytes out = PyBytes_FromStringAndSize(NULL, total)
    cdef char *p = PyBytes_AS_STRING(out)
    if many:
        # Strings sort by code points in the same order as their UTF-8 bytes.
        for key in sorted(pairs):
            pair_of(&one, key, pairs[key])
            p = put_pair(p, &one)
        return out
    for at in range(count):
        p = put_pair(p, &few[at])
    return out
