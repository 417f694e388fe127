# Label and field selectors, matched on a record's head without parsing JSON.
#
# The semantics are those of upstream's labels.Requirement.Matches and fields.Selector: `!=` and `notin` also match if the key
# is absent, `gt` and `lt` need the key and an integer value. A Matcher owns the bytes its requirements point to. Trusted:
# heads that head_ok() accepted (a sealed one is opened first). Benchmark: bench/test_store.py::test_list_by_label,
# test_list_by_field.

cdef enum:
    R_IN = 1
    R_NOT_IN = 2
    R_EXISTS = 3
    R_ABSENT = 4
    R_GT = 5
    R_LT = 6
    R_FIELD_EQ = 7
    R_FIELD_NE = 8
    FEW = 3  # requirements

cdef inline int compare(const char *a, size_t an, const char *b, size_t bn) noexcept nogil:
    cdef int r = memcmp(a, b, an if an < bn else bn)
    if r:
        return r
    return (an > bn) - (an < bn)


cdef inline bint among(const Requirement *r, const char *p, size_t n) noexcept nogil:
    """Whether the value is one of the requirement's values, which are sorted."""
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
    """Parses an int64 as Go's strconv.ParseInt(s, 10, 64) does."""
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


cdef inline bint holds(const Requirement *r, const char *v, size_t n) noexcept nogil:
    """Whether a value of the requirement's key satisfies it."""
    cdef int64_t number
    if r.op == R_IN:
        return among(r, v, n)
    if r.op == R_NOT_IN:
        return not among(r, v, n)
    if r.op == R_EXISTS:
        return True
    if r.op == R_ABSENT:
        return False
    if r.op == R_FIELD_EQ or r.op == R_FIELD_NE:
        return (n == r.values[0].n and memcmp(v, r.values[0].p, n) == 0) == (r.op == R_FIELD_EQ)
    return parse_int(v, n, &number) and (number > r.bound if r.op == R_GT else number < r.bound)


cdef bint needs_key(const Requirement *r) noexcept nogil:
    """Whether the requirement fails if its key is absent. A field that the writer did not supply has the empty value, as in
    fields.Set.Get."""
    if r.op == R_FIELD_EQ:
        return r.values[0].n != 0
    if r.op == R_FIELD_NE:
        return r.values[0].n == 0
    return r.op != R_NOT_IN and r.op != R_ABSENT


cdef inline size_t first_from(const Requirement *reqs, size_t i, size_t n, const char *key, size_t key_len) noexcept nogil:
    """Returns the index of the first requirement from ``i`` on whose key is not less than ``key``. Steps double in size, so
    the cost is logarithmic in the distance."""
    cdef size_t hi = i + 1, step = 1, mid
    if compare(reqs[i].key, reqs[i].key_len, key, key_len) >= 0:
        return i
    while hi < n and compare(reqs[hi].key, reqs[hi].key_len, key, key_len) < 0:
        i = hi
        hi += step
        step *= 2
    if hi > n:
        hi = n
    while i + 1 < hi:
        mid = (i + hi) // 2
        if compare(reqs[mid].key, reqs[mid].key_len, key, key_len) < 0:
            i = mid
        else:
            hi = mid
    return hi


cdef bint each_of(const Requirement *reqs, size_t n, const char *block, size_t size) noexcept nogil:
    """``fulfil`` for a few requirements: each is looked up separately, without comparing the order, which takes a third less
    time."""
    cdef size_t i
    cdef const char *at
    cdef const char *end = block + size
    cdef const char *name
    cdef const char *value
    cdef size_t name_len, value_len
    cdef bint there
    for i in range(n):
        at, there = block, False
        while not there and next_pair(&at, end, &name, &name_len, &value, &value_len):
            there = name_len == reqs[i].key_len and kas_same(name, reqs[i].key, name_len)
        if not there:
            if reqs[i].needs:
                return False
        elif reqs[i].exact:  # most are: avoids a call for these
            if value_len != reqs[i].values[0].n or not kas_same(value, reqs[i].values[0].p, value_len):
                return False
        elif not holds(&reqs[i], value, value_len):
            return False
    return True


cdef bint all_of(const Requirement *reqs, size_t n, size_t needed, const char *block, size_t size) noexcept nogil:
    """``fulfil`` for many requirements: both sides are sorted by name and walked once, so that hundreds of terms, which many
    watches may have, cost little for an event with few labels."""
    cdef const char *at = block
    cdef const char *end = block + size
    cdef const char *name
    cdef const char *value
    cdef size_t name_len, value_len, i = 0, met = 0
    while i < n and next_pair(&at, end, &name, &name_len, &value, &value_len):
        i = first_from(reqs, i, n, name, name_len)
        while i < n and reqs[i].key_len == name_len and kas_same(reqs[i].key, name, name_len):
            if not holds(&reqs[i], value, value_len):
                return False
            met += reqs[i].needs
            i += 1
    return met == needed


