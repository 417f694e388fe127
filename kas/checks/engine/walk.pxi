# The walk: the kind of a check determines how a value is checked.

cdef enum:
    ANYTHING = 1
    # ASCII texts; for other texts the answer is 0.
    SUBDOMAIN       # names
    GENERATED       # a prefix of such a name
    LABEL_1035
    SEGMENT         # a path segment
    QUALIFIED
    LABEL_VALUE
    DATA_KEY
    PORT_NAME
    PRINTABLE
    ASCII           # a length in bytes
    UNPADDED
    PATH
    GROUP_VERSION
    IPV4
    # Other scalars.
    TEXT            # a length in code points
    OPTION          # one of several texts
    BOOLEAN
    SAME            # True or False, by identity
    INTEGER
    FLOAT
    MULTIPLE        # an int that is a multiple of another
    PATTERN         # a function of texts
    AMOUNT          # a quantity
    MEMBER          # a value claimed in a scope
    UNKNOWN         # always 0
    # Containers.
    OBJECT
    MAP
    LIST
    BY_KIND         # by JSON type: text, int, float, bool, list, object
    # For these null is an ordinary value.
    ALL_OF
    ANY_OF
    ONE_OF
    NOT
    LAZY            # made when the first value arrives


cdef enum:
    COMPARED = 8    # up to so many options are compared one by one, more are looked up
    SCANNED = 48    # so many fields are compared by address before their dict is used


cdef enum:
    RELATIVE = 1    # flags of paths
    FOLDERS = 2
    DOTS = 4        # flags of names
    CAPITALS = 8
    PREFIXED = 16
    WHOLE = 32      # flag of quantities


cdef int text_leaf(Node* c, PyObject* v) noexcept:
    cdef const char* p = NULL
    cdef Py_ssize_t n = 0
    cdef int op = c.op
    cdef bint ok
    if not ascii_text(<object>v, &p, &n):
        return 0
    if op == SUBDOMAIN:
        ok = 1 <= n <= c.high and is_subdomain(p, n, LOWER, c.low & DOTS)
    elif op == QUALIFIED:
        ok = is_qualified(p, n, LOWER | UPPER if c.low & CAPITALS else LOWER, c.low & PREFIXED)
    elif op == LABEL_VALUE:
        ok = n == 0 or is_label_key(p, n)
    elif op == PORT_NAME:
        ok = is_port_name(p, n)
    elif op == DATA_KEY:
        ok = is_data_key(p, n)
    elif op == PRINTABLE:
        ok = c.low <= n <= c.high and is_printable(p, n, <char>c.total)
    elif op == ASCII:
        ok = c.low <= n <= c.high
    elif op == UNPADDED:
        ok = n > 0 and p[0] > 0x20 and p[n - 1] > 0x20
    elif op == PATH:
        ok = is_path(p, n, c.low & RELATIVE, c.low & FOLDERS)
    elif op == LABEL_1035:
        ok = 1 <= n <= NAME_MAX and SORT[<uint8_t>p[0]] == LOWER and is_subdomain(p, n, LOWER, False)
    elif op == SEGMENT:
        ok = is_segment(p, n)
    elif op == GROUP_VERSION:
        ok = is_group_version(p, n)
    elif op == GENERATED:
        # A trailing dash is allowed, as a generated name continues after it.
        n -= n > 0 and p[n - 1] == b'-'
        ok = 1 <= n < c.high and is_subdomain(p, n, LOWER, c.low & DOTS)
    else:
        ok = is_ipv4(p, n)
    return ok


cdef inline int is_option(Node* c, PyObject* v) except -2:
    """Whether a text is one of the options; few are compared, many are looked up."""
    cdef Py_ssize_t i, n = PyUnicode_GET_LENGTH(<object>v)
    cdef PyObject* option
    if PyFrozenSet_CheckExact(<object>c.data):
        return PySet_Contains(<object>c.data, <object>v)
    if not PyUnicode_IS_COMPACT_ASCII(<object>v):
        return 0
    for i in range(PyTuple_GET_SIZE(<object>c.data)):
        option = PyTuple_GET_ITEM(<object>c.data, i)
        if PyUnicode_GET_LENGTH(<object>option) == n and memcmp(PyUnicode_DATA(<object>option), PyUnicode_DATA(<object>v), n) == 0:
            return 1
    return 0


