"""Containers, volumes and tolerations as nearly every pod has them.

One pass says that there is nothing to complain about and nothing to warn of. The rules and all wording are in ``kas.api.validation``
and ``kas.api.podwarnings``; what is not recognised here, however valid, is left to them. A field that is not named here makes its
owner unusual, so a new one is judged by its rules until somebody adds it.

Input is a decoded, defaulted document of any shape: types are checked, references are borrowed for as long as their dict or list is
not changed, only ``default_containers`` changes anything, and every index stays below the length given.

Errors and warnings of the pod of bench/test_write_path, all of it in a loop: 19 µs, by the rules alone 90 µs (CPython 3.11, 2-core VM).
"""

from cpython.dict cimport PyDict_GetItem, PyDict_Next
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.object cimport PyObject
from libc.stdint cimport INT64_MAX, int64_t, uint8_t
from libc.string cimport memcmp, memset

cdef extern from "Python.h":
    bint PyUnicode_CheckExact(object o)
    bint PyUnicode_IS_COMPACT_ASCII(object o)
    void* PyUnicode_DATA(object o)
    Py_ssize_t PyUnicode_GET_LENGTH(object o)
    bint PyDict_CheckExact(object o)
    bint PyList_CheckExact(object o)
    bint PyLong_CheckExact(object o)
    long long PyLong_AsLongLongAndOverflow(object o, int* overflow) except? -1

cdef enum:
    LOWER = 1   # a-z
    UPPER = 2
    DIGIT = 4
    DASH = 8
    DOT = 16
    UNDERSCORE = 32

cdef uint8_t SORT[256]


cdef void _init_sort() noexcept:
    cdef int c
    memset(SORT, 0, 256)
    for c in range(97, 123):
        SORT[c] = LOWER
        SORT[c - 32] = UPPER
    for c in range(48, 58):
        SORT[c] = DIGIT
    SORT[45], SORT[46], SORT[95] = DASH, DOT, UNDERSCORE

_init_sort()

# -- scalars: each says that a value is one of those that no rule refuses ------------------------------------------------


cdef inline bint ascii_text(object s, const char** p, Py_ssize_t* n):
    """A text of at least one character, all of them ASCII."""
    if not PyUnicode_CheckExact(s) or not PyUnicode_IS_COMPACT_ASCII(s):
        return False
    p[0], n[0] = <const char*>PyUnicode_DATA(s), PyUnicode_GET_LENGTH(s)
    return n[0] > 0


cdef inline bint any_text(object s):
    return PyUnicode_CheckExact(s) and PyUnicode_GET_LENGTH(s) > 0


cdef inline bint number(object o, int64_t low, int64_t high):
    cdef int overflow = 0
    cdef long long n
    if not PyLong_CheckExact(o):
        return False
    n = PyLong_AsLongLongAndOverflow(o, &overflow)
    return overflow == 0 and low <= n <= high


cdef bint subdomain(object s, bint dots, Py_ssize_t longest):
    """RFC 1123 labels; with dots between where they are allowed."""
    cdef const char* p = NULL
    cdef Py_ssize_t i, n = 0
    cdef uint8_t sort, before = DOT
    if not ascii_text(s, &p, &n) or n > longest:
        return False
    for i in range(n):
        sort = SORT[<uint8_t>p[i]]
        if sort & (LOWER | DIGIT):
            pass
        elif sort == DASH:
            if before == DOT:
                return False
        elif sort == DOT and dots:
            if before == DOT or before == DASH:
                return False
        else:
            return False
        before = sort
    return before != DOT and before != DASH


cdef bint data_key(object s):
    """A key of a ConfigMap or Secret that does not begin with a dot."""
    cdef const char* p = NULL
    cdef Py_ssize_t i, n = 0
    if not ascii_text(s, &p, &n) or n > 253 or p[0] == b'.':
        return False
    for i in range(n):
        if not SORT[<uint8_t>p[i]]:
            return False
    return True


cdef bint port_name(object s):
    cdef const char* p = NULL
    cdef Py_ssize_t i, n = 0
    cdef uint8_t sort, before = DASH
    cdef bint letter = False
    if not ascii_text(s, &p, &n) or n > 15:
        return False
    for i in range(n):
        sort = SORT[<uint8_t>p[i]]
        if not sort & (LOWER | DIGIT | DASH) or (sort == DASH and before == DASH):
            return False
        letter = letter or sort == LOWER
        before = sort
    return letter and before != DASH


cdef bint port(object o):
    return number(o, 1, 65535) or port_name(o)


