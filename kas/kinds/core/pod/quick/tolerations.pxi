# Tolerations.

cdef frozenset TOLERATION_FIELDS = frozenset(("key", "operator", "effect", "tolerationSeconds"))
cdef frozenset EFFECTS = frozenset(("NoSchedule", "PreferNoSchedule", "NoExecute"))
cdef frozenset NODE_TAINTS = frozenset((
    "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable", "node.kubernetes.io/disk-pressure",
    "node.kubernetes.io/memory-pressure", "node.kubernetes.io/pid-pressure", "node.kubernetes.io/network-unavailable",
    "node.kubernetes.io/unschedulable",
))


def quick_tolerations(tolerations):
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
