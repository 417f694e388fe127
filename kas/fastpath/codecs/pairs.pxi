# Parses JSON text with every object as a list of pairs, repeats included. The text has been parsed before and is valid; an invalid one ends
# in an error, and nothing outside the text is read (see plain.pxi).

cdef enum:
    PAIRS_DEPTH = 1000    # as deep as the callers recurse


class Pairs(list):
    """A JSON object as a list of (key, value) in order, repeats included."""

    __slots__ = ()


cdef object pairs_number(Cursor* c):
    cdef const char* p = c.at
    cdef bint whole = True
    cdef str shown
    while c.at < c.end and c.at[0] != 44 and c.at[0] != 93 and c.at[0] != 125 and c.at[0] > 32:
        if c.at[0] == 46 or c.at[0] == 101 or c.at[0] == 69:
            whole = False
        c.at += 1
    if whole and p[0] != 45 and c.at - p <= INT_DIGITS:  # integer() does not handle -0
        c.at = p
        return integer(c)
    shown = p[:c.at - p].decode("ascii")
    return int(shown) if whole and c.at - p < 25 else float(shown)


cdef object pairs_value(Cursor* c, int depth):
    cdef object out, key
    cdef bint first = True
    if depth > PAIRS_DEPTH:
        raise RecursionError
    yield_gil(1)
    if c.at[0] == 123:
        c.at += 1
        out = Pairs()
        while more(c, 125, first):
            first = False
            key = plain_key(c)
            take_c(c, 58)
            skip_space(c)
            PyList_Append(out, (key, pairs_value(c, depth + 1)))
        return out
    if c.at[0] == 91:
        c.at += 1
        out = []
        while more(c, 93, first):
            first = False
            PyList_Append(out, pairs_value(c, depth + 1))
        return out
    if c.at[0] == 34:
        return text(c)
    if c.at[0] == 116:
        word(c, b"true", 4)
        return True
    if c.at[0] == 102:
        word(c, b"false", 5)
        return False
    return None if is_null(c) else pairs_number(c)


def read_pairs(bytes data not None):
    """Parses a JSON text with every object as ``Pairs``. Integers of 25 digits and more become floats. Raises RecursionError when it is
    nested too deeply, ValueError when it is invalid.
    """
    cdef Cursor c
    cdef bytes whole = clean_text(data)
    c.at = PyBytes_AS_STRING(whole)
    c.end = c.at + PyBytes_GET_SIZE(whole)
    try:
        skip_space(&c)
        value = pairs_value(&c, 0)
        skip_space(&c)
        if c.at != c.end:
            raise GIVE_UP
    except _GiveUp:
        raise DecodeError("invalid JSON") from None
    return value