cdef bint env_name(object s):
    cdef const char* p = NULL
    cdef Py_ssize_t i, n = 0
    if not ascii_text(s, &p, &n):
        return False
    for i in range(n):
        if not 0x20 <= p[i] <= 0x7E or p[i] == b'=':
            return False
    return True


cdef bint without_backsteps(object s, bint relative):
    """A path in which no two dots stand together; ``relative`` refuses a slash in front."""
    cdef const char* p = NULL
    cdef Py_ssize_t i, n = 0
    if not ascii_text(s, &p, &n) or (relative and p[0] == b'/'):
        return False
    for i in range(n - 1):
        if p[i] == b'.' and p[i + 1] == b'.':
            return False
    return True


cdef bint in_a_folder(object s):
    """Of an ASCII text: whether it has a slash."""
    cdef const char* p = NULL
    cdef Py_ssize_t i, n = 0
    if ascii_text(s, &p, &n):
        for i in range(n):
            if p[i] == b'/':
                return True
    return False


cdef bint unpadded(object s):
    cdef const char* p = NULL
    cdef Py_ssize_t n = 0
    return ascii_text(s, &p, &n) and p[0] > 0x20 and p[n - 1] > 0x20


cdef int64_t milli(object s):
    """Thousandths of a canonical quantity that is not negative; -1 for a form that is left to the rules."""
    cdef const char* p = NULL
    cdef Py_ssize_t i = 0, n = 0
    cdef int64_t value = 0, unit = 1000
    if not ascii_text(s, &p, &n) or n > 12:
        return -1
    while i < n and SORT[<uint8_t>p[i]] == DIGIT:
        value = value * 10 + (p[i] - 48)
        i += 1
    if i == 0 or n - i > 2:
        return -1
    if i < n:
        if p[i] == b'm' and n - i == 1:
            return value
        if n - i == 2 and p[i + 1] != b'i':
            return -1
        if p[i] == b'K' and n - i == 2:
            unit = 1000 * <int64_t>1024
        elif p[i] == b'k' and n - i == 1:
            unit = 1000 * <int64_t>1000
        elif p[i] == b'M':
            unit = 1000 * (<int64_t>1 << 20 if n - i == 2 else 10 ** 6)
        elif p[i] == b'G':
            unit = 1000 * (<int64_t>1 << 30 if n - i == 2 else <int64_t>10 ** 9)
        elif p[i] == b'T':
            unit = 1000 * (<int64_t>1 << 40 if n - i == 2 else <int64_t>10 ** 12)
        else:
            return -1
    return value * unit if value <= INT64_MAX // unit else -1


cdef inline bint is_key(PyObject* k, const char* name, Py_ssize_t n):
    """Cheaper than a look-up for the dicts of few keys that come by the dozen."""
    return (
        PyUnicode_CheckExact(<object>k) and PyUnicode_GET_LENGTH(<object>k) == n and PyUnicode_IS_COMPACT_ASCII(<object>k)
        and memcmp(PyUnicode_DATA(<object>k), name, n) == 0
    )


cdef inline PyObject* get(dict d, object key):
    return PyDict_GetItem(d, key)


cdef inline dict as_dict(PyObject* v):
    """The value as a dict, None when it is absent or none."""
    return <dict><object>v if v != NULL and PyDict_CheckExact(<object>v) else None


cdef inline list as_list(PyObject* v):
    """The value as a list that has something in it, None otherwise."""
    return <list><object>v if v != NULL and PyList_CheckExact(<object>v) and PyList_GET_SIZE(<object>v) else None


cdef inline bint one_of(PyObject* v, frozenset known):
    return v != NULL and PyUnicode_CheckExact(<object>v) and <object>v in known


cdef inline bint only(dict d, frozenset known):
    """Whether all keys are known."""
    cdef Py_ssize_t at = 0
    cdef PyObject* k
    while PyDict_Next(d, &at, &k, NULL):
        if <object>k not in known:
            return False
    return True


# -- containers -----------------------------------------------------------------------------------------------------------

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


cdef bint usual_field_ref(dict ref, frozenset fields):
    cdef PyObject* v
    if ref is None or len(ref) != 2:
        return False
    v = get(ref, "apiVersion")
    return v != NULL and <object>v == "v1" and one_of(get(ref, "fieldPath"), fields)


