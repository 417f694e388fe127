"""Computations on containers in every write of a pod: their defaults and the quality-of-service class.

Input is a decoded document of any shape; only ``default_containers`` changes anything. ``quality_of_service`` leaves quantities that it
cannot parse to the Python implementation in ``kas.kinds.core.pod.qos``.
"""

from cpython.dict cimport PyDict_GetItem, PyDict_Next
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from libc.stdint cimport INT64_MAX

from kas.checks._values cimport ascii_text, milli

cdef extern from "Python.h":
    bint PyDict_CheckExact(object o)
    bint PyList_CheckExact(object o)


cdef inline PyObject* get(dict d, object key):
    return PyDict_GetItem(d, key)


cdef inline dict as_dict(PyObject* v):
    """Return the value as a dict, None if it is absent or not a dict."""
    return <dict><object>v if v != NULL and PyDict_CheckExact(<object>v) else None


cdef int add_up(PyObject* v, Need* total):
    """Add up the CPU and memory of a resource list; return how many of the two it names, -1 to leave it to Python."""
    cdef dict amounts
    cdef int64_t n
    cdef int found = 0
    if v == NULL or <object>v is None:
        return 0
    amounts = as_dict(v)
    if amounts is None:
        return -1
    v = get(amounts, "cpu")
    if v != NULL:
        n = milli(<object>v)
        if n < 0 or n > INT64_MAX - total.cpu:
            return -1
        total.cpu += n
        found += n > 0
    v = get(amounts, "memory")
    if v != NULL:
        n = milli(<object>v)
        if n < 0 or n > INT64_MAX - total.memory:
            return -1
        total.memory += n
        found += n > 0
    return found


def quality_of_service(containers, init):
    """Return the class of a pod without pod-level resources, from its containers; None to leave it to Python."""
    cdef Py_ssize_t i
    cdef dict container, resources
    cdef PyObject* v
    cdef Need requests = Need(0, 0), limits = Need(0, 0)
    cdef bint guaranteed = True
    cdef int found
    for items in (containers, init):
        if items is None:
            continue
        if not PyList_CheckExact(items):
            return None
        for i in range(PyList_GET_SIZE(items)):
            container = as_dict(PyList_GET_ITEM(items, i))
            if container is None:
                return None
            v = get(container, "resources")
            if v == NULL or <object>v is None:
                guaranteed = False
                continue
            resources = as_dict(v)
            if resources is None or add_up(get(resources, "requests"), &requests) < 0:
                return None
            found = add_up(get(resources, "limits"), &limits)
            if found < 0:
                return None
            guaranteed = guaranteed and found == 2
    if not (requests.cpu or requests.memory or limits.cpu or limits.memory):
        return "BestEffort"
    return "Guaranteed" if guaranteed and requests.cpu == limits.cpu and requests.memory == limits.memory else "Burstable"


cdef bint is_fine(PyObject* v):
    """Whether any amount of a resource list is finer than a thousandth, which canonical text shows by its suffix."""
    cdef Py_ssize_t at = 0, n = 0
    cdef const char* p = NULL
    cdef PyObject* k
    cdef PyObject* text
    if v == NULL or not PyDict_CheckExact(<object>v):
        return False
    while PyDict_Next(<object>v, &at, &k, &text):
        if ascii_text(<object>text, &p, &n) and n and (p[n - 1] == b'n' or p[n - 1] == b'u'):
            return True
    return False


def default_containers(list containers not None, pull_policy, round_up, bint from_limits):
    """Apply the computed defaults of decoded containers, in place.

    They are the pull policy, amounts rounded to thousandths and, with ``from_limits``, requests from limits. ``pull_policy`` returns an
    image's policy, ``round_up`` rounds a resource list.
    """
    cdef Py_ssize_t i
    cdef dict container, resources, limits, requests
    cdef PyObject* v
    for i in range(PyList_GET_SIZE(containers)):
        container = <dict?><object>PyList_GET_ITEM(containers, i)
        v = get(container, "imagePullPolicy")
        if v == NULL or not <object>v:
            container["imagePullPolicy"] = pull_policy(container.get("image") or "")
        v = get(container, "resources")
        if v == NULL or not <object>v:
            continue
        resources = <dict?><object>v
        for key in ("limits", "requests"):
            v = get(resources, key)
            if is_fine(v):
                round_up(<object>v)
        v = get(resources, "limits")
        if not from_limits or v == NULL or <object>v is None:
            continue
        limits = <dict?><object>v
        v = get(resources, "requests")
        if v != NULL and <object>v is not None:
            requests = <dict?><object>v
        else:
            requests = resources["requests"] = {}
        for name, limit in limits.items():
            requests.setdefault(name, limit)
        if not requests:
            del resources["requests"]
