# Raw JSON looked at for repeated object keys, which a parsed dict can no longer show. One pass without building objects; every key
# goes into one hash table under the number of its object, so the work is linear whatever the document.
#
# The document has been parsed before (gojson), so it is valid JSON; the scan still never reads outside the text.

cdef struct KeySlot:
    uint32_t object  # 0 is free
    uint32_t hash
    int32_t start
    int32_t length


cdef struct KeyTable:
    KeySlot* slots
    KeySlot* near  # not to be freed
    uint32_t mask
    uint32_t used


cdef struct Frame:
    uint32_t object     # 0 for arrays
    int32_t key_start   # current key of an object, for paths
    int32_t key_stop
    int32_t index       # current index of an array
    bint reported


# What most documents need lies on the C stack: a block large enough for the deepest costs a system call each time.
cdef enum:
    NEAR_DEPTH = 64
    NEAR_KEYS = 256
    MAX_SCAN_DEPTH = 10000

cdef uint32_t _hash_seed = <uint32_t>(hash("kas") & 0x7FFFFFFF)


cdef int table_grow(KeyTable* t) except -1:
    cdef uint32_t size = (t.mask + 1) * 2, i, at
    cdef KeySlot* slots = <KeySlot*>malloc(size * sizeof(KeySlot))
    if slots == NULL:
        raise MemoryError
    memset(slots, 0, size * sizeof(KeySlot))
    for i in range(t.mask + 1):
        if t.slots[i].object:
            at = t.slots[i].hash & (size - 1)
            while slots[at].object:
                at = (at + 1) & (size - 1)
            slots[at] = t.slots[i]
    if t.slots != t.near:
        free(t.slots)
    t.slots = slots
    t.mask = size - 1
    return 0


cdef int table_add(KeyTable* t, const char* s, uint32_t object, int32_t start, int32_t length) except -1:
    """1 when the object already has the key, else 0 and the key is noted."""
    cdef uint32_t h = _hash_seed ^ (object * <uint32_t>2654435761U), at
    cdef int32_t i
    for i in range(length):
        h = (h ^ <unsigned char>s[start + i]) * <uint32_t>16777619
    h ^= h >> 15
    at = h & t.mask
    while t.slots[at].object:
        if (t.slots[at].hash == h and t.slots[at].object == object and t.slots[at].length == length
                and memcmp(s + t.slots[at].start, s + start, length) == 0):
            return 1
        at = (at + 1) & t.mask
    t.slots[at].object = object
    t.slots[at].hash = h
    t.slots[at].start = start
    t.slots[at].length = length
    t.used += 1
    if t.used * 2 > t.mask:
        table_grow(t)
    return 0


cdef str key_text(const char* s, int32_t start, int32_t stop):
    cdef bytes raw = s[start:stop]
    cdef bytes out
    if b"\\" in raw:
        out = bytes(len(raw) + 4)
        return _utf8_text(out[:unescape(PyBytes_AS_STRING(raw), len(raw), PyBytes_AS_STRING(out))])
    return _utf8_text(raw)


cdef str frame_path(const char* s, Frame* stack, int depth):
    cdef list parts = []
    cdef int i
    for i in range(depth):
        if stack[i].object:
            parts.append("." + key_text(s, stack[i].key_start, stack[i].key_stop))
        else:
            parts.append(f"[{stack[i].index}]")
    text = "".join(parts)
    return text[1:] if text.startswith(".") else text