cdef bint usual_value_from(dict source):
    cdef dict ref
    cdef PyObject* v
    if source is None or len(source) != 1:
        return False
    if "fieldRef" in source:
        return usual_field_ref(as_dict(get(source, "fieldRef")), ENV_FIELDS)
    ref = as_dict(get(source, "secretKeyRef" if "secretKeyRef" in source else "configMapKeyRef"))
    if ref is None or not only(ref, KEY_REF_FIELDS):
        return False
    v = get(ref, "name")
    if v == NULL or not subdomain(<object>v, True, 253):
        return False
    v = get(ref, "key")
    return v != NULL and data_key(<object>v)


cdef bint usual_env(list items):
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
                if not usual_value_from(as_dict(v)):
                    return False
                referring = True
            else:
                return False
        if not named or (valued and referring):
            return False
    return len(seen) == PyList_GET_SIZE(items)


cdef bint usual_env_from(list items):
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


cdef bint usual_ports(list items, set taken):
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


cdef bint usual_mounts(list items, dict volumes):
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


cdef bint usual_amounts(dict amounts, dict limits):
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


cdef bint usual_resources(dict resources):
    cdef PyObject* v
    cdef dict limits = None
    if resources is None or not only(resources, RESOURCE_FIELDS):
        return False
    v = get(resources, "limits")
    if v != NULL:
        limits = as_dict(v)
        if not usual_amounts(limits, None):
            return False
    v = get(resources, "requests")
    return v == NULL or usual_amounts(as_dict(v), limits)


cdef bint usual_security(dict context):
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


cdef bint usual_action(dict owner, bint probe):
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


cdef bint usual_probe(dict probe, bint readiness):
    cdef PyObject* v
    if probe is None or not only(probe, PROBE_FIELDS) or not usual_action(probe, True):
        return False
    for key in COUNTS:
        v = get(probe, key)
        if v != NULL and not number(<object>v, 0, INT64_MAX):
            return False
    v = get(probe, "successThreshold")
    return readiness or (v != NULL and number(<object>v, 1, 1))


cdef bint usual_lifecycle(dict lifecycle):
    cdef Py_ssize_t at = 0
    cdef PyObject* k
    cdef PyObject* v
    cdef dict hook
    if lifecycle is None or not only(lifecycle, HOOKS):
        return False
    while PyDict_Next(lifecycle, &at, &k, &v):
        hook = as_dict(v)
        if hook is None or len(hook) != 1 or not usual_action(hook, False):
            return False
    return True


cdef bint usual_container(dict container, bint init, dict volumes, set names, set ports):
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
            ok = usual_env(as_list(v))
        elif what == ENV_FROM:
            ok = usual_env_from(as_list(v))
        elif what == PORTS:
            ok = usual_ports(as_list(v), ports)
        elif what == MOUNTS:
            ok = usual_mounts(as_list(v), volumes)
        elif what == RESOURCES:
            ok = usual_resources(as_dict(v))
        elif what == SECURITY:
            ok = usual_security(as_dict(v))
        elif what == RESTART_POLICY:
            # A sidecar; whatever else has rules of its own.
            ok = runs_on = init and PyUnicode_CheckExact(<object>v) and <object>v == "Always"
        elif what == LIFECYCLE:
            ok, hooked = usual_lifecycle(as_dict(v)), True
        else:
            ok, hooked = usual_probe(as_dict(v), what == READINESS), True
        if not ok:
            return False
    return required == 4 and (runs_on or not hooked)


def usual_containers(containers, init, dict volumes not None):
    """Whether the regular and init containers (None: there are none) certainly are valid and nothing is to be warned of.

    ``volumes`` has the pod's valid volumes by name. False means that somebody must look.
    """
    cdef Py_ssize_t i
    cdef set names = set(), ports = set()
    if not PyList_CheckExact(containers) or not PyList_GET_SIZE(containers):
        return False
    for i in range(PyList_GET_SIZE(containers)):
        if not usual_container(as_dict(PyList_GET_ITEM(containers, i)), False, volumes, names, ports):
            return False
    if init is None:
        return True
    if not PyList_CheckExact(init):
        return False
    for i in range(PyList_GET_SIZE(init)):
        if not usual_container(as_dict(PyList_GET_ITEM(init, i)), True, volumes, names, ports):
            return False
    return True


# -- volumes --------------------------------------------------------------------------------------------------------------

cdef enum:
    EMPTY_DIR = 1
    CONFIG_MAP
    SECRET
    PROJECTED
    CLAIM
    HOST_PATH
    DOWNWARD

