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

    def set_fields(self, dict fields):
        """Declare the fields by name. Call it once the nodes they refer to exist (types may be recursive)."""
        cdef Field f
        if not fields:
            self.fields = self.by_key = NO_NAMES
            self.ranked = self.zeros = NO_FIELDS
            return
        self.fields = fields
        self.ranked = [fields[name] for name in sorted(fields)]
        for rank, f in enumerate(self.ranked):
            f.rank = rank
        self.by_key = {f.key: f for f in fields.values()}
        self.zeros = [(name, f) for name, f in fields.items() if f.zero is not MISSING] or NO_FIELDS

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
