# Resources, security context, probes and hooks of a container.


cdef bint quick_amounts(dict amounts, dict limits):
    """Processors, memory and disk in canonical form, whole bytes, and no more than the limit where there is one."""
    cdef Py_ssize_t at = 0
    cdef PyObject* k
    cdef PyObject* v
    cdef PyObject* limit
    cdef int64_t n
    if amounts is None:
        return False
    while PyDict_Next(amounts, &at, &k, &v):
        n = milli(<object>v)
        if n < 0:
            return False
        if not <object>k == "cpu" and (<object>k not in BYTES or n % 1000):
            return False
        limit = get(limits, <object>k) if limits is not None else NULL
        if limit != NULL and n > milli(<object>limit):
            return False
    return True


cdef bint quick_resources(dict resources):
    cdef PyObject* v
    cdef dict limits = None
    if resources is None or not only(resources, RESOURCE_FIELDS):
        return False
    v = get(resources, "limits")
    if v != NULL:
        limits = as_dict(v)
        if not quick_amounts(limits, None):
            return False
    v = get(resources, "requests")
    return v == NULL or quick_amounts(as_dict(v), limits)


cdef bint quick_security(dict context):
    cdef PyObject* v
    cdef dict profile, capabilities
    if context is None or not only(context, SECURITY_FIELDS):
        return False
    for key in ("runAsUser", "runAsGroup"):
        v = get(context, key)
        if v != NULL and not number(<object>v, 0, 0x7FFFFFFF):
            return False
    v = get(context, "seccompProfile")
    if v != NULL:
        profile = as_dict(v)
        if profile is None or len(profile) != 1:
            return False
        v = get(profile, "type")
        if v == NULL or not (<object>v == "RuntimeDefault" or <object>v == "Unconfined"):
            return False
    v = get(context, "capabilities")
    if v != NULL:
        capabilities = as_dict(v)
        if capabilities is None or not only(capabilities, CAPABILITY_FIELDS):
            return False
        if "add" in capabilities and "allowPrivilegeEscalation" in context:
            return False
    v = get(context, "privileged")
    return v == NULL or <object>v is False or "allowPrivilegeEscalation" not in context


cdef bint quick_action(dict owner, bint probe):
    """The one action of a probe or hook; only a probe has grpc."""
    cdef dict action
    cdef PyObject* v
    cdef int found = ("exec" in owner) + ("httpGet" in owner) + ("tcpSocket" in owner) + ("grpc" in owner)
    if found != 1:
        return False
    if "exec" in owner:
        action = as_dict(get(owner, "exec"))
        return action is not None and len(action) == 1 and as_list(get(action, "command")) is not None
    if "httpGet" in owner:
        action = as_dict(get(owner, "httpGet"))
        if action is None or not only(action, HTTP_FIELDS) or not one_of(get(action, "scheme"), SCHEMES):
            return False
        v = get(action, "path")
        if v == NULL or not any_text(<object>v):
            return False
    elif "grpc" in owner and not probe:
        return False
    else:
        action = as_dict(get(owner, "tcpSocket" if "tcpSocket" in owner else "grpc"))
        if action is None or not only(action, SOCKET_FIELDS):
            return False
    v = get(action, "port")
    return v != NULL and port(<object>v)


cdef bint quick_probe(dict probe, bint readiness):
    cdef PyObject* v
    if probe is None or not only(probe, PROBE_FIELDS) or not quick_action(probe, True):
        return False
    for key in COUNTS:
        v = get(probe, key)
        if v != NULL and not number(<object>v, 0, INT64_MAX):
            return False
    v = get(probe, "successThreshold")
    return readiness or (v != NULL and number(<object>v, 1, 1))


cdef bint quick_lifecycle(dict lifecycle):
    cdef Py_ssize_t at = 0
    cdef PyObject* k
    cdef PyObject* v
    cdef dict hook
    if lifecycle is None or not only(lifecycle, HOOKS):
        return False
    while PyDict_Next(lifecycle, &at, &k, &v):
        hook = as_dict(v)
        if hook is None or len(hook) != 1 or not quick_action(hook, False):
            return False
    return True
