# Sorting of lists that may be long.

cdef enum:
    SORTED_AT_ONCE = 4096   # about a millisecond


cdef list merged_in_turns(list a, list b):
    cdef list out = []
    cdef Py_ssize_t i = 0, k = 0, n = PyList_GET_SIZE(a), m = PyList_GET_SIZE(b)
    while i < n and k < m:
        yield_gil(1)
        if b[k] < a[i]:
            out.append(b[k])
            k += 1
        else:
            out.append(a[i])
            i += 1
    out += a[i:]
    out += b[k:]
    return out


cdef list sort_in_turns(list keys, object key=None):
    """``sorted(keys, key=key)``; a long list is sorted in pieces that are merged pairwise, with GIL checks in between. ``keys`` itself may
    be modified.
    """
    cdef list pieces, merged, piece
    cdef Py_ssize_t i
    if len(keys) <= SORTED_AT_ONCE:
        keys.sort(key=key)
        return keys
    if key is not None:
        keys = [(key(k), i, k) for i, k in enumerate(keys)]
    pieces = [keys[i:i + SORTED_AT_ONCE] for i in range(0, len(keys), SORTED_AT_ONCE)]
    for piece in pieces:
        piece.sort()
        yield_gil_if_due()
    while len(pieces) > 1:
        merged = []
        for i in range(0, len(pieces), 2):
            merged.append(merged_in_turns(pieces[i], pieces[i + 1]) if i + 1 < len(pieces) else pieces[i])
        pieces = merged
    return pieces[0] if key is None else [k for _, _, k in pieces[0]]