def duplicate_fields(bytes data not None):
    """Paths ("spec.containers[0].image") of object keys that occur again in the same object, in document order, at most 100.

    Each path is named once. Keys are compared as written, unless one has escapes: then the document is looked at as text again.
    """
    cdef const char* s = PyBytes_AS_STRING(data)
    cdef Py_ssize_t n = PyBytes_GET_SIZE(data), i = 0, stop
    cdef Frame near_stack[NEAR_DEPTH]
    cdef KeySlot near_keys[NEAR_KEYS]
    cdef Frame* stack = near_stack
    cdef Frame* larger
    cdef KeyTable table
    cdef int depth = 0, room = NEAR_DEPTH
    cdef uint32_t objects = 0
    cdef bint want_key = False
    cdef char c, escaped
    cdef list found = []
    cdef set seen = set()
    if n > 0x7FFF0000:
        raise DecodeError("the document is too large")
    if memchr(s, 92, n) != NULL and _has_escaped_key(data):
        return _duplicate_fields_slow(data)
    table.mask = NEAR_KEYS - 1
    table.used = 0
    table.slots = table.near = near_keys
    memset(near_keys, 0, sizeof(near_keys))
    try:
        while i < n:
            c = s[i]
            if c == 34:
                stop = scan_string(s, i + 1, n, &escaped)
                if stop < 0:
                    return found
                if want_key:
                    want_key = False
                    stack[depth - 1].key_start = <int32_t>(i + 1)
                    stack[depth - 1].key_stop = <int32_t>stop
                    if table_add(&table, s, stack[depth - 1].object, <int32_t>(i + 1), <int32_t>(stop - i - 1)) and len(found) < 100:
                        path = frame_path(s, stack, depth)
                        if path not in seen:
                            seen.add(path)
                            found.append(path)
                i = stop + 1
                continue
            i += 1
            if c == 44:
                if depth and stack[depth - 1].object:
                    want_key = True
                elif depth:
                    stack[depth - 1].index += 1
            elif c == 123 or c == 91:
                if depth == room:
                    if depth == MAX_SCAN_DEPTH:
                        return found
                    larger = <Frame*>malloc(MAX_SCAN_DEPTH * sizeof(Frame))
                    if larger == NULL:
                        raise MemoryError
                    memcpy(larger, stack, depth * sizeof(Frame))
                    stack, room = larger, MAX_SCAN_DEPTH
                if c == 123:
                    objects += 1
                    stack[depth].object = objects
                    want_key = True
                else:
                    stack[depth].object = 0
                    want_key = False
                stack[depth].index = 0
                stack[depth].key_start = stack[depth].key_stop = 0
                depth += 1
            elif c == 125 or c == 93:
                want_key = False
                if depth:
                    depth -= 1
        return found
    finally:
        if stack != near_stack:
            free(stack)
        if table.slots != near_keys:
            free(table.slots)


def has_digits(bytes data not None, Py_ssize_t least):
    """Whether ``least`` digits or more follow one another anywhere in the text. Looks at one byte of ``least`` where there are few."""
    cdef const char* s = PyBytes_AS_STRING(data)
    cdef Py_ssize_t n = PyBytes_GET_SIZE(data), start = 0, i
    if least < 1:
        raise ValueError("least must be positive")
    while start + least <= n:
        # Backwards from the last of them: whatever is no digit there, no run of them goes across it.
        i = start + least - 1
        while i >= start and 48 <= s[i] <= 57:
            i -= 1
        if i < start:
            return True
        start = i + 1
    return False


cdef bint _has_escaped_key(bytes data):
    """Whether some key is spelled with an escape that has another spelling (\\u0061 for a, \\/ for /)."""
    cdef const char* s = PyBytes_AS_STRING(data)
    cdef Py_ssize_t n = PyBytes_GET_SIZE(data), i = 0, stop, k
    cdef char escaped
    cdef bint ambiguous
    while i < n:
        if s[i] == 34:
            stop = scan_string(s, i + 1, n, &escaped)
            if stop < 0:
                return False
            k = i + 1
            i = stop + 1
            if escaped:
                ambiguous = False
                while k < stop:
                    if s[k] == 92:
                        k += 1
                        if s[k] == 117 or s[k] == 47:
                            ambiguous = True
                            break
                    k += 1
                if not ambiguous:
                    continue
                while i < n and (s[i] == 32 or s[i] == 10 or s[i] == 13 or s[i] == 9):
                    i += 1
                if i < n and s[i] == 58:
                    return True
            continue
        i += 1
    return False


def _duplicate_fields_slow(bytes data):
    """As duplicate_fields, with keys compared as text: for documents whose keys use escapes."""
    found = []

    def pairs(items):
        node = _Pairs(items)
        return node

    def walk(node, path):
        if isinstance(node, _Pairs):
            seen = set()
            for k, v in node.items:
                here = f"{path}.{k}" if path else k
                if k in seen and here not in found and len(found) < 100:
                    found.append(here)
                seen.add(k)
                walk(v, here)
        elif isinstance(node, list):
            for i, v in enumerate(node):
                walk(v, f"{path}[{i}]")

    try:
        walk(json.loads(_utf8_text(data), object_pairs_hook=pairs), "")
    except RecursionError:
        raise DecodeError("exceeded max depth") from None
    except ValueError:
        return []  # no JSON: the parser that runs before this has said so
    return found


