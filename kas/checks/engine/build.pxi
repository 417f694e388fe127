# The functions with which Python builds checks.

cdef class Scope:
    """Identifies values that a walk remembers; see ``Check.claim`` and ``member``."""

    def __cinit__(self, str name not None):
        self.name = name


cdef class Check:
    """A condition on a value; made by the functions of this module, immutable and safe to share between threads and programs."""

    def __cinit__(self):
        self.node.high, self.node.total = INT64_MAX, -1
        self.held = {}

    def __dealloc__(self):
        free(self.node.slots)
        free(self.node.groups)
        free(self.node.parts)

    def passes(self, value) -> bool:
        """Whether the value is certainly valid; False means that it must be validated."""
        return whole(&self.node, value, 0) == 1

    def soon_passes(self, value) -> bool:
        """As ``passes``, but also False if the check takes long."""
        return whole(&self.node, value, MAX_ROUNDS) == 1

    def answer(self, value) -> int:
        """Return 1 if the value is certainly valid, -1 if it is certainly invalid, 0 if unknown."""
        return whole(&self.node, value, 0)

    def claim(self, Scope scope not None, str instead=None) -> Check:
        """Return the same check with the condition that no two places of the scope have the same value; scalars only.

        ``instead`` is claimed in place of the value: only one of all places that claim it may be present.
        """
        cdef Check out = self._copy()
        if "claims" in self.held or self.node.op in (ANYTHING, LAZY):
            raise ValueError("values of any kind, or of two scopes, are not claimed")
        out._hold("claims", scope)
        out._hold("claimed", instead)
        out._lay_out()
        return out

    def or_null(self) -> Check:
        """Return the same check that also accepts null."""
        cdef Check out = self._copy()
        out.node.nullable = True
        return out

    def exact(self) -> Check:
        """Return the same check as an exact one: whatever it refuses is certainly invalid."""
        cdef Check out = self._copy()
        out.node.no = -1
        return out

    def where(self, rule not None) -> Check:
        """Return the same check with a Python function: ``rule(value)`` is called with values that passed and decides their validity."""
        cdef Check out = self._copy()
        out._hold("rule", rule)
        out._lay_out()
        return out

    def opening(self, *scopes) -> Check:
        """Return the same check that opens these scopes anew for each value."""
        cdef Check out = self._copy()
        if self.node.op < OBJECT:
            raise ValueError("only what holds values opens scopes")
        out._hold("opens", (self.held.get("opens") or ()) + scopes)
        out._lay_out()
        return out

    def distinct(self, Scope scope not None) -> Check:
        """Return the same list check in which each item claims one value in this scope, opened anew for each list."""
        cdef Check out = self._copy()
        if self.node.op != LIST or "items" in self.held:
            raise ValueError("only a list has items that differ, and in one way")
        out._hold("items", scope)
        out._lay_out()
        return out

    @property
    def is_anything(self) -> bool:
        """Whether it accepts every value."""
        return self.node.op == ANYTHING

    cdef Check _copy(self):
        cdef Check out = Check.__new__(Check)
        if self.node.op == LAZY:
            raise ValueError("what is not made yet is not changed")
        out.node, out.held = self.node, dict(self.held)
        out.node.slots, out.node.groups, out.node.parts = NULL, NULL, NULL
        out._lay_out()
        return out

    cdef int _hold(self, str name, object value) except -1:
        if value is None or value == ():
            self.held.pop(name, None)
        else:
            self.held[name] = value
        return 0

    cdef int _lay_out(self) except -1:
        """Point the node at the held objects, and make its slots, groups and parts."""
        cdef Node* n = &self.node
        cdef dict held = self.held
        cdef int i
        cdef Slot* slot
        n.owner = <PyObject*>self
        n.data, n.rule, n.claims = borrowed(held, "data"), borrowed(held, "rule"), borrowed(held, "claims")
        n.claimed, n.opens, n.keys = borrowed(held, "claimed"), borrowed(held, "opens"), borrowed(held, "keys")
        n.items = borrowed(held, "items")
        n.not_above, n.rules, n.index = borrowed(held, "not_above"), borrowed(held, "rules"), borrowed(held, "index")
        n.key, n.rest = node_of(held.get("key")), node_of(held.get("rest"))
        fields, groups, parts = held.get("fields", ()), held.get("groups", ()), held.get("parts", ())
        free(n.slots)
        free(n.groups)
        free(n.parts)
        n.n_slots, n.n_groups, n.n_parts, n.n_required, n.n_early = len(fields), len(groups), len(parts), 0, 0
        n.slots = <Slot*>calloc(n.n_slots + 1, sizeof(Slot))
        n.groups = <Group*>calloc(n.n_groups + 1, sizeof(Group))
        n.parts = <Node**>calloc(n.n_parts + 1, sizeof(Node*))
        if n.slots == NULL or n.groups == NULL or n.parts == NULL:
            raise MemoryError
        for i in range(n.n_slots):
            name, check, required, bit, early = <tuple>fields[i]
            slot = &n.slots[i]
            slot.name, slot.check, slot.bit, slot.required, slot.early = <PyObject*>name, node_of(check), bit, required, early
            slot.looked_at = not slot.early and slot.check.op != ANYTHING
            n.n_required += slot.required
            n.n_early += slot.early
        for i in range(n.n_groups):
            n.groups[i].when, n.groups[i].mask, n.groups[i].least, n.groups[i].most = groups[i]
        for i in range(n.n_parts):
            n.parts[i] = node_of(parts[i])
        return 0


