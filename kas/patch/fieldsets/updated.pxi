# A fast path for managedFields after a common update: all entries have the request's version and fit its schema, and the client did not
# send other entries. ``kas.patch.fieldmanager.updating`` defines the result and handles everything else.

cdef enum:
    FEW_MANAGERS = 9  # one more would need capping


cdef inline str _said(dict entry, str name):
    """Return a string of an entry, "" if absent, None if it is not a string."""
    cdef PyObject *p = PyDict_GetItem(entry, name)
    if p == NULL:
        return ""
    return <str>p if PyUnicode_CheckExact(<object>p) else None


cdef list _entries(dict obj):
    """Return the managedFields of an object, None if they are absent or not a list."""
    cdef PyObject *p = PyDict_GetItem(obj, "metadata")
    if p == NULL or not PyDict_CheckExact(<object>p):
        return None
    p = PyDict_GetItem(<object>p, "managedFields")
    return <list>p if p != NULL and PyList_CheckExact(<object>p) else None


cdef bint _usual(Node n, list entries, str api_version) except -1:
    """Whether the fast path can use the entries as they are."""
    cdef Py_ssize_t i, size = PyList_GET_SIZE(entries)
    cdef dict entry
    cdef PyObject *fields
    cdef set names = set() if size > 1 else None
    if not 0 < size <= FEW_MANAGERS:
        return False
    for i in range(size):
        if not PyDict_CheckExact(<object>PyList_GET_ITEM(entries, i)):
            return False
        entry = <dict>PyList_GET_ITEM(entries, i)
        manager, operation, subresource = _said(entry, "manager"), _said(entry, "operation"), _said(entry, "subresource")
        if manager is None or subresource is None or _said(entry, "time") is None or operation not in ("Update", "Apply"):
            return False
        if _said(entry, "apiVersion") != api_version or _said(entry, "fieldsType") != "FieldsV1":
            return False
        fields = PyDict_GetItem(entry, "fieldsV1")
        if fields == NULL or not is_set(<object>fields) or reconcile(n, <dict>fields) is not <object>fields:
            return False
        if names is not None:
            names.add((manager, operation, subresource))
    return names is None or len(names) == size


def updated(Node n, dict live, dict new, str api_version, str manager, str subresource, str now, dict stripped, dict reset, write, order):
    """Return the entries after an update by ``manager``.

    The result is ``live``'s own list if no entry changes, and None if this fast path does not apply. ``stripped`` is the set of fields that
    no manager owns and ``reset`` the fields that the endpoint resets; ``write`` makes an entry and ``order`` returns its sort key. Raises
    Mismatch.
    """
    cdef list entries = _entries(live), sent = _entries(new), out = []
    cdef dict changed, removed, taken, fields, left, entry
    cdef bint own, found = False, other = False
    cdef Py_ssize_t i
    if entries is None or not _usual(n, entries, api_version):
        return None
    if not subresource and sent is not None and sent is not entries and not deep_eq(sent, entries):
        return None
    changed, removed = compare(n, live, new)
    if reset:
        changed, removed = recursive_difference(changed, reset), recursive_difference(removed, reset)
    taken = difference(changed, stripped)
    for i in range(PyList_GET_SIZE(entries)):
        entry = <dict>PyList_GET_ITEM(entries, i)
        fields = left = <dict>PyDict_GetItem(entry, "fieldsV1")
        name, operation, part = _said(entry, "manager"), _said(entry, "operation"), _said(entry, "subresource")
        own = operation == "Update" and name == manager and part == subresource
        if removed:
            left = difference(left, removed)
        if changed and (not own or taken is not changed):
            left = difference(left, changed)
        if own:
            found = True
            if taken:  # usually it owned them all already, and ``union`` returns the stored set
                out.append(write(name, operation, api_version, now, union(left, taken) if left else taken, part))
                other = True
                continue
        if left is fields and left:
            out.append(entry)
            continue
        other = True
        if left:
            out.append(write(name, operation, api_version, _said(entry, "time"), left, part))
    if taken and not found:
        out.append(write(manager, "Update", api_version, now, taken, subresource))
        other = True
    if not other:
        return entries
    if len(out) > 1:
        out.sort(key=order)
    return out
