# Estimates the encoded size of decoded JSON. Benchmark: bench/webhook_cost.py; every write that may have to be offloaded is measured (6 µs
# for a small ConfigMap in Python, 0.6 here).


def outweighs(value, Py_ssize_t least) -> bool:
    """Whether decoded JSON would take about ``least`` bytes or more when encoded. The walk stops as soon as that is known."""
    cdef Py_ssize_t left = least
    cdef list found = [value]
    cdef object one, member
    cdef PyObject* item
    cdef Py_ssize_t at
    while left > 0 and found:
        one = found.pop()
        if isinstance(one, str):
            left -= PyUnicode_GET_LENGTH(one)
        elif isinstance(one, dict):
            left -= 4 * len(<dict>one) + 2
            at = 0
            while left > 0 and PyDict_Next(<dict>one, &at, NULL, &item):
                if isinstance(<object>item, str):
                    left -= PyUnicode_GET_LENGTH(<object>item)
                else:
                    found.append(<object>item)
        elif isinstance(one, (list, tuple)):
            left -= 4 * len(one) + 2
            if left > 0:
                for member in one:
                    found.append(member)
        else:
            left -= 4
    return left <= 0
