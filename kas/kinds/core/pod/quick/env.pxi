# What a container has beside its resources: variables, ports and mounts. The names of fields that are known.

cdef enum:
    NAME = 1
    IMAGE
    PULL_POLICY
    MESSAGE_POLICY
    FREE              # no rule looks at it
    ENV
    ENV_FROM
    PORTS
    MOUNTS
    RESOURCES
    SECURITY
    PROBE             # its successes must be one
    READINESS
    LIFECYCLE
    RESTART_POLICY

cdef dict CONTAINER = {
    "name": NAME, "image": IMAGE, "imagePullPolicy": PULL_POLICY, "terminationMessagePolicy": MESSAGE_POLICY,
    "terminationMessagePath": FREE, "command": FREE, "args": FREE, "workingDir": FREE, "stdin": FREE, "stdinOnce": FREE, "tty": FREE,
    "env": ENV, "envFrom": ENV_FROM, "ports": PORTS, "volumeMounts": MOUNTS, "resources": RESOURCES, "securityContext": SECURITY,
    "livenessProbe": PROBE, "startupProbe": PROBE, "readinessProbe": READINESS, "lifecycle": LIFECYCLE, "restartPolicy": RESTART_POLICY,
}
cdef frozenset PULL_POLICIES = frozenset(("Always", "IfNotPresent", "Never"))
cdef frozenset MESSAGE_POLICIES = frozenset(("File", "FallbackToLogsOnError"))
cdef frozenset PROTOCOLS = frozenset(("TCP", "UDP", "SCTP"))
cdef frozenset SCHEMES = frozenset(("HTTP", "HTTPS"))
cdef frozenset ENV_FIELDS = frozenset((
    "metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName", "status.hostIP",
    "status.hostIPs", "status.podIP", "status.podIPs",
))
cdef frozenset RESOURCE_FIELDS = frozenset(("limits", "requests"))
cdef frozenset BYTES = frozenset(("memory", "ephemeral-storage"))
cdef frozenset SECURITY_FIELDS = frozenset((
    "allowPrivilegeEscalation", "privileged", "capabilities", "readOnlyRootFilesystem", "runAsNonRoot", "runAsUser", "runAsGroup",
    "seccompProfile",
))
cdef frozenset PROBE_FIELDS = frozenset((
    "exec", "httpGet", "tcpSocket", "grpc", "initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold",
    "failureThreshold",
))
cdef tuple COUNTS = ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "failureThreshold", "successThreshold")
cdef frozenset HTTP_FIELDS = frozenset(("path", "port", "scheme", "host"))
cdef frozenset SOCKET_FIELDS = frozenset(("port", "host", "service"))
cdef frozenset KEY_REF_FIELDS = frozenset(("name", "key", "optional"))
cdef frozenset REF_FIELDS = frozenset(("name", "optional"))
cdef frozenset CAPABILITY_FIELDS = frozenset(("add", "drop"))
cdef frozenset HOOKS = frozenset(("postStart", "preStop"))


cdef bint quick_field_ref(dict ref, frozenset fields):
    cdef PyObject* v
    if ref is None or len(ref) != 2:
        return False
    v = get(ref, "apiVersion")
    return v != NULL and <object>v == "v1" and one_of(get(ref, "fieldPath"), fields)


cdef bint quick_value_from(dict source):
    cdef dict ref
    cdef PyObject* v
    if source is None or len(source) != 1:
        return False
    if "fieldRef" in source:
        return quick_field_ref(as_dict(get(source, "fieldRef")), ENV_FIELDS)
    ref = as_dict(get(source, "secretKeyRef" if "secretKeyRef" in source else "configMapKeyRef"))
    if ref is None or not only(ref, KEY_REF_FIELDS):
        return False
    v = get(ref, "name")
    if v == NULL or not subdomain(<object>v, True, 253):
        return False
    v = get(ref, "key")
    return v != NULL and data_key(<object>v)