cdef dict SOURCES = {
    "emptyDir": EMPTY_DIR, "configMap": CONFIG_MAP, "secret": SECRET, "projected": PROJECTED, "persistentVolumeClaim": CLAIM,
    "hostPath": HOST_PATH, "downwardAPI": DOWNWARD,
}
cdef frozenset VOLUME_FIELDS = frozenset((
    "metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid",
))
cdef frozenset EMPTY_DIR_FIELDS = frozenset(("medium", "sizeLimit"))
cdef frozenset FILES_FIELDS = frozenset(("name", "secretName", "defaultMode", "items", "optional"))
cdef frozenset CLAIM_FIELDS = frozenset(("claimName", "readOnly"))
cdef frozenset HOST_PATH_FIELDS = frozenset(("path", "type"))
cdef frozenset DOWNWARD_FIELDS = frozenset(("items", "defaultMode"))
cdef frozenset PROJECTED_FIELDS = frozenset(("sources", "defaultMode"))
cdef frozenset TOKEN_FIELDS = frozenset(("audience", "expirationSeconds", "path"))
cdef frozenset KEY_ITEM = frozenset(("key", "path", "mode"))
cdef frozenset DOWNWARD_ITEM = frozenset(("path", "fieldRef", "mode"))
cdef frozenset HOST_PATH_TYPES = frozenset((
    "", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket",
))


cdef inline bint usual_mode(dict d, object key):
    cdef PyObject* v = get(d, key)
    return v == NULL or number(<object>v, 0, 0o777)


cdef inline bint has_text(dict d, object key):
    cdef PyObject* v = get(d, key)
    return v != NULL and any_text(<object>v)


cdef bint usual_files(dict source, set paths, bint downward, bint alone):
    """The items of a source. ``paths`` has those of all that goes into one directory: none is taken twice, and only one that is
    ``alone`` there lies in a folder, as another might be what the folder is called."""
    cdef Py_ssize_t i
    cdef dict item
    cdef PyObject* v = get(source, "items")
    cdef list items
    if v == NULL:
        return True
    items = as_list(v)
    if items is None:
        return False
    alone = alone and PyList_GET_SIZE(items) == 1
    for i in range(PyList_GET_SIZE(items)):
        item = as_dict(PyList_GET_ITEM(items, i))
        if item is None or not only(item, DOWNWARD_ITEM if downward else KEY_ITEM) or not usual_mode(item, "mode"):
            return False
        v = get(item, "path")
        if v == NULL or not without_backsteps(<object>v, True) or not first_time(paths, <object>v):
            return False
        if not alone and in_a_folder(<object>v):
            return False
        if not downward:
            if not has_text(item, "key"):
                return False
        elif not usual_field_ref(as_dict(get(item, "fieldRef")), VOLUME_FIELDS):
            return False
    return True


cdef bint usual_projected(dict projected, set paths):
    cdef Py_ssize_t i
    cdef dict entry, part
    cdef PyObject* v
    cdef list entries
    if projected is None or not only(projected, PROJECTED_FIELDS) or not usual_mode(projected, "defaultMode"):
        return False
    entries = as_list(get(projected, "sources"))
    if entries is None:
        return False
    for i in range(PyList_GET_SIZE(entries)):
        entry = as_dict(PyList_GET_ITEM(entries, i))
        if entry is None or len(entry) != 1:
            return False
        if "serviceAccountToken" in entry:
            part = as_dict(get(entry, "serviceAccountToken"))
            if part is None or not only(part, TOKEN_FIELDS):
                return False
            v = get(part, "expirationSeconds")
            if v == NULL or not number(<object>v, 600, <int64_t>1 << 32):
                return False
            v = get(part, "path")
            if v == NULL or not without_backsteps(<object>v, True) or not first_time(paths, <object>v) or in_a_folder(<object>v):
                return False
            continue
        if "downwardAPI" in entry:
            part = as_dict(get(entry, "downwardAPI"))
            if part is None or not only(part, DOWNWARD_FIELDS) or not usual_files(part, paths, True, False):
                return False
        else:
            part = as_dict(get(entry, "configMap" if "configMap" in entry else "secret"))
            if part is None or not only(part, FILES_FIELDS) or not has_text(part, "name") or not usual_files(part, paths, False, False):
                return False
        # One that does not name its files is warned of for those of the source before.
        if "items" not in part and len(paths):
            return False
    return True