cdef int leaf(Node* c, PyObject* v, Walk* w) except -2:
    cdef int op = c.op
    cdef int64_t n
    cdef double x
    cdef bint ok = False
    if op == OPTION:
        ok = PyUnicode_CheckExact(<object>v) and is_option(c, v)
    elif op == TEXT:
        ok = PyUnicode_CheckExact(<object>v) and c.low <= PyUnicode_GET_LENGTH(<object>v) <= c.high
        if ok and c.data != NULL:
            ok = not is_option(c, v)
    elif op == INTEGER:
        ok = number(<object>v, c.low, c.high)
        # A float that is a whole number is left to the rules.
        if not ok and PyFloat_CheckExact(<object>v):
            return 0
    elif op == BOOLEAN:
        ok = <object>v is True or <object>v is False
    elif op == AMOUNT:
        n = milli(<object>v)
        return n >= 0 and not (c.low & WHOLE and n % 1000)
    elif op == FLOAT:
        if PyFloat_CheckExact(<object>v):
            x = PyFloat_AS_DOUBLE(<object>v)
            ok = c.least <= x <= c.most
    elif op == SAME:
        ok = v == c.data
    elif op == PATTERN:
        w.left -= PATTERN_ALTERNATIVES
        ok = PyUnicode_CheckExact(<object>v) and bool((<object>c.data)(<object>v))
    elif op == MULTIPLE:
        return number(<object>v, INT64_MIN, INT64_MAX) and <object>v % <object>c.data == 0
    elif op == MEMBER:
        return is_taken(w, c.data, v)
    else:
        return 0
    return 1 if ok else c.no


cdef int run(Node* c, PyObject* v, Walk* w) except -2:
    """Return the answer of ``c`` for a value: 1, 0 or -1. After an exception the caller that began the walk closes the scopes."""
    cdef int got, before = w.n
    cdef int op = c.op
    if op == LAZY:
        if c.rest == NULL and w.rounds >= MAX_ROUNDS:
            return 0  # making the check may be the expensive part
        c = made(c)
        op = c.op
    if op == ANYTHING:
        return 1
    if <object>v is None and op < ALL_OF:
        if not c.nullable:
            return c.no
        # A claiming check does not accept null: null is not claimed, so a repetition would not be noticed.
        return 1 if c.claims == NULL and c.keys == NULL else 0
    if op < TEXT:
        got = text_leaf(c, v)
    elif op < OBJECT:
        got = leaf(c, v, w)
    else:
        if w.depth >= MAX_DEPTH:
            return 0
        w.depth += 1
        if c.opens != NULL:
            if not open_scopes(<tuple>c.opens, w):
                w.depth -= 1
                return 0
        if c.items != NULL and not open_scope(c.items, PyList_CheckExact(<object>v) and PyList_GET_SIZE(<object>v) < 2, w):
            close_scopes(before, w)
            w.depth -= 1
            return 0
        if op == OBJECT:
            got = run_object(c, v, w)
        elif op == LIST:
            got = run_list(c, v, w)
        elif op == MAP:
            got = run_map(c, v, w)
        elif op == BY_KIND:
            got = run_by_kind(c, v, w)
        else:
            got = run_alternatives(c, v, w)
        if w.n > before:
            close_scopes(before, w)
        w.depth -= 1
    if got == 1:
        if c.claims != NULL:
            got = claim(w, c.claims, v if c.claimed == NULL else c.claimed)
        if c.rule != NULL and got == 1:
            got = bool((<object>c.rule)(<object>v))
    return got


cdef Node* made(Node* c) except NULL:
    """Return the node of a lazy check. The first thread to finish making it sets it, since others may be walking it already."""
    cdef Check made
    cdef Check own = <Check>c.owner
    if c.rest == NULL:
        made = (<object>c.data)()
        if c.rest == NULL:
            own.held["rest"] = made
            c.rest = &made.node
    return c.rest


# -- scopes

cdef inline bint open_scope(PyObject* scope, bint alone, Walk* w) noexcept:
    if w.n == MAX_SCOPES:
        return False
    w.owners[w.n], w.taken[w.n], w.alone[w.n] = scope, NULL, alone
    w.n += 1
    return True


cdef bint open_scopes(tuple scopes, Walk* w) noexcept:
    cdef Py_ssize_t i
    cdef int before = w.n
    for i in range(PyTuple_GET_SIZE(scopes)):
        if not open_scope(PyTuple_GET_ITEM(scopes, i), False, w):
            close_scopes(before, w)
            return False
    return True


cdef void close_scopes(int before, Walk* w) noexcept:
    while w.n > before:
        w.n -= 1
        Py_XDECREF(w.taken[w.n])


cdef inline int place_of(Walk* w, PyObject* scope) noexcept:
    """Return the index of the innermost open scope of this name; -1 if none is open."""
    cdef int i = w.n - 1
    while i >= 0 and w.owners[i] != scope:
        i -= 1
    return i


cdef inline bint is_scalar(PyObject* v) noexcept:
    return (
        PyUnicode_CheckExact(<object>v) or PyLong_CheckExact(<object>v) or PyFloat_CheckExact(<object>v) or <object>v is True
        or <object>v is False
    )


