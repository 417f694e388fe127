# Finds the first syntax error in a JSON text, exactly as Go's encoding/json reports it. It runs without the GIL, since it touches no Python
# objects.

cdef enum:
    SYNTAX_END = 0x20      # Go's scanner is fed a blank at the end of the text, to complete a pending value
    SYNTAX_DEPTH = 10000   # encoding/json maxNestingDepth


cdef struct Syntax:
    const char* s
    Py_ssize_t n
    Py_ssize_t at
    const char* context  # the error's text
    int byte             # the invalid byte; -1: the text names none


cdef const char* AT_THE_END = b"unexpected end of JSON input"


cdef inline int syntax_byte(Syntax* x) noexcept nogil:
    return <unsigned char>x.s[x.at] if x.at < x.n else SYNTAX_END


cdef inline int syntax_space(Syntax* x) noexcept nogil:
    """Skips white space; returns the next byte."""
    while x.at < x.n and (x.s[x.at] == 32 or x.s[x.at] == 9 or x.s[x.at] == 10 or x.s[x.at] == 13):
        x.at += 1
    return syntax_byte(x)


cdef int syntax_fail(Syntax* x, const char* context) noexcept nogil:
    x.byte, x.context = syntax_byte(x), context
    return -1


cdef int syntax_fail_or_end(Syntax* x, const char* context) noexcept nogil:
    """Reports an error where white space is allowed: there, the blank at the end has no effect."""
    if x.at < x.n:
        return syntax_fail(x, context)
    x.byte, x.context = -1, AT_THE_END
    return -1


cdef int syntax_string(Syntax* x) noexcept nogil:
    cdef uint64_t seen = 0
    cdef int c, i
    x.at += 1
    while True:
        x.at += kas_unquoted(x.s + x.at, x.s + x.n, &seen)
        while x.at < x.n and <unsigned char>x.s[x.at] >= 0x20 and x.s[x.at] != 34 and x.s[x.at] != 92:
            x.at += 1
        if x.at >= x.n:
            x.byte, x.context = -1, AT_THE_END
            return -1
        c = <unsigned char>x.s[x.at]
        if c == 34:
            x.at += 1
            return 0
        if c != 92:
            return syntax_fail(x, b"in string literal")
        x.at += 1
        c = syntax_byte(x)
        if c == 117:
            for i in range(4):
                x.at += 1
                c = syntax_byte(x)
                if not (48 <= c <= 57 or 97 <= c <= 102 or 65 <= c <= 70):
                    return syntax_fail(x, b"in \\u hexadecimal character escape")
        elif c == 0 or memchr(b'"\\/bfnrt', c, 8) == NULL:
            return syntax_fail(x, b"in string escape code")
        x.at += 1


cdef bint syntax_digits(Syntax* x) noexcept nogil:
    cdef Py_ssize_t start = x.at
    while x.at < x.n and 48 <= x.s[x.at] <= 57:
        x.at += 1
    return x.at > start


cdef int syntax_number(Syntax* x) noexcept nogil:
    cdef int c
    if syntax_byte(x) == 45:
        x.at += 1
        c = syntax_byte(x)
        if not 48 <= c <= 57:
            return syntax_fail(x, b"in numeric literal")
    if syntax_byte(x) == 48:
        x.at += 1
    else:
        syntax_digits(x)
    if syntax_byte(x) == 46:
        x.at += 1
        if not syntax_digits(x):
            return syntax_fail(x, b"after decimal point in numeric literal")
    c = syntax_byte(x)
    if c == 101 or c == 69:
        x.at += 1
        c = syntax_byte(x)
        if c == 43 or c == 45:
            x.at += 1
        if not syntax_digits(x):
            return syntax_fail(x, b"in exponent of numeric literal")
    return 0


cdef int syntax_word(Syntax* x, const char* word, const char** contexts) noexcept nogil:
    """Checks the rest of a literal; ``contexts`` holds the error text of each letter."""
    cdef int i = 0
    while word[i]:
        x.at += 1
        if syntax_byte(x) != word[i]:
            return syntax_fail(x, contexts[i])
        i += 1
    x.at += 1
    return 0


cdef const char** IN_TRUE = [b"in literal true (expecting 'r')", b"in literal true (expecting 'u')", b"in literal true (expecting 'e')"]
cdef const char** IN_FALSE = [
    b"in literal false (expecting 'a')", b"in literal false (expecting 'l')", b"in literal false (expecting 's')",
    b"in literal false (expecting 'e')",
]
cdef const char** IN_NULL = [b"in literal null (expecting 'u')", b"in literal null (expecting 'l')", b"in literal null (expecting 'l')"]


cdef int syntax_scalar(Syntax* x, int c) noexcept nogil:
    if c == 34:
        return syntax_string(x)
    if c == 45 or 48 <= c <= 57:
        return syntax_number(x)
    if c == 116:
        return syntax_word(x, b"rue", IN_TRUE)
    if c == 102:
        return syntax_word(x, b"alse", IN_FALSE)
    if c == 110:
        return syntax_word(x, b"ull", IN_NULL)
    return syntax_fail_or_end(x, b"looking for beginning of value")


cdef int syntax_key(Syntax* x) noexcept nogil:
    """Checks a key and its colon."""
    if syntax_space(x) != 34:
        return syntax_fail_or_end(x, b"looking for beginning of object key string")
    if syntax_string(x) < 0:
        return -1
    if syntax_space(x) != 58:
        return syntax_fail_or_end(x, b"after object key")
    x.at += 1
    return 0


cdef int syntax_document(Syntax* x) noexcept nogil:
    cdef char stack[SYNTAX_DEPTH]
    cdef int depth = 0, c
    while True:
        # Expect a value.
        c = syntax_space(x)
        if c == 123 or c == 91:
            x.at += 1
            if depth == SYNTAX_DEPTH:
                x.byte, x.context = c, b"exceeded max depth"
                return -1
            stack[depth] = <char>c
            depth += 1
            if not (syntax_space(x) == c + 2 and x.at < x.n):
                if c == 123 and syntax_key(x) < 0:
                    return -1
                continue
            x.at += 1
            depth -= 1
        elif syntax_scalar(x, c) < 0:
            return -1
        # After a value.
        while True:
            c = syntax_space(x)
            if depth == 0:
                return syntax_fail(x, b"after top-level value") if x.at < x.n else 0
            if c == 44 and x.at < x.n:
                x.at += 1
                if stack[depth - 1] == 123 and syntax_key(x) < 0:
                    return -1
                break
            if c != stack[depth - 1] + 2 or x.at >= x.n:
                return syntax_fail_or_end(x, b"after object key:value pair" if stack[depth - 1] == 123 else b"after array element")
            x.at += 1
            depth -= 1


def syntax_fault(bytes data not None):
    """Returns (the invalid byte, -1 if none is named; the error text), or None for well-formed JSON."""
    cdef Syntax x
    cdef int found
    x.s, x.n, x.at = PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), 0
    x.byte, x.context = -1, b""
    with nogil:
        found = syntax_document(&x)
    return (x.byte, (<bytes>x.context).decode("ascii")) if found < 0 else None
