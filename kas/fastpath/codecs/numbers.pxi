# Conversion of an untyped object's numbers to integers like Go's FromUnstructured. Values without such numbers are shared with the input.
#
# The object has been merged and validated, so its depth is bounded by the request's decoder.


cdef object _LEAST = -(2 ** 63)  # the least int64


def go_numbers(TypeDesc type not None, dict value not None) -> dict:
    """Returns ``value``, an object of ``type``, with its numbers converted to integers like in FromUnstructured: whole floats become
    integers, and integers that are too large lose their upper bits. Parts without such numbers are shared.
    """
    cdef dict out = value, fields = type.by_name
    cdef Py_ssize_t at = 0
    cdef PyObject* name
    cdef PyObject* given
    cdef PyObject* field
    while PyDict_Next(value, &at, &name, &given):
        if PyUnicode_CheckExact(<object>given):
            continue
        field = PyDict_GetItem(fields, <object>name)
        if field == NULL:
            continue
        taken = _taken(<Field>field, <object>given)
        if <PyObject*>taken != given:
            if out is value:
                out = value.copy()
            out[<object>name] = taken
    return out


cdef object _taken(Field field, object value):
    cdef list items = None
    cdef dict members = None
    cdef Py_ssize_t i
    if field.c_card == C_LIST and isinstance(value, list):
        for i in range(PyList_GET_SIZE(value)):
            given = <object>PyList_GET_ITEM(value, i)
            taken = _number(field, given)
            yield_gil(1)
            if taken is not given:
                if items is None:
                    items = (<list>value).copy()
                items[i] = taken
        return value if items is None else items
    if field.c_card == C_MAP and isinstance(value, dict):
        for name, given in (<dict>value).items():
            taken = _number(field, given)
            yield_gil(1)
            if taken is not given:
                if members is None:
                    members = (<dict>value).copy()
                members[name] = taken
        return value if members is None else members
    return _number(field, value)


cdef object _number(Field field, object value):
    cdef long long small
    cdef int overflow = 0
    if PyUnicode_CheckExact(value):
        return value
    if field.kind == K_STRUCT:
        return go_numbers(field.target, value) if isinstance(value, dict) else value
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return value
    if field.kind != K_INT32 and field.kind != K_INT64:
        # Types with their own JSON decoder receive the number's text, which has no fraction then.
        return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 1e21 else value
    if isinstance(value, int):
        small = PyLong_AsLongLongAndOverflow(value, &overflow)
        if overflow == 0 and (field.kind == K_INT64 or INT32_MIN <= small <= INT32_MAX):
            return value
    return _wrapped(value, 31 if field.kind == K_INT32 else 63)


cdef object _wrapped(object value, object bits):
    """The number as a signed integer of that many bits; other values are returned unchanged."""
    if not _LEAST <= value < -_LEAST:
        value = _LEAST  # the result of converting an out-of-range float on amd64
    elif value != int(value):
        return value
    half = 2**bits
    return (int(value) + half) % (2 * half) - half
