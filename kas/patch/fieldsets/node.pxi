# The parts of a merge schema: fields and nodes.

cdef enum ScalarType:
    NOT_SCALAR = 0
    NUMERIC = 1
    STRING = 2
    BOOLEAN = 3
    UNTYPED = 4


SCALARS = {"": NOT_SCALAR, "numeric": NUMERIC, "string": STRING, "boolean": BOOLEAN, "untyped": UNTYPED}


class _Missing:
    def __repr__(self):
        return "MISSING"


MISSING = _Missing()
cdef object _MISSING = MISSING


class Mismatch(Exception):
    """The object contradicts its schema; ``errors`` is a list of (path text, message)."""

    def __init__(self, errors):
        super().__init__(errors)
        self.errors = errors


# Shared empty values for the attributes that most nodes do not use; a CRD may have thousands of nodes. Never written to.
cdef dict NO_NAMES = {}
cdef list NO_FIELDS = []


@cython.final
cdef class Field:
    """One declared field of a map node.

    ``zero`` is the value that Go's encoder writes for an unset field (MISSING: nothing). ``omit`` says which values it omits: 0 none, 1
    null, 2 null and empty or zero values. ``skip`` hides the field from comparisons.

    Without a ``node`` the field's node is ``load(of)``, called on first use: a CRD may have thousands of fields, of which objects usually
    have few.
    """

    def __init__(
        self, str name, Node node, object zero=MISSING, int omit=0, object default=None, bint skip=False, object load=None, object of=None,
    ):
        self.name = name
        self.key = "f:" + name
        self.text = f'"f:{name}":'.encode()
        self.known = node
        if node is None:
            self.load, self.of = load, of
        self.zero = zero
        self.omit = omit
        self.default = default
        self.skip = skip

    @property
    def node(self):
        return node_of(self)


cdef Node node_of(Field f):
    if f.known is None:
        load, of = f.load, f.of  # copied, as another thread may set them
        if load is not None:
            made = load(of)
            if f.known is None:
                f.known = made
            f.load = f.of = None
    return f.known


@cython.final
cdef class Node:
    """What upstream calls an atom: which of scalar, list and map a value may be, and how each merges.

    ``elem`` is the type of undeclared map keys (None: refused); ``keys`` None means a set, else a keyed list. ``deduced`` marks maps
    without declared fields that accept anything; they are not reconciled.
    """

    def __init__(self):
        self.fields = self.by_key = NO_NAMES
        self.ranked = self.zeros = NO_FIELDS
        self.plain = True

    def __dealloc__(self):
        forget_names(self)

    def set_fields(self, dict fields):
        """Declare the fields by name. Call it once the nodes they refer to exist (types may be recursive)."""
        cdef Field f
        forget_names(self)
        if not fields:
            self.fields = self.by_key = NO_NAMES
            self.ranked = self.zeros = NO_FIELDS
            return
        self.fields = fields
        self.ranked = [fields[name] for name in sorted(fields)]
        for rank, f in enumerate(self.ranked):
            f.rank = rank
        self.by_key = {f.key: f for f in fields.values()}
        self.zeros = [f for f in fields.values() if f.zero is not MISSING] or NO_FIELDS

    def set_list(self, Node item, bint atomic, object keys=None):
        """Allow lists of ``item``: atomic, a set (``keys`` None), or keyed."""
        self.is_list, self.item, self.list_atomic = True, item, atomic
        if not atomic:
            self.plain = False
        if keys is not None:
            self.keys, self.sorted_keys, self.key_set = tuple(keys), tuple(sorted(keys)), None

    def set_map(self, bint atomic, Node elem=None, bint deduced=False):
        """Allow maps; ``elem`` is the type of undeclared keys."""
        self.is_map, self.map_atomic, self.elem, self.deduced = True, atomic, elem, deduced
        if not atomic:
            self.plain = False

    def map_is(self, bint atomic):
        """Return this node, or a copy with the other map type: a field's own map type overrides its type's."""
        if not self.is_map or self.map_atomic == atomic:
            return self
        cdef Node twin = Node()
        twin.scalar = self.scalar
        if self.is_list:
            twin.set_list(self.item, self.list_atomic, self.keys)
        twin.set_map(atomic, self.elem, self.deduced)
        twin.set_fields(self.fields)
        return twin


cdef inline PyObject* find_field(Node n, PyObject* name) except? NULL:
    """Return the field of this name, borrowed; NULL if it is not declared. The names in decoded objects are mostly the same few strs."""
    cdef KnownName* known
    if n.known != NULL:
        known = n.known + ((<size_t>name >> 4 ^ <size_t>name >> 11) & n.known_mask)
        if known.name == name:
            return known.field
    return look_up(n, name)


cdef PyObject* look_up(Node n, PyObject* name) except? NULL:
    cdef PyObject* found = PyDict_GetItem(n.fields, <object>name)
    cdef PyObject* last
    cdef KnownName* known
    cdef size_t size = 8
    if found == NULL:
        return NULL
    if n.known == NULL:
        # Large, because a name has only one slot, and two names that share it would evict each other with every object.
        while size < 4 * <size_t>PyDict_Size(n.fields):
            size *= 2
        n.known = <KnownName*>calloc(size, sizeof(KnownName))
        if n.known == NULL:
            raise MemoryError
        n.known_mask = size - 1
    known = n.known + ((<size_t>name >> 4 ^ <size_t>name >> 11) & n.known_mask)
    last = known.name
    Py_INCREF(<object>name)
    known.name, known.field = name, found
    Py_XDECREF(last)
    return found


cdef inline Field field_of(Node n, object name):
    """As ``find_field``; None if it is not declared."""
    cdef PyObject* found = find_field(n, <PyObject*>name)
    return <Field>found if found != NULL else None


cdef void forget_names(Node n) noexcept:
    cdef size_t i
    if n.known != NULL:
        for i in range(n.known_mask + 1):
            Py_XDECREF(n.known[i].name)
        free(n.known)
        n.known = NULL
