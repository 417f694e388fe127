# Label and field selectors, matched on a record's head without parsing JSON.
#
# Semantics are those of upstream's labels.Requirement.Matches and fields.Selector: `!=` and `notin` also match when the key
# is absent, `gt` and `lt` need the key and an integer value. A Matcher owns the bytes its requirements point to. Trusted: heads that
# head_ok() accepted (a sealed one is opened first). Benchmark: bench/test_store.py::test_list_by_label, test_list_by_field.

cdef enum:
    R_IN = 1
    R_NOT_IN = 2
    R_EXISTS = 3
    R_ABSENT = 4
    R_GT = 5
    R_LT = 6
    R_FIELD_EQ = 7
    R_FIELD_NE = 8

cdef inline int compare(const char *a, size_t an, const char *b, size_t bn) noexcept nogil:
    cdef int r = memcmp(a, b, an if an < bn else bn)
    if r:
        return r
    return (an > bn) - (an < bn)


cdef inline bint among(const Requirement *r, const char *p, size_t n) noexcept nogil:
    """Whether the value is one of the requirement's, which are sorted."""
    cdef size_t lo = 0, hi = r.n_values, mid
    cdef int c
    if hi == 1:
        return r.values[0].n == n and kas_same(r.values[0].p, p, n)
    while lo < hi:
        mid = (lo + hi) // 2
        c = compare(r.values[mid].p, r.values[mid].n, p, n)
        if c == 0:
            return True
        if c < 0:
            lo = mid + 1
        else:
            hi = mid
    return False


cdef inline bint parse_int(const char *p, size_t n, int64_t *out) noexcept nogil:
    """An int64 as Go's strconv.ParseInt(s, 10, 64) reads it."""
    cdef size_t i = 0
    cdef bint negative = False
    cdef uint64_t v = 0, d
    if n and (p[0] == c'-' or p[0] == c'+'):
        negative = p[0] == c'-'
        i = 1
    if i == n or n - i > 400:
        return False
    while i < n:
        if p[i] < c'0' or p[i] > c'9':
            return False
        d = p[i] - c'0'
        if v > (<uint64_t>9223372036854775808 - d) // 10:
            return False
        v = v * 10 + d
        i += 1
    if not negative and v > <uint64_t>9223372036854775807:
        return False
    out[0] = <int64_t>(0 - v) if negative else <int64_t>v
    return True


cdef inline bint find_pair(const char *block, size_t n, const char *key, size_t key_len,
                           const char **value, size_t *value_len) noexcept nogil:
    cdef const char *at = block
    cdef const char *end = block + n
    cdef const char *name
    cdef size_t name_len
    while next_pair(&at, end, &name, &name_len, value, value_len):
        if name_len == key_len and kas_same(name, key, key_len):
            return True
    return False


cdef bint require(const Requirement *r, const char *labels, size_t labels_len, const char *fields, size_t fields_len) noexcept nogil:
    cdef const char *v = NULL
    cdef size_t n = 0
    cdef int64_t number
    cdef bint there
    if r.op >= R_FIELD_EQ:
        # A field that the writer did not list has the empty value, as in fields.Set.Get.
        there = find_pair(fields, fields_len, r.key, r.key_len, &v, &n)
        if not there:
            n = 0
            v = r.key
        there = n == r.values[0].n and memcmp(v, r.values[0].p, n) == 0
        return there if r.op == R_FIELD_EQ else not there
    there = find_pair(labels, labels_len, r.key, r.key_len, &v, &n)
    if r.op == R_IN:
        return there and among(r, v, n)
    if r.op == R_NOT_IN:
        return not there or not among(r, v, n)
    if r.op == R_EXISTS:
        return there
    if r.op == R_ABSENT:
        return not there
    if not there or not parse_int(v, n, &number):
        return False
    return number > r.bound if r.op == R_GT else number < r.bound


cdef class Matcher:
    """A compiled selector: all requirements must hold. Made by compile_matcher; immutable."""

    def __dealloc__(self):
        free(self.reqs)
        free(self.values)

    cdef bint test(self, const char *head) noexcept nogil:
        """On a head that head_ok() accepted."""
        cdef size_t i
        cdef const Head *h = <const Head *>head
        for i in range(self.n):
            if not require(&self.reqs[i], head_labels(head), h.labels_len, head_fields(head), h.fields_len):
                return False
        return True

    def matches(self, Record record not None) -> bool:
        """Whether the selector accepts the record."""
        return self.test(PyBytes_AS_STRING(record.head))

    def matches_maps(self, dict labels, dict fields) -> bool:
        """Whether the selector accepts an object with these labels and selectable fields."""
        cdef bytes lb = block_bytes(labels)
        cdef bytes fb = block_bytes(fields)
        cdef size_t i
        for i in range(self.n):
            if not require(&self.reqs[i], PyBytes_AS_STRING(lb), PyBytes_GET_SIZE(lb), PyBytes_AS_STRING(fb), PyBytes_GET_SIZE(fb)):
                return False
        return True

    def __len__(self):
        return self.n


_LABEL_OPS = {"=": R_IN, "==": R_IN, "in": R_IN, "!=": R_NOT_IN, "notin": R_NOT_IN, "exists": R_EXISTS, "!": R_ABSENT,
              "gt": R_GT, "lt": R_LT}
_FIELD_OPS = {"=": R_FIELD_EQ, "==": R_FIELD_EQ, "!=": R_FIELD_NE}


def compile_matcher(label_requirements=(), field_requirements=()) -> Matcher:
    """Compiles requirements: labels ``(key, op, values)``, fields ``(field, op, value)``.

    Label operators: ``= == != in notin exists ! gt lt``; ``gt`` and ``lt`` take one integer. Field operators: ``= == !=``.
    Raises ValueError for an unknown operator or a bound that is no integer.
    """
    cdef Matcher m = Matcher.__new__(Matcher)
    cdef list labels = list(label_requirements)
    cdef list fields = list(field_requirements)
    cdef list rows = []
    cdef size_t total = 0, i = 0, at = 0, n = len(labels) + len(fields)
    cdef bytes raw, key
    cdef int op
    for name, operator, values in labels:
        if operator not in _LABEL_OPS:
            raise ValueError(f"unknown label operator {operator!r}")
        op = _LABEL_OPS[operator]
        if isinstance(values, str):
            values = (values,)
        if op in (R_GT, R_LT):
            rows.append((op, name.encode(), [], int(next(iter(values)))))
        else:
            rows.append((op, name.encode(), sorted({v.encode() for v in values}), 0))
    for name, operator, value in fields:
        if operator not in _FIELD_OPS:
            raise ValueError(f"unknown field operator {operator!r}")
        rows.append((_FIELD_OPS[operator], name.encode(), [value.encode()], 0))
    for row in rows:
        total += len(row[2])
    m.keep = rows
    m.reqs = <Requirement *>malloc((n + 1) * sizeof(Requirement))
    m.values = <Value *>malloc((total + 1) * sizeof(Value))
    if m.reqs == NULL or m.values == NULL:
        raise MemoryError
    for row in rows:
        key = row[1]
        m.reqs[i].op = row[0]
        m.reqs[i].key = PyBytes_AS_STRING(key)
        m.reqs[i].key_len = PyBytes_GET_SIZE(key)
        m.reqs[i].values = m.values + at
        m.reqs[i].n_values = len(row[2])
        m.reqs[i].bound = row[3]
        for raw in row[2]:
            m.values[at].p = PyBytes_AS_STRING(raw)
            m.values[at].n = PyBytes_GET_SIZE(raw)
            at += 1
        i += 1
    m.n = n
    return m