class _Pairs:
    __slots__ = ("items",)

    def __init__(self, items):
        self.items = items


cdef enum:
    LIKE_DEPTH = 500    # both parsers go deeper
    LIKE_KEY = 1000     # libyaml gives up looking for the colon after 1024
    LIKE_DIGITS = 18    # an int64 whatever the digits


def reads_alike(bytes data not None):
    """Whether a JSON document certainly means the same when it is read as YAML (go-yaml v2, libyaml).

    A single line of printable ASCII with whole numbers and plain escapes; whether it is valid and whether keys repeat is not looked at.
    """
    cdef const char* s = PyBytes_AS_STRING(data)
    cdef Py_ssize_t n = PyBytes_GET_SIZE(data), i = 0, start, digits
    cdef int depth = 0
    cdef char c
    while n > 0 and (s[n - 1] == 10 or s[n - 1] == 32):
        n -= 1
    if n == 0 or s[0] != 123:
        return False
    while i < n:
        c = s[i]
        if c == 34:
            start = i
            i += 1
            while True:
                i += kas_printable(s + i, n - i)
                if i >= n or s[i] == 34:
                    break
                if s[i] != 92:
                    return False
                i += 1
                if i >= n or memchr(b'"\\bfnrt', s[i], 7) == NULL:
                    return False
                i += 1
            i += 1
            while i < n and s[i] == 32:
                i += 1
            if i < n and s[i] == 58 and i - start > LIKE_KEY:
                return False
            continue
        if c == 45 or (c >= 48 and c <= 57):
            start = i
            i += 1
            while i < n and s[i] >= 48 and s[i] <= 57:
                i += 1
            digits = i - start
            if digits > LIKE_DIGITS or (c == 45 and (digits == 1 or s[start + 1] == 48)):
                return False
            if i < n and s[i] != 44 and s[i] != 125 and s[i] != 93 and s[i] != 32:
                return False
            continue
        if c == 123 or c == 91:
            depth += 1
            if depth > LIKE_DEPTH:
                return False
        elif c == 125 or c == 93:
            depth -= 1
        elif not (c == 44 or c == 58 or c == 32 or (c >= 97 and c <= 122)):
            return False
        i += 1
    return True


cdef Py_ssize_t _string_end(const char* p, Py_ssize_t i, Py_ssize_t n) noexcept nogil:
    """Behind the closing quote of the string whose text begins at ``i``."""
    while i < n:
        if p[i] == 92:
            i += 2
        elif p[i] == 34:
            return i + 1
        else:
            i += 1
    return n


cdef Py_ssize_t _value_end(const char* p, Py_ssize_t i, Py_ssize_t n) noexcept nogil:
    """Behind the value that begins at ``i``, a container or a scalar."""
    cdef int depth = 0
    while i < n:
        if p[i] == 34:
            i = _string_end(p, i + 1, n)
            if depth == 0:
                return i
            continue
        if p[i] == 123 or p[i] == 91:
            depth += 1
        elif p[i] == 125 or p[i] == 93:
            depth -= 1
            if depth < 0:
                return i
            if depth == 0:
                return i + 1
        elif depth == 0 and p[i] == 44:
            return i
        i += 1
    return n


def without_member(bytes data not None, bytes name not None):
    """Compact, valid JSON with ``null`` as the value of every member of that name, for those who need little of a large object."""
    cdef const char* p = PyBytes_AS_STRING(data)
    cdef const char* q
    cdef const char* wanted = PyBytes_AS_STRING(name)
    cdef Py_ssize_t n = PyBytes_GET_SIZE(data), m = PyBytes_GET_SIZE(name), i = 0, start = 0, end
    cdef list out = []
    while i < n:
        q = <const char*>memchr(p + i, 34, n - i)
        if q == NULL:
            break
        i = q - p + 1
        end = _string_end(p, i, n)
        if end - i == m + 1 and end < n and p[end] == 58 and memcmp(p + i, wanted, m) == 0:
            out.append(data[start:end + 1])
            out.append(b"null")
            end = start = _value_end(p, end + 1, n)
        i = end
    out.append(data[start:])
    return b"".join(out)