cdef int whole(Node* c, object value, int rounds) except -2:
    cdef Walk w
    w.n, w.depth, w.left, w.rounds = 0, 0, ALTERNATIVES, rounds
    try:
        return run(c, <PyObject*>value, &w)
    finally:
        close_scopes(0, &w)


cdef PyObject* borrowed(dict held, str name):
    return PyDict_GetItem(held, name)


cdef Node* node_of(Check check) noexcept:
    return NULL if check is None else &check.node


cdef Check new(int op, object data=None, int64_t low=0, int64_t high=INT64_MAX):
    cdef Check out = Check.__new__(Check)
    out.node.op, out.node.low, out.node.high = op, low, high
    out.node.nullable = op == ANYTHING
    if data is not None:
        out._hold("data", data)
        out._lay_out()
    return out


# -- scalars


def anything() -> Check:
    """Accept every value, null included."""
    return new(ANYTHING)


def unknown() -> Check:
    """Answer 0 for every value."""
    return new(UNKNOWN)


cdef object _options(texts):
    """Return the texts in the form in which a walk searches them: a few ASCII ones are compared one by one."""
    texts = tuple(dict.fromkeys(texts))
    return texts if len(texts) <= COMPARED and all([type(t) is str and t.isascii() for t in texts]) else frozenset(texts)


def boolean() -> Check:
    """A bool."""
    return new(BOOLEAN)


def same(bint value) -> Check:
    """The bool ``value``."""
    return new(SAME, value)


def text(low=0, high=None, *, but=()) -> Check:
    """A text of ``low`` to ``high`` code points that is not in ``but``."""
    return new(TEXT, _options(but) if but else None, low, INT64_MAX if high is None else high)


def ascii(low=0, high=None) -> Check:
    """An ASCII text of ``low`` to ``high`` bytes; other texts are left to the rules."""
    return new(ASCII, None, low, INT64_MAX if high is None else high)


def printable(low=1, high=None, str refused="") -> Check:
    """A text of ``low`` to ``high`` printable ASCII characters without ``refused``."""
    cdef Check out = new(PRINTABLE, None, low, INT64_MAX if high is None else high)
    out.node.total = ord(refused) if refused else 0
    return out


def option(*options) -> Check:
    """One of these texts."""
    return new(OPTION, _options(options))


def integer(low=INT64_MIN, high=INT64_MAX) -> Check:
    """An int from ``low`` to ``high``, but not a bool."""
    return new(INTEGER, None, low, high)


def floating(double low, double high) -> Check:
    """A float from ``low`` to ``high``."""
    cdef Check out = new(FLOAT)
    out.node.least, out.node.most = low, high
    return out


def multiple(step) -> Check:
    """An int that is a multiple of the int ``step``."""
    if not step:
        raise ValueError("a step of nothing")
    return new(MULTIPLE, step)


def matching(function not None) -> Check:
    """A text for which ``function`` returns something true: the ``search`` of an RE2 pattern, or a format."""
    return new(PATTERN, function)


# -- Kubernetes' text formats


def dns_label() -> Check:
    """An RFC 1123 label of at most 63 characters."""
    return new(SUBDOMAIN, None, 0, NAME_MAX)


def dns_subdomain() -> Check:
    """RFC 1123 labels separated by dots, at most 253 characters."""
    return new(SUBDOMAIN, None, DOTS, SUBDOMAIN_MAX)


def dns1035_label() -> Check:
    """A DNS label that begins with a letter."""
    return new(LABEL_1035)


def path_segment() -> Check:
    """A name that can be a path segment; one that begins with a dot is left to the rules."""
    return new(SEGMENT)


def generated(bint dots) -> Check:
    """A prefix from which names are generated: a name, possibly with a trailing dash."""
    return new(GENERATED, None, DOTS if dots else 0, SUBDOMAIN_MAX if dots else NAME_MAX)


def qualified_name(bint capitals=False, bint prefixed=False) -> Check:
    """A label key; ``capitals`` allows capitals in its prefix, ``prefixed`` requires a prefix."""
    return new(QUALIFIED, None, (CAPITALS if capitals else 0) | (PREFIXED if prefixed else 0))


def label_value() -> Check:
    """The value of a label, possibly empty."""
    return new(LABEL_VALUE)


