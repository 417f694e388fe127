# Two functions that inspect the objects of nearly every write. In Python each cost fifty times as much (bench/instructions.py, create-pod
# and update). The callers supply rows and names; any key may be absent from the objects.


def any_there(dict node not None, tuple rows not None) -> bool:
    """Whether any field of a tree is present and not null.

    A row is (field, kind, rows below); the kind is ``.`` for an object, ``[]`` for a list of objects, ``{}`` for a map of objects, and ""
    at the end of the tree.
    """
    return _any_there(node, rows)


cdef bint _any_there(dict node, tuple rows) except -1:
    cdef tuple row
    cdef str kind
    cdef PyObject* found
    for row in rows:
        found = PyDict_GetItem(node, row[0])
        if found == NULL or <object>found is None:
            continue
        kind = <str>row[1]
        if kind == "":
            return True
        if kind == ".":
            if _any_there(<dict?><object>found, <tuple>row[2]):
                return True
            continue
        for item in (<object>found if kind == "[]" else (<dict?><object>found).values()):
            if item is not None and _any_there(<dict?>item, <tuple>row[2]):
                return True
    return False


def alike(dict one not None, dict other not None, tuple names not None) -> bool:
    """Whether each of the names is equal in both objects or absent from both."""
    cdef PyObject* a
    cdef PyObject* b
    for name in names:
        a, b = PyDict_GetItem(one, name), PyDict_GetItem(other, name)
        if a != b and (a == NULL or b == NULL or <object>a != <object>b):
            return False
    return True
