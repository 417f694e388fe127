# What Python builds checks with.

cdef class Scope:
    """A name under which a walk remembers values; see ``Check.claim`` and ``member``."""

    def __cinit__(self, str name not None):
        self.name = name


cdef class Check:
    """What holds of a value; made by the functions of this module, immutable and safe to share between threads and programs."""

    def __cinit__(self):
        self.node.high, self.node.total = INT64_MAX, -1
        self.held = {}

    def __dealloc__(self):
        free(self.node.slots)
        free(self.node.groups)
        free(self.node.parts)

    def passes(self, value) -> bool:
        """Whether the value is certainly valid; False means that somebody must look."""
        return whole(&self.node, value, 0) == 1

    def soon_passes(self, value) -> bool:
        """``passes``, False as well where that takes long."""
        return whole(&self.node, value, MAX_ROUNDS) == 1

    def answer(self, value) -> int:
        """1: certainly valid, -1: certainly not, 0: neither is certain."""
        return whole(&self.node, value, 0)

    def claim(self, Scope scope not None, str instead=None) -> Check:
        """The same check, for values that no two places of the scope share; scalars only.

        ``instead`` is claimed for whatever value: of all that claim it, one may be there.
        """
        cdef Check out = self._copy()
        if "claims" in self.held or self.node.op in (ANYTHING, LAZY):
            raise ValueError("values of any kind, or of two scopes, are not claimed")
        out._hold("claims", scope)
        out._hold("claimed", instead)
        out._lay_out()
        return out

    def or_null(self) -> Check:
        """The same check, to which null is as good."""
        cdef Check out = self._copy()
        out.node.nullable = True
        return out

    def exact(self) -> Check:
        """The same check, whose refusal is certain: nothing it refuses is valid."""
        cdef Check out = self._copy()
        out.node.no = -1
        return out

    def where(self, rule not None) -> Check:
        """The same check with a rule by hand: ``rule(value)`` is asked of what passed, and says whether it is valid."""
        cdef Check out = self._copy()
        out._hold("rule", rule)
        out._lay_out()
        return out

    def opening(self, *scopes) -> Check:
        """The same check, for which these scopes are new with each value."""
        cdef Check out = self._copy()
        if self.node.op < OBJECT:
            raise ValueError("only what holds values opens scopes")
        out._hold("opens", (self.held.get("opens") or ()) + scopes)
        out._lay_out()
        return out

    def distinct(self, Scope scope not None) -> Check:
        """The same check of a list, whose items claim one thing each in this scope, which is new with each list."""
        cdef Check out = self._copy()
        if self.node.op != LIST or "items" in self.held:
            raise ValueError("only a list has items that differ, and in one way")
        out._hold("items", scope)
        out._lay_out()
        return out

    @property
    def is_anything(self) -> bool:
        """Whether no value is refused."""
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
        """Point the node at what is held, and make slots, groups and parts of it."""
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
    """No rule looks at it; null as well."""
    return new(ANYTHING)


def unknown() -> Check:
    """Of no value anything is certain."""
    return new(UNKNOWN)


cdef object _options(texts):
    """The texts as a walk looks for one: a few of ASCII are compared one by one."""
    texts = tuple(dict.fromkeys(texts))
    return texts if len(texts) <= COMPARED and all([type(t) is str and t.isascii() for t in texts]) else frozenset(texts)


def boolean() -> Check:
    """True or False."""
    return new(BOOLEAN)


def same(bint value) -> Check:
    """True or False and nothing else."""
    return new(SAME, value)


def text(low=0, high=None, *, but=()) -> Check:
    """A text of ``low`` to ``high`` code points, none of those in ``but``."""
    return new(TEXT, _options(but) if but else None, low, INT64_MAX if high is None else high)


def ascii(low=0, high=None) -> Check:
    """An ASCII text of ``low`` to ``high`` bytes; others are for the rules."""
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
    """An int from ``low`` to ``high``; bools are none."""
    return new(INTEGER, None, low, high)


def floating(double low, double high) -> Check:
    """A float from ``low`` to ``high``."""
    cdef Check out = new(FLOAT)
    out.node.least, out.node.most = low, high
    return out


def multiple(step) -> Check:
    """An int that ``step``, an int, divides."""
    if not step:
        raise ValueError("a step of nothing")
    return new(MULTIPLE, step)


def matching(function not None) -> Check:
    """A text of which ``function`` says something true: the ``search`` of a pattern in RE2, a format."""
    return new(PATTERN, function)


