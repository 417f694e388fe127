# Blocks: labels and selectable fields as bytes, a row of pairs sorted by name: u16 name length, u32 value length, name, value.
#
# Blocks are parts of a record's head and belong to it. Not trusted: next_pair() stops where lengths do not fit, so that a damaged
# block has fewer pairs and nothing else. Benchmark: bench/test_store.py::test_list_by_label.


cdef inline int next_pair(const char **at, const char *end, const char **name, size_t *name_len,
                          const char **value, size_t *value_len) noexcept nogil:
    """Steps over one pair of a block; 0 at its end or where it is damaged."""
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


cdef bytes block_bytes(dict pairs):
    """The block of a str→str dict. Names are at most 65,535 bytes."""
    if not pairs:
        return b""
    cdef bytes name, value
    cdef uint16_t n
    cdef uint32_t v
    cdef list rows = sorted([(k.encode(), v_.encode()) for k, v_ in pairs.items()])
    cdef Py_ssize_t total = 0
    for name, value in rows:
        if PyBytes_GET_SIZE(name) > 65535:
            raise ValueError("the name of a label or field is longer than 65535 bytes")
        total += 6 + PyBytes_GET_SIZE(name) + PyBytes_GET_SIZE(value)
    cdef bytes out = PyBytes_FromStringAndSize(NULL, total)
    cdef char *p = PyBytes_AS_STRING(out)
    for name, value in rows:
        n = <uint16_t>PyBytes_GET_SIZE(name)
        v = <uint32_t>PyBytes_GET_SIZE(value)
        memcpy(p, &n, 2)
        memcpy(p + 2, &v, 4)
        memcpy(p + 6, PyBytes_AS_STRING(name), n)
        memcpy(p + 6 + n, PyBytes_AS_STRING(value), v)
        p += 6 + n + v
    return out