def data_key() -> Check:
    """A key of a ConfigMap or Secret; one that begins with a dot is left to the rules."""
    return new(DATA_KEY)


def port_name() -> Check:
    """An IANA service name."""
    return new(PORT_NAME)


def unpadded() -> Check:
    """A non-empty ASCII text without leading or trailing white space."""
    return new(UNPADDED)


def path(bint relative=True, bint folders=True) -> Check:
    """A path without "..". ``relative``: it must not begin with a slash; without ``folders`` it must not contain any."""
    return new(PATH, None, (RELATIVE if relative else 0) | (FOLDERS if folders else 0))


def group_version() -> Check:
    """An apiVersion with a version."""
    return new(GROUP_VERSION)


def ipv4() -> Check:
    """An IPv4 address in canonical form that is allowed in endpoints."""
    return new(IPV4)


def amount(bint whole=False) -> Check:
    """A canonical non-negative quantity; ``whole`` refuses fractions."""
    return new(AMOUNT, None, WHOLE if whole else 0)


def member(Scope scope not None) -> Check:
    """A text that was claimed in the scope before."""
    return new(MEMBER, scope)


# -- containers


def record(fields not None, *, required=(), rest=None, rest_key=None, low=0, high=None, first=(), groups=(), keys=(), not_above=(),
           rules=()) -> Check:
    """An object with named fields.

    - ``fields`` maps names to checks; ``required`` ones must be present, ``first`` ones are checked before the others.
    - ``rest`` is the check of unnamed fields (None: refused), ``rest_key`` that of their names.
    - ``low`` to ``high`` is the allowed number of fields.
    - ``groups`` has (names, least, most): so many of these fields must be present; with a fourth element, other names, only if one of those
      is present.
    - ``keys`` has (scope, names): the values of these fields are claimed together.
    - ``not_above`` has pairs of names of quantity maps: no quantity of the first may exceed its namesake in the second.
    - ``rules`` has (names, function): the function is called with the object if all of these fields are present.

    All groups and rules together may use at most 64 names.
    """
    cdef Check out = new(OBJECT, None, low, INT64_MAX if high is None else high)
    bits = {}
    for names in [names for g in groups for names in (g[0], *g[3:])] + [r[0] for r in rules]:
        for name in names:
            bits.setdefault(name, 1 << len(bits))
    if len(bits) > 64 or not (set(bits) | set(required) | set(first)) <= fields.keys():
        raise ValueError("too many fields that depend on one another, or one that is not there")

    def mask(names):
        return sum({bits[name] for name in names})

    out._hold("fields", tuple([
        (str(name), <Check?>check, name in required, bits.get(name, 0), name in first) for name, check in fields.items()
    ]))
    out._hold("index", {name: place for place, name in enumerate(fields)})
    out._hold("rest", rest)
    out._hold("key", rest_key)
    out._hold("groups", tuple([(mask(*when) if when else 0, mask(names), least, most) for names, least, most, *when in groups]))
    out._hold("rules", tuple([(mask(names), rule) for names, rule in rules]))
    out._hold("keys", tuple([(<Scope?>scope, tuple(names)) for scope, names in keys]))
    out._hold("not_above", tuple(not_above))
    out._lay_out()
    return out


def mapping(Check value not None, Check key=None, *, low=0, high=None, total=-1) -> Check:
    """A map of ``low`` to ``high`` entries whose keys and values have ``total`` bytes at most (-1: any)."""
    cdef Check out = new(MAP, None, low, INT64_MAX if high is None else high)
    out.node.total = total
    out._hold("rest", value)
    out._hold("key", key)
    out._lay_out()
    return out


def listing(Check item not None, *, low=0, high=None) -> Check:
    """A list of ``low`` to ``high`` items."""
    cdef Check out = new(LIST, None, low, INT64_MAX if high is None else high)
    out._hold("rest", item)
    out._lay_out()
    return out


def all_of(*checks) -> Check:
    """All checks hold."""
    return alternatives(ALL_OF, checks)


def any_of(*checks) -> Check:
    """At least one check holds; each is also tried for null."""
    return alternatives(ANY_OF, checks)


def one_of(*checks) -> Check:
    """One check holds and the others certainly do not."""
    return alternatives(ONE_OF, checks)


def none_of(*checks) -> Check:
    """All checks certainly do not hold."""
    return alternatives(NOT, checks)


def lazily(make not None) -> Check:
    """The check that ``make()`` returns; called once, when the first value arrives."""
    return new(LAZY, make)


def by_kind(*, Check text=None, Check integer=None, Check floating=None, Check boolean=None, Check array=None, Check object=None) -> Check:
    """A check for each JSON type; types without a check are refused."""
    return alternatives(BY_KIND, (text, integer, floating, boolean, array, object))


cdef Check alternatives(int op, tuple checks):
    cdef Check out = new(op)
    out._hold("parts", tuple([<Check?>check for check in checks]) if op != BY_KIND else checks)
    out._lay_out()
    return out