cdef inline bint fulfil(const Requirement *reqs, size_t n, size_t needed, const char *block, size_t size) noexcept nogil:
    """Whether the pairs of a block satisfy all requirements, ``needed`` of which need their key to be present."""
    return each_of(reqs, n, block, size) if n <= FEW else all_of(reqs, n, needed, block, size)


cdef inline bint selects(Matcher m, const char *labels, size_t labels_len, const char *fields, size_t fields_len) noexcept nogil:
    cdef size_t n = m.n_labels
    return ((n == 0 or fulfil(m.reqs, n, m.needed_labels, labels, labels_len))
            and (m.n == n or fulfil(m.reqs + n, m.n - n, m.needed_fields, fields, fields_len)))


cdef inline bint selected(Matcher m, const char *head) noexcept nogil:
    """Matches a head that head_ok() accepted and that is not sealed."""
    cdef const Head *h = <const Head *>head
    return selects(m, head_labels(head), h.labels_len, head_fields(head), h.fields_len)


cdef class Matcher:
    """A compiled selector: all requirements must hold. Made by compile_matcher; immutable."""

    def __dealloc__(self):
        free(self.reqs)
        free(self.values)

    def matches(self, Record record not None) -> bool:
        """Returns whether the selector accepts the record."""
        return selected(self, PyBytes_AS_STRING(record.head))

    def matches_maps(self, dict labels, dict fields) -> bool:
        """Returns whether the selector accepts an object with these labels and selectable fields."""
        cdef bytes lb = block_bytes(labels)
        cdef bytes fb = block_bytes(fields)
        return selects(self, PyBytes_AS_STRING(lb), PyBytes_GET_SIZE(lb), PyBytes_AS_STRING(fb), PyBytes_GET_SIZE(fb))

    @property
    def trigger(self):
        """``(field, value)`` of the first selectable field that has this value in every record that the selector accepts; None if
        there is no such field. metadata.namespace is not used (upstream's cacher: indexed trigger)."""
        cdef size_t i
        cdef const Requirement *r
        for i in range(self.n_labels, self.n):
            r = &self.reqs[i]
            if r.op == R_FIELD_EQ and r.values[0].n and r.key[:r.key_len] != b"metadata.namespace":
                return r.key[:r.key_len].decode(), r.values[0].p[:r.values[0].n].decode()
        return None

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
    cdef list labels = [], fields = []
    for name, operator, values in label_requirements:
        if operator not in _LABEL_OPS:
            raise ValueError(f"unknown label operator {operator!r}")
        op = _LABEL_OPS[operator]
        if isinstance(values, str):
            values = (values,)
        if op in (R_GT, R_LT):
            labels.append((name.encode(), op, [], int(next(iter(values)))))
        else:
            labels.append((name.encode(), op, sorted({v.encode() for v in values}), 0))
    for name, operator, value in field_requirements:
        if operator not in _FIELD_OPS:
            raise ValueError(f"unknown field operator {operator!r}")
        fields.append((name.encode(), _FIELD_OPS[operator], [value.encode()], 0))
    labels.sort()
    fields.sort()
    return arranged(labels, fields)


cdef Matcher arranged(list labels, list fields):
    """Returns a Matcher for rows (key, op, sorted values, bound), each kind sorted by key. Keys and values are stored in a
    single bytes object, because a watch keeps its selector for as long as it lasts."""
    cdef Matcher m = Matcher.__new__(Matcher)
    cdef list rows = labels + fields
    cdef list texts = []
    cdef size_t total = 0, i = 0, at = 0
    cdef const char *p
    cdef Requirement *r
    for key, _, values, _ in rows:
        texts.append(key)
        texts += values
        total += len(values)
    m.keep = b"".join(texts)
    m.reqs = <Requirement *>malloc((len(rows) + 1) * sizeof(Requirement))
    m.values = <Value *>malloc((total + 1) * sizeof(Value))
    if m.reqs == NULL or m.values == NULL:
        raise MemoryError
    p = PyBytes_AS_STRING(m.keep)
    for key, op, values, bound in rows:
        r = &m.reqs[i]
        r.op, r.bound, r.key, r.key_len = op, bound, p, len(key)
        p += r.key_len
        r.values, r.n_values = m.values + at, len(values)
        for value in values:
            m.values[at].p, m.values[at].n = p, len(value)
            p += m.values[at].n
            at += 1
        r.needs = needs_key(r)
        r.exact = (r.op == R_IN and r.n_values == 1) or r.op == R_FIELD_EQ
        if i < <size_t>len(labels):
            m.needed_labels += r.needs
        else:
            m.needed_fields += r.needs
        i += 1
    m.n, m.n_labels = i, len(labels)
    return m
