# Volumes.

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


cdef inline bint quick_mode(dict d, object key):
    cdef PyObject* v = get(d, key)
    return v == NULL or number(<object>v, 0, 0o777)


cdef inline bint has_text(dict d, object key):
    cdef PyObject* v = get(d, key)
    return v != NULL and any_text(<object>v)


cdef bint quick_files(dict source, set paths, bint downward, bint alone):
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
        if item is None or not only(item, DOWNWARD_ITEM if downward else KEY_ITEM) or not quick_mode(item, "mode"):
            return False
        v = get(item, "path")
        if v == NULL or not without_backsteps(<object>v, True) or not first_time(paths, <object>v):
            return False
        if not alone and in_a_folder(<object>v):
            return False
        if not downward:
            if not has_text(item, "key"):
                return False
        elif not quick_field_ref(as_dict(get(item, "fieldRef")), VOLUME_FIELDS):
            return False
    return True


cdef bint quick_projected(dict projected, set paths):
    cdef Py_ssize_t i
    cdef dict entry, part
    cdef PyObject* v
    cdef list entries
    if projected is None or not only(projected, PROJECTED_FIELDS) or not quick_mode(projected, "defaultMode"):
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
            if part is None or not only(part, DOWNWARD_FIELDS) or not quick_files(part, paths, True, False):
                return False
        else:
            part = as_dict(get(entry, "configMap" if "configMap" in entry else "secret"))
            if part is None or not only(part, FILES_FIELDS) or not has_text(part, "name") or not quick_files(part, paths, False, False):
                return False
        # One that does not name its files is warned of for those of the source before.
        if "items" not in part and len(paths):
            return False
    return True


cdef bint quick_source(int what, dict source, set paths):
    cdef PyObject* v
    if source is None:
        return False
    if what == EMPTY_DIR:
        v = get(source, "sizeLimit")
        return only(source, EMPTY_DIR_FIELDS) and (v == NULL or milli(<object>v) >= 0)
    if what == CONFIG_MAP or what == SECRET:
        if not only(source, FILES_FIELDS) or not has_text(source, "name" if what == CONFIG_MAP else "secretName"):
            return False
        return quick_mode(source, "defaultMode") and quick_files(source, set(), False, True)
    if what == PROJECTED:
        return quick_projected(source, paths)
    if what == CLAIM:
        return only(source, CLAIM_FIELDS) and has_text(source, "claimName")
    if what == HOST_PATH:
        v = get(source, "path")
        if v == NULL or not without_backsteps(<object>v, False) or not only(source, HOST_PATH_FIELDS):
            return False
        v = get(source, "type")
        return v == NULL or one_of(v, HOST_PATH_TYPES)
    return only(source, DOWNWARD_FIELDS) and quick_mode(source, "defaultMode") and quick_files(source, set(), True, True)


def quick_volumes(volumes):
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
            if code == NULL or not quick_source(<int><object>code, as_dict(v), paths):
                return False
    return True