cdef bint usual_source(int what, dict source, set paths):
    cdef PyObject* v
    if source is None:
        return False
    if what == EMPTY_DIR:
        v = get(source, "sizeLimit")
        return only(source, EMPTY_DIR_FIELDS) and (v == NULL or milli(<object>v) >= 0)
    if what == CONFIG_MAP or what == SECRET:
        if not only(source, FILES_FIELDS) or not has_text(source, "name" if what == CONFIG_MAP else "secretName"):
            return False
        return usual_mode(source, "defaultMode") and usual_files(source, set(), False, True)
    if what == PROJECTED:
        return usual_projected(source, paths)
    if what == CLAIM:
        return only(source, CLAIM_FIELDS) and has_text(source, "claimName")
    if what == HOST_PATH:
        v = get(source, "path")
        if v == NULL or not without_backsteps(<object>v, False) or not only(source, HOST_PATH_FIELDS):
            return False
        v = get(source, "type")
        return v == NULL or one_of(v, HOST_PATH_TYPES)
    return only(source, DOWNWARD_FIELDS) and usual_mode(source, "defaultMode") and usual_files(source, set(), True, True)


def usual_volumes(volumes):
    """Whether volumes certainly are valid and nothing is to be warned of; False means that somebody must look."""
    cdef Py_ssize_t i, at
    cdef dict volume
    cdef PyObject* k
    cdef PyObject* v
    cdef PyObject* code
    cdef set names = set(), paths = set()
    if not PyList_CheckExact(volumes):
        return False
    for i in range(PyList_GET_SIZE(volumes)):
        volume = as_dict(PyList_GET_ITEM(volumes, i))
        if volume is None or len(volume) != 2:
            return False
        v = get(volume, "name")
        if v == NULL or not subdomain(<object>v, False, 63) or not first_time(names, <object>v):
            return False
        at = 0
        while PyDict_Next(volume, &at, &k, &v):
            if <object>k == "name":
                continue
            code = PyDict_GetItem(SOURCES, <object>k)
            if code == NULL or not usual_source(<int><object>code, as_dict(v), paths):
                return False
    return True


# -- tolerations ----------------------------------------------------------------------------------------------------------

cdef frozenset TOLERATION_FIELDS = frozenset(("key", "operator", "effect", "tolerationSeconds"))
cdef frozenset EFFECTS = frozenset(("NoSchedule", "PreferNoSchedule", "NoExecute"))
cdef frozenset NODE_TAINTS = frozenset((
    "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable", "node.kubernetes.io/disk-pressure",
    "node.kubernetes.io/memory-pressure", "node.kubernetes.io/pid-pressure", "node.kubernetes.io/network-unavailable",
    "node.kubernetes.io/unschedulable",
))


def usual_tolerations(tolerations):
    """Whether tolerations are only of the taints that nodes get by themselves, as admission and controllers write them."""
    cdef Py_ssize_t i
    cdef dict item
    cdef PyObject* v
    if not PyList_CheckExact(tolerations):
        return False
    for i in range(PyList_GET_SIZE(tolerations)):
        item = as_dict(PyList_GET_ITEM(tolerations, i))
        if item is None or not only(item, TOLERATION_FIELDS):
            return False
        if not one_of(get(item, "key"), NODE_TAINTS) or not one_of(get(item, "effect"), EFFECTS):
            return False
        v = get(item, "operator")
        if v == NULL or not <object>v == "Exists" or ("tolerationSeconds" in item and not item["effect"] == "NoExecute"):
            return False
    return True


# -- quality of service ---------------------------------------------------------------------------------------------------


cdef struct Need:
    int64_t cpu
    int64_t memory


cdef int add_up(PyObject* v, Need* total):
    """Adds what is asked of processors and memory; how many of the two are asked for at all, -1 for what is left to the rules."""
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
    """The class of a pod without resources of its own, by its containers; None for what is left to the rules."""
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


# -- defaults -------------------------------------------------------------------------------------------------------------


cdef bint is_fine(PyObject* v):
    """Whether an amount is given in less than thousandths; canonical text says so by its suffix."""
    cdef Py_ssize_t at = 0, n = 0
    cdef const char* p = NULL
    cdef PyObject* k
    cdef PyObject* text
    if v == NULL or not PyDict_CheckExact(<object>v):
        return False
    while PyDict_Next(<object>v, &at, &k, &text):
        if ascii_text(<object>text, &p, &n) and (p[n - 1] == b'n' or p[n - 1] == b'u'):
            return True
    return False


def default_containers(list containers not None, pull_policy, round_up, bint from_limits):
    """The computed defaults of decoded containers, in place: when to pull, amounts in thousandths and, with ``from_limits``,
    requests that follow limits. ``pull_policy`` tells it of an image, ``round_up`` rounds a resource list."""
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
