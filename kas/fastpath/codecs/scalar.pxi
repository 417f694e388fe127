# Scalars with a canonical text form. A fast check here recognises common canonical texts; all others go to the Python code of
# kas.meta.scalars and kas.meta.quantity, which scheme.py registers through install_scalars().

cdef object _slow_quantity = None
cdef object _slow_time = None
cdef object _slow_micro_time = None
cdef object _slow_duration = None


def install_scalars(quantity, time, micro_time, duration):
    """Registers the full parsers. Each takes the text (quantity: str, int or float) and returns the canonical text, or None for a zero
    time; or raises DecodeError.
    """
    global _slow_quantity, _slow_time, _slow_micro_time, _slow_duration
    _slow_quantity, _slow_time, _slow_micro_time, _slow_duration = quantity, time, micro_time, duration


cdef bint quantity_is_canonical(const char* s, Py_ssize_t n) noexcept:
    """True only for a plain integer with a common suffix that is certainly canonical."""
    cdef Py_ssize_t i = 0
    cdef int64_t v = 0
    if n == 0 or n > 12 or s[0] < 49 or s[0] > 57:
        return n == 1 and s[0] == 48
    while i < n and 48 <= s[i] <= 57:
        v = v * 10 + (s[i] - 48)
        i += 1
    if i > 9:
        return False
    if i == n:
        return v % 1000 != 0
    if i + 1 == n:
        if s[i] == 109 or s[i] == 107 or s[i] == 77 or s[i] == 71:  # m k M G
            return v % 1000 != 0
        return False
    if i + 2 == n and s[i + 1] == 105 and (s[i] == 75 or s[i] == 77 or s[i] == 71):  # Ki Mi Gi
        return v % 1024 != 0
    return False


cdef object canonical_quantity(object v):
    cdef Py_ssize_t n
    cdef const char* s
    if PyUnicode_CheckExact(v):
        s = PyUnicode_AsUTF8AndSize(v, &n)
        if quantity_is_canonical(s, n):
            return v
    return _slow_quantity(v)


cdef inline bint digits_at(const char* s, int a, int b) noexcept:
    cdef int i
    for i in range(a, b):
        if s[i] < 48 or s[i] > 57:
            return False
    return True


cdef inline int two(const char* s, int a) noexcept:
    return (s[a] - 48) * 10 + (s[a + 1] - 48)


cdef inline int days_in(int year, int month) noexcept:
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month == 4 or month == 6 or month == 9 or month == 11 else 31


cdef bint time_is_canonical(const char* s, Py_ssize_t n, bint micro) noexcept:
    """True for RFC 3339 in UTC with exactly the digits that Go writes, a day that exists in its month, and not the zero time."""
    cdef int month
    if n != (27 if micro else 20):
        return False
    if not (digits_at(s, 0, 4) and s[4] == 45 and digits_at(s, 5, 7) and s[7] == 45 and digits_at(s, 8, 10) and s[10] == 84
            and digits_at(s, 11, 13) and s[13] == 58 and digits_at(s, 14, 16) and s[16] == 58 and digits_at(s, 17, 19) and s[n - 1] == 90):
        return False
    if micro and not (s[19] == 46 and digits_at(s, 20, 26)):
        return False
    month = two(s, 5)
    if month < 1 or month > 12 or not 1 <= two(s, 8) <= days_in(two(s, 0) * 100 + two(s, 2), month):
        return False
    if two(s, 11) > 23 or two(s, 14) > 59 or two(s, 17) > 59:
        return False
    return not (s[0] == 48 and s[1] == 48 and s[2] == 48)  # early years, including the zero time, take the slow path


cdef object canonical_time(object v, bint micro):
    cdef Py_ssize_t n
    cdef const char* s = PyUnicode_AsUTF8AndSize(v, &n)
    if time_is_canonical(s, n, micro):
        return v
    return _slow_micro_time(v) if micro else _slow_time(v)


cdef uint8_t B64[256]


cdef void _init_b64() noexcept:
    cdef int i
    for i in range(256):
        B64[i] = 255
    for i in range(26):
        B64[65 + i] = i
        B64[97 + i] = 26 + i
    for i in range(10):
        B64[48 + i] = 52 + i
    B64[43] = 62
    B64[47] = 63

_init_b64()


cdef bint base64_is_canonical(const char* s, Py_ssize_t n) noexcept:
    cdef Py_ssize_t i, end = n
    if n % 4:
        return False
    if n == 0:
        return True
    if s[n - 1] == 61:
        end -= 2 if s[n - 2] == 61 else 1
    for i in range(end):
        if B64[<unsigned char>s[i]] == 255:
            return False
    if end == n - 1:
        return B64[<unsigned char>s[end - 1]] & 3 == 0
    if end == n - 2:
        return B64[<unsigned char>s[end - 1]] & 15 == 0
    return True


def go_base64(str text):
    """Decodes standard base64 like Go's StdEncoding: line breaks are skipped, padding is required, errors name the byte. Raises
    DecodeError.
    """
    cdef bytes raw = text.encode("utf-8", "surrogatepass")
    cdef Py_ssize_t i = 0, n = len(raw), padding
    cdef uint32_t group
    cdef int have
    out = bytearray()
    while True:
        group = 0
        have = 0
        while have < 4:
            while i < n and raw[i] in b"\r\n":
                i += 1
            if i == n:
                if have == 0:
                    return bytes(out)
                raise DecodeError(f"illegal base64 data at input byte {i - have}")
            c = raw[i]
            i += 1
            if B64[<uint8_t>c] != 255:
                group = (group << 6) | B64[<uint8_t>c]
                have += 1
                continue
            if c != 61 or have < 2:
                raise DecodeError(f"illegal base64 data at input byte {i - 1}")
            if have == 2:
                while i < n and raw[i] in b"\r\n":
                    i += 1
                if i == n:
                    raise DecodeError(f"illegal base64 data at input byte {n}")
                if raw[i] != 61:
                    raise DecodeError(f"illegal base64 data at input byte {i - 1}")
                i += 1
            while i < n and raw[i] in b"\r\n":
                i += 1
            if i < n:
                raise DecodeError(f"illegal base64 data at input byte {i}")
            if have == 2:
                out.append((group >> 4) & 255)
            else:
                out.append((group >> 10) & 255)
                out.append((group >> 2) & 255)
            return bytes(out)
        out += bytes(((group >> 16) & 255, (group >> 8) & 255, group & 255))


cdef object canonical_bytes(object v):
    cdef Py_ssize_t n
    cdef const char* s = PyUnicode_AsUTF8AndSize(v, &n)
    if base64_is_canonical(s, n):
        return v
    return base64.b64encode(go_base64(v)).decode()
