# Containers as a whole.


cdef bint quick_container(dict container, bint init, dict volumes, set names, set ports):
    cdef Py_ssize_t at = 0
    cdef PyObject* k
    cdef PyObject* v
    cdef PyObject* code
    cdef int required = 0
    cdef bint ok, runs_on = not init, hooked = False
    if container is None:
        return False
    while PyDict_Next(container, &at, &k, &v):
        code = PyDict_GetItem(CONTAINER, <object>k)
        if code == NULL:
            return False
        what = <int><object>code
        ok = True
        if what == FREE:
            continue
        elif what == NAME:
            ok = subdomain(<object>v, False, 63) and first_time(names, <object>v)
            required += 1
        elif what == IMAGE:
            ok = unpadded(<object>v)
            required += 1
        elif what == PULL_POLICY:
            ok = one_of(v, PULL_POLICIES)
            required += 1
        elif what == MESSAGE_POLICY:
            ok = one_of(v, MESSAGE_POLICIES)
            required += 1
        elif what == ENV:
            ok = quick_env(as_list(v))
        elif what == ENV_FROM:
            ok = quick_env_from(as_list(v))
        elif what == PORTS:
            ok = quick_ports(as_list(v), ports)
        elif what == MOUNTS:
            ok = quick_mounts(as_list(v), volumes)
        elif what == RESOURCES:
            ok = quick_resources(as_dict(v))
        elif what == SECURITY:
            ok = quick_security(as_dict(v))
        elif what == RESTART_POLICY:
            # A sidecar; whatever else has rules of its own.
            ok = runs_on = init and PyUnicode_CheckExact(<object>v) and <object>v == "Always"
        elif what == LIFECYCLE:
            ok, hooked = quick_lifecycle(as_dict(v)), True
        else:
            ok, hooked = quick_probe(as_dict(v), what == READINESS), True
        if not ok:
            return False
    return required == 4 and (runs_on or not hooked)


def quick_containers(containers, init, dict volumes not None):
    """Whether the regular and init containers (None: there are none) certainly are valid and nothing is to be warned of.

    ``volumes`` has the pod's valid volumes by name. False means that somebody must look.
    """
    cdef Py_ssize_t i
    cdef set names = set(), ports = set()
    if not PyList_CheckExact(containers) or not PyList_GET_SIZE(containers):
        return False
    for i in range(PyList_GET_SIZE(containers)):
        if not quick_container(as_dict(PyList_GET_ITEM(containers, i)), False, volumes, names, ports):
            return False
    if init is None:
        return True
    if not PyList_CheckExact(init):
        return False
    for i in range(PyList_GET_SIZE(init)):
        if not quick_container(as_dict(PyList_GET_ITEM(init, i)), True, volumes, names, ports):
            return False
    return True