cdef int add(Walk* w, int at, object value) except -2:
    cdef set taken
    cdef Py_ssize_t before
    if w.taken[at] == NULL:
        taken = set()
        Py_INCREF(taken)
        w.taken[at] = <PyObject*>taken
    else:
        taken = <set>w.taken[at]
    before = len(taken)
    taken.add(value)
    return len(taken) > before


cdef int claim(Walk* w, PyObject* scope, PyObject* value) except -2:
    """Whether this is the value's first claim. Numbers that are equal in Python count as the same."""
    cdef int at = place_of(w, scope)
    if at < 0 or not is_scalar(value):
        return 0
    return 1 if w.alone[at] else add(w, at, <object>value)


cdef int claim_fields(Walk* w, tuple key, dict d) except -2:
    """As ``claim``, for (scope, names): the values of these fields together; absent ones count as None."""
    cdef int at = place_of(w, <PyObject*>key[0])
    cdef tuple names = <tuple>key[1]
    cdef PyObject* v
    cdef list values
    if at < 0:
        return 0
    if w.alone[at]:
        return 1
    if len(names) == 1:
        v = PyDict_GetItem(d, names[0])
        if v == NULL:
            return add(w, at, None)
        return add(w, at, <object>v) if is_scalar(v) else 0
    values = []
    for name in names:
        v = PyDict_GetItem(d, name)
        if v != NULL and not is_scalar(v):
            return 0
        values.append(<object>v if v != NULL else None)
    return add(w, at, tuple(values))


cdef int is_taken(Walk* w, PyObject* scope, PyObject* v) except -2:
    cdef int at = place_of(w, scope)
    if at < 0 or w.taken[at] == NULL or not PyUnicode_CheckExact(<object>v):
        return 0
    return <object>v in <set>w.taken[at]


# -- containers

cdef inline int find(Node* c, PyObject* k, int hint) except -2:
    """Return the index of a field, -1 if it is not named.

    Names in decoded documents are the same objects as those of the table, so comparing addresses finds them, usually right after the last
    one.
    """
    cdef int i
    cdef PyObject* place
    if hint < c.n_slots and c.slots[hint].name == k:
        return hint
    if c.n_slots <= SCANNED:
        for i in range(c.n_slots):
            if c.slots[i].name == k:
                return i
    place = PyDict_GetItem(<object>c.index, <object>k)
    return -1 if place == NULL else <int><object>place


cdef int run_fields(Node* c, PyObject* v, Walk* w, int* required, uint64_t* present) except -2:
    """Check the fields in document order."""
    cdef Py_ssize_t at = 0
    cdef PyObject* k
    cdef PyObject* x
    cdef Slot* slot
    cdef int i, got, hint = 0
    while PyDict_Next(<object>v, &at, &k, &x):
        i = find(c, k, hint)
        if i < 0:
            if c.rest == NULL:
                return c.no
            if c.key != NULL:
                got = run(c.key, k, w)
                if got != 1:
                    return got
            if c.rest.op != ANYTHING:
                got = run(c.rest, x, w)
                if got != 1:
                    return got
            continue
        hint = i + 1
        slot = &c.slots[i]
        if slot.looked_at:
            got = run(slot.check, x, w)
            if got != 1:
                return got
        required[0] += slot.required
        present[0] |= slot.bit
    return 1


cdef int run_object(Node* c, PyObject* v, Walk* w) except -2:
    cdef Py_ssize_t size
    cdef PyObject* x
    cdef Slot* slot
    cdef int i, got, required = 0
    cdef uint64_t present = 0
    if not PyDict_CheckExact(<object>v):
        return c.no
    size = PyDict_Size(<object>v)
    if size < c.low or size > c.high:
        return c.no
    if c.n_early:
        for i in range(c.n_slots):
            slot = &c.slots[i]
            if slot.early:
                x = PyDict_GetItem(<object>v, <object>slot.name)
                if x != NULL:
                    got = run(slot.check, x, w)
                    if got != 1:
                        return got
    got = run_fields(c, v, w, &required, &present)
    if got != 1:
        return got
    if required != c.n_required:
        return c.no
    for i in range(c.n_groups):
        if c.groups[i].when and not present & c.groups[i].when:
            continue
        if not c.groups[i].least <= popcount(present & c.groups[i].mask) <= c.groups[i].most:
            return c.no
    if c.keys != NULL:
        for key in <tuple>c.keys:
            got = claim_fields(w, <tuple>key, <dict><object>v)
            if got != 1:
                return got
    if c.not_above != NULL:
        for lower, upper in <tuple>c.not_above:
            if not none_above(PyDict_GetItem(<object>v, lower), PyDict_GetItem(<object>v, upper)):
                return 0
    if c.rules != NULL:
        for mask, rule in <tuple>c.rules:
            if present & <uint64_t>mask == <uint64_t>mask and not rule(<object>v):
                return 0
    return 1


