# Decodes bytes that may not be valid UTF-8 as Go does.

cdef Py_ssize_t utf8_length(const unsigned char* p, Py_ssize_t n) noexcept nogil:
    """The number of bytes of the character that begins here; 0 if none does (RFC 3629: no surrogates, no overlong forms)."""
    cdef unsigned char c = p[0]
    cdef Py_ssize_t length, i
    if c < 0x80:
        return 1
    if c < 0xC2 or c > 0xF4:
        return 0
    length = 2 if c < 0xE0 else 3 if c < 0xF0 else 4
    if n < length:
        return 0
    for i in range(1, length):
        if p[i] & 0xC0 != 0x80:
            return 0
    if (c == 0xE0 and p[1] < 0xA0) or (c == 0xED and p[1] > 0x9F) or (c == 0xF0 and p[1] < 0x90) or (c == 0xF4 and p[1] > 0x8F):
        return 0
    return length


cdef Py_ssize_t utf8_mend(const unsigned char* p, Py_ssize_t n, char* out) noexcept nogil:
    """Copies valid characters, and writes U+FFFD for each invalid byte. Returns the number of bytes written, at most three times ``n``."""
    cdef Py_ssize_t i = 0, o = 0, length
    while i < n:
        length = utf8_length(p + i, n - i)
        if length:
            memcpy(out + o, p + i, length)
            i += length
            o += length
        else:
            memcpy(out + o, b"\xef\xbf\xbd", 3)
            i += 1
            o += 3
    return o


def utf8_text(bytes raw not None):
    """Decodes text as Go does: each invalid byte becomes U+FFFD, where Python's ``replace`` uses one for an incomplete sequence."""
    cdef Py_ssize_t n = PyBytes_GET_SIZE(raw), size
    cdef const unsigned char* p = <const unsigned char*>PyBytes_AS_STRING(raw)
    cdef char* out
    try:
        return PyUnicode_DecodeUTF8(<const char*>p, n, NULL)
    except UnicodeDecodeError:
        pass
    out = <char*>malloc(3 * n)
    if out == NULL:
        raise MemoryError
    try:
        with nogil:
            size = utf8_mend(p, n, out)
        return PyUnicode_DecodeUTF8(out, size, NULL)
    finally:
        free(out)