cdef bint quick_env(list items):
    """Names may not be repeated: that is a warning."""
    cdef Py_ssize_t i, at
    cdef dict item
    cdef PyObject* k
    cdef PyObject* v
    cdef bint named, valued, referring
    cdef set seen = set()
    if items is None:
        return False
    for i in range(PyList_GET_SIZE(items)):
        item = as_dict(PyList_GET_ITEM(items, i))
        if item is None:
            return False
        at, named, valued, referring = 0, False, False, False
        while PyDict_Next(item, &at, &k, &v):
            if is_key(k, b"name", 4):
                if not env_name(<object>v):
                    return False
                seen.add(<object>v)
                named = True
            elif is_key(k, b"value", 5):
                valued = True
            elif is_key(k, b"valueFrom", 9):
                if not quick_value_from(as_dict(v)):
                    return False
                referring = True
            else:
                return False
        if not named or (valued and referring):
            return False
    return len(seen) == PyList_GET_SIZE(items)


cdef bint quick_env_from(list items):
    cdef Py_ssize_t i
    cdef dict item, ref
    cdef PyObject* v
    if items is None:
        return False
    for i in range(PyList_GET_SIZE(items)):
        item = as_dict(PyList_GET_ITEM(items, i))
        if item is None or len(item) != 1:
            return False
        ref = as_dict(get(item, "secretRef" if "secretRef" in item else "configMapRef"))
        if ref is None or not only(ref, REF_FIELDS):
            return False
        v = get(ref, "name")
        if v == NULL or not subdomain(<object>v, True, 253):
            return False
    return True


cdef bint quick_ports(list items, set taken):
    """Neither a number with its protocol nor a name is met twice in a pod; what concerns the host is left to the rules."""
    cdef Py_ssize_t i, at
    cdef dict item
    cdef PyObject* k
    cdef PyObject* v
    cdef PyObject* protocol
    cdef int64_t n
    if items is None:
        return False
    for i in range(PyList_GET_SIZE(items)):
        item = as_dict(PyList_GET_ITEM(items, i))
        if item is None:
            return False
        at, n, protocol = 0, 0, NULL
        while PyDict_Next(item, &at, &k, &v):
            if is_key(k, b"containerPort", 13):
                if not number(<object>v, 1, 65535):
                    return False
                n = <object>v
            elif is_key(k, b"protocol", 8):
                protocol = v
            elif not is_key(k, b"name", 4) or not port_name(<object>v) or not first_time(taken, <object>v):
                return False
        if n == 0 or not one_of(protocol, PROTOCOLS):
            return False
        # TCP, UDP and SCTP differ in their first letter.
        if not first_time(taken, n << 8 | (<const uint8_t*>PyUnicode_DATA(<object>protocol))[0]):
            return False
    return True


cdef bint first_time(set taken, object value):
    cdef Py_ssize_t before = len(taken)
    taken.add(value)
    return len(taken) > before


cdef bint quick_mounts(list items, dict volumes):
    """``volumes`` are those there are, by name."""
    cdef Py_ssize_t i, at
    cdef dict item
    cdef PyObject* k
    cdef PyObject* v
    cdef bint named, placed, sub
    cdef set points = set()
    if items is None:
        return False
    for i in range(PyList_GET_SIZE(items)):
        item = as_dict(PyList_GET_ITEM(items, i))
        if item is None:
            return False
        at, named, placed, sub = 0, False, False, False
        while PyDict_Next(item, &at, &k, &v):
            if is_key(k, b"name", 4):
                named = any_text(<object>v) and get(volumes, <object>v) != NULL
            elif is_key(k, b"mountPath", 9):
                placed = any_text(<object>v) and first_time(points, <object>v)
            elif is_key(k, b"subPath", 7) or is_key(k, b"subPathExpr", 11):
                if sub or not without_backsteps(<object>v, True):
                    return False
                sub = True
            elif not is_key(k, b"readOnly", 8):
                return False
        if not named or not placed:
            return False
    return True
