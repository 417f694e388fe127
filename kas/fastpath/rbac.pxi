# The part of RBAC that runs for every request: matching one rule, and looking up compiled decisions. kas.auth.authz.rbac feeds the index
# and compiles what a user may do.
#
# Why C: looking up a compiled decision takes two dictionary hits, less than the call of a Python function that would do it.


cdef object _set_or_all(values):
    out = frozenset(values or ())
    return None if "*" in out else out


cdef class Rule:
    """A PolicyRule prepared for matching. None in place of a set means "all"."""

    def __init__(self, dict rule not None):
        self.source = rule
        self.verbs = _set_or_all(rule.get("verbs"))
        self.groups = _set_or_all(rule.get("apiGroups"))
        resources = rule.get("resources") or ()
        self.resources = _set_or_all(resources)
        # "*/scale" grants the subresource of every resource.
        self.subresources = frozenset([r[2:] for r in resources if r.startswith("*/")])
        names = rule.get("resourceNames")
        self.names = frozenset(names) if names else None
        urls = rule.get("nonResourceURLs") or ()
        self.urls = _set_or_all(urls)
        self.url_prefixes = tuple([u.rstrip("*") for u in urls if u.endswith("*")])

    cpdef bint matches_resource(self, str verb, str group, str resource, str subresource):
        """Whether the rule matches these attributes; the resource name is not checked."""
        if self.verbs is not None and verb not in self.verbs:
            return False
        if self.groups is not None and group not in self.groups:
            return False
        if self.resources is None:
            return True
        if subresource:
            return f"{resource}/{subresource}" in self.resources or subresource in self.subresources
        return resource in self.resources

    cpdef bint matches_path(self, str verb, str path):
        if self.verbs is not None and verb not in self.verbs:
            return False
        return self.urls is None or path in self.urls or (len(self.url_prefixes) > 0 and path.startswith(self.url_prefixes))

    def allows(self, Attributes a not None) -> bool:
        if not a.resource_request:
            return self.matches_path(a.verb, a.path)
        if not self.matches_resource(a.verb, a.api_group, a.resource, a.subresource):
            return False
        return self.names is None or a.name in self.names


cdef class Matcher:
    """Compiled decisions of one user: roles by scope (with errors), rows by shape of a request, outcomes by path.

    ``keys`` are the subjects that match the user; ``epoch`` is the index's epoch at creation.
    """

    def __init__(self, dict keys not None, epoch):
        self.keys, self.epoch = keys, epoch
        self.scopes, self.shapes, self.paths = {}, {}, {}


cdef class Decisions:
    """Looks up compiled decisions; the subclass ``RbacIndex`` compiles missing ones.

    ``epoch`` is replaced by a new object after every change. What was compiled under an older one stays valid only if ``matcher`` says so.
    """

    def __init__(self):
        self.epoch = object()

    def authorize(self, Attributes a not None):
        """Returns (decision, reason, error), or an awaitable of it where ``compile_shape`` or ``compile_path`` returns one."""
        cdef Matcher m
        cdef tuple row, entry
        cdef object found, names
        found = a.user.compiled
        if found is None or (<Matcher?>found).epoch is not self.epoch:
            found = self.matcher(a.user)
        m = <Matcher?>found
        if a.resource_request:
            found = m.shapes.get((a.verb, a.api_group, a.resource, a.subresource, a.namespace))
            if found is None:
                found = self.compile_shape(m, a)
                if type(found) is not tuple:
                    return found
            row = <tuple?>found
            for entry in row:
                names = entry[0]
                if names is None or a.name in <frozenset>names:
                    return entry[1]
        found = m.paths.get((a.verb, a.path, a.namespace))
        return found if found is not None else self.compile_path(m, a)

    def matcher(self, user):
        """The user's matcher for the current epoch, also stored in ``user.compiled``."""
        raise NotImplementedError

    def compile_shape(self, Matcher m, Attributes a):
        """The row for requests of this shape, also stored in ``m.shapes``: ((resource names or None, outcome), ...), where the last entry
        applies to all names. Or an awaitable of the outcome of this request.
        """
        raise NotImplementedError

    def compile_path(self, Matcher m, Attributes a):
        """The outcome for a path, also stored in ``m.paths``, or an awaitable of it."""
        raise NotImplementedError
