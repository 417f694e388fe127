# Scans of raw JSON without parsing it.

def has_digits(bytes data not None, Py_ssize_t least):
    """Whether the text contains ``least`` or more consecutive digits. It reads about one byte in ``least`` when digits are rare."""
    cdef const char* s = PyBytes_AS_STRING(data)
    cdef Py_ssize_t n = PyBytes_GET_SIZE(data), start = 0, i
    if least < 1:
        raise ValueError("least must be positive")
    while start + least <= n:
        # Scans backwards from the last byte of a possible run: no run spans a byte that is not a digit.
        i = start + least - 1
        while i >= start and 48 <= s[i] <= 57:
            i -= 1
        if i < start:
            return True
        start = i + 1
    return False


cdef enum:
    LIKE_DEPTH = 500    # both parsers support more
    LIKE_KEY = 1000     # libyaml stops searching for the colon after 1024
    LIKE_DIGITS = 18    # always fits an int64


def reads_alike(bytes data not None):
    """Whether a JSON document certainly has the same meaning when read as YAML (go-yaml v2, libyaml).

    True for a single line of printable ASCII with whole numbers and simple escapes. It checks neither validity nor repeated keys.
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
    """The offset after the closing quote of the string whose content begins at ``i``."""
    while i < n:
        if p[i] == 92:
            i += 2
        elif p[i] == 34:
            return i + 1
        else:
            i += 1
    return n


cdef Py_ssize_t _value_end(const char* p, Py_ssize_t i, Py_ssize_t n) noexcept nogil:
    """The offset after the container or scalar that begins at ``i``."""
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
    """Replaces the value of every member with this name by ``null`` in compact, valid JSON, for readers that need little of a large object.
    """
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