cdef inline int popcount(uint64_t x) noexcept:
    """Return the number of bits set, rarely more than one."""
    cdef int n = 0
    while x:
        x &= x - 1
        n += 1
    return n


cdef bint none_above(PyObject* lower, PyObject* upper) noexcept:
    """Whether no quantity in ``lower`` exceeds its namesake in ``upper``. Both maps are absent or have been checked."""
    cdef Py_ssize_t at = 0
    cdef PyObject* k
    cdef PyObject* v
    cdef PyObject* limit
    cdef int64_t n
    if lower == NULL or upper == NULL:
        return True
    if not PyDict_CheckExact(<object>lower) or not PyDict_CheckExact(<object>upper):
        return False
    while PyDict_Next(<object>lower, &at, &k, &v):
        limit = PyDict_GetItem(<object>upper, <object>k)
        if limit != NULL:
            n = milli(<object>v)
            if n < 0 or n > milli(<object>limit):
                return False
    return True


cdef int run_map(Node* c, PyObject* v, Walk* w) except -2:
    cdef Py_ssize_t at = 0, size
    cdef PyObject* k
    cdef PyObject* x
    cdef int got
    cdef int64_t total = 0
    if not PyDict_CheckExact(<object>v):
        return c.no
    size = PyDict_Size(<object>v)
    if size < c.low or size > c.high:
        return c.no
    while PyDict_Next(<object>v, &at, &k, &x):
        if c.key != NULL:
            got = run(c.key, k, w)
            if got != 1:
                return got
        got = run(c.rest, x, w)
        if got != 1:
            return got
        if c.total >= 0:
            total += most_bytes(k) + most_bytes(x)
    return 1 if c.total < 0 or total <= c.total else 0


cdef inline int64_t most_bytes(PyObject* s) noexcept:
    """Return the maximum UTF-8 length of a text; 0 for other values."""
    if not PyUnicode_CheckExact(<object>s):
        return 0
    return PyUnicode_GET_LENGTH(<object>s) * (1 if PyUnicode_IS_COMPACT_ASCII(<object>s) else 4)


cdef int run_list(Node* c, PyObject* v, Walk* w) except -2:
    cdef Py_ssize_t i = 0, size
    cdef int got
    if not PyList_CheckExact(<object>v):
        return c.no
    size = PyList_GET_SIZE(<object>v)
    if size < c.low or size > c.high:
        return c.no
    if c.rest.op == ANYTHING:
        return 1
    while i < PyList_GET_SIZE(<object>v):
        got = run(c.rest, PyList_GET_ITEM(<object>v, i), w)
        if got != 1:
            return got
        i += 1
    return 1


cdef int run_by_kind(Node* c, PyObject* v, Walk* w) except -2:
    """Check a value by the part for its JSON type; types without a part are refused."""
    cdef int at
    if PyUnicode_CheckExact(<object>v):
        at = 0
    elif PyLong_CheckExact(<object>v):
        at = 1
    elif PyFloat_CheckExact(<object>v):
        at = 2
    elif <object>v is True or <object>v is False:
        at = 3
    elif PyList_CheckExact(<object>v):
        at = 4
    elif PyDict_CheckExact(<object>v):
        at = 5
    else:
        return 0
    return c.no if c.parts[at] == NULL else run(c.parts[at], v, w)


cdef bint goes_on(Walk* w) except -1:
    """Begin another round of alternatives, after giving other threads their turn.

    Returns False if there were too many rounds, or if no client waits for the result any more. Raises BudgetSpentError.
    """
    w.left = 0
    if w.rounds >= MAX_ROUNDS:
        return False
    w.rounds += 1
    LOOP_BUDGET.spend(ROUND_UNITS)
    yield_gil_if_due()
    if abandoned():
        w.rounds = MAX_ROUNDS
        return False
    w.left = ALTERNATIVES
    return True


cdef int run_alternatives(Node* c, PyObject* v, Walk* w) except -2:
    cdef int i, got, held = 0, unknown = 0, op = c.op
    for i in range(c.n_parts):
        w.left -= 1
        if w.left <= 0 and not goes_on(w):
            return 0
        got = run(c.parts[i], v, w)
        if op == ALL_OF:
            if got != 1:
                return got
        elif op == ANY_OF and got == 1:
            return 1
        held += got == 1
        unknown += got == 0
    if op == ALL_OF:
        return 1
    if unknown:
        return 0
    if op == NOT:
        return 1 if held == 0 else c.no
    return 1 if held == 1 and op == ONE_OF else c.no