# -- texts of Kubernetes


def dns_label() -> Check:
    """RFC 1123, at most 63."""
    return new(SUBDOMAIN, None, 0, NAME_MAX)


def dns_subdomain() -> Check:
    """RFC 1123 labels with dots between, at most 253."""
    return new(SUBDOMAIN, None, DOTS, SUBDOMAIN_MAX)


def dns1035_label() -> Check:
    """A DNS label that begins with a letter."""
    return new(LABEL_1035)


def path_segment() -> Check:
    """A name that can stand in a path; one that begins with a dot is for the rules."""
    return new(SEGMENT)


def generated(bint dots) -> Check:
    """What names are generated from: a name, perhaps with a dash at its end."""
    return new(GENERATED, None, DOTS if dots else 0, SUBDOMAIN_MAX if dots else NAME_MAX)


def qualified_name(bint capitals=False, bint prefixed=False) -> Check:
    """A label key; ``capitals`` allows them in its prefix, ``prefixed`` demands one."""
    return new(QUALIFIED, None, (CAPITALS if capitals else 0) | (PREFIXED if prefixed else 0))


def label_value() -> Check:
    """The value of a label, which may be empty."""
    return new(LABEL_VALUE)


def data_key() -> Check:
    """A key of a ConfigMap or Secret; one that begins with a dot is for the rules."""
    return new(DATA_KEY)


def port_name() -> Check:
    """An IANA service name."""
    return new(PORT_NAME)


def unpadded() -> Check:
    """An ASCII text that neither begins nor ends with white space, nor is empty."""
    return new(UNPADDED)


def path(bint relative=True, bint folders=True) -> Check:
    """A path without two dots together; ``relative`` ones do not begin with a slash, without ``folders`` there is no slash at all."""
    return new(PATH, None, (RELATIVE if relative else 0) | (FOLDERS if folders else 0))


def group_version() -> Check:
    """An apiVersion that says a version."""
    return new(GROUP_VERSION)


def ipv4() -> Check:
    """An IPv4 address in canonical form that an endpoint may have."""
    return new(IPV4)


def amount(bint whole=False) -> Check:
    """A canonical quantity that is not negative; ``whole`` refuses fractions."""
    return new(AMOUNT, None, WHOLE if whole else 0)


def member(Scope scope not None) -> Check:
    """A text that was claimed in the scope before."""
    return new(MEMBER, scope)


# -- what holds values


def record(fields not None, *, required=(), rest=None, rest_key=None, low=0, high=None, first=(), groups=(), keys=(), not_above=(),
           rules=()) -> Check:
    """An object with the fields named.

    ``fields`` maps names to checks; those ``required`` are there, those ``first`` are looked at before the others. ``rest`` is for
    fields not named (None: refused), ``rest_key`` for their names. ``low`` to ``high`` fields are there. ``groups`` has (names, least,
    most): so many of them are there, or with a fourth, other names: so many are there if one of these is; ``keys`` has (scope, names): their values together are claimed; ``not_above`` pairs of names of
    quantity maps, the first never above the second; ``rules`` has (names, function), which is asked of the object where all of these are
    there. Of all groups and rules together at most 64 names.
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
    """A map of ``low`` to ``high`` entries whose texts take ``total`` bytes at the most (-1: any)."""
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
    """Each holds."""
    return alternatives(ALL_OF, checks)


def any_of(*checks) -> Check:
    """At least one holds; null is asked of each."""
    return alternatives(ANY_OF, checks)


def one_of(*checks) -> Check:
    """One holds and the others certainly do not."""
    return alternatives(ONE_OF, checks)


def none_of(*checks) -> Check:
    """All certainly do not hold."""
    return alternatives(NOT, checks)


def lazily(make not None) -> Check:
    """What ``make()`` gives, asked once, when a value first comes to it."""
    return new(LAZY, make)


def by_kind(*, Check text=None, Check integer=None, Check floating=None, Check boolean=None, Check array=None, Check object=None) -> Check:
    """What holds of the value depends on its JSON type; types without a check are refused."""
    return alternatives(BY_KIND, (text, integer, floating, boolean, array, object))


cdef Check alternatives(int op, tuple checks):
    cdef Check out = new(op)
    out._hold("parts", tuple([<Check?>check for check in checks]) if op != BY_KIND else checks)
    out._lay_out()
    return out
