# Policy rules, and decisions by them: what of RBAC runs for every request. Feeding the index and compiling what a user may do
# is kas.auth.authz.rbac's; here is the matching of one rule and the look-up of what was compiled.
#
# Why C: a decision that was compiled is two dictionary hits, less than calling the Python function that makes them.


cdef object _set_or_all(values):
    out = frozenset(values or ())
    return None if "*" in out else out


cdef class Rule:
    """A PolicyRule prepared for matching. None instead of a set means "all"."""

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
        """Everything but the name."""
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
    """What is known of one user: roles by scope (with errors), rows by shape of a request, outcomes by path. ``keys`` are the subjects the
    user is; ``epoch`` is the index's when it was made."""

    def __init__(self, dict keys not None, epoch):
        self.keys, self.epoch = keys, epoch
        self.scopes, self.shapes, self.paths = {}, {}, {}


cdef class Decisions:
    """The look-up of compiled decisions; ``RbacIndex`` compiles what is missing.

    ``epoch`` is another object after every change: what was compiled under an older one holds if ``matcher`` says so.
    """

    def __init__(self):
        self.epoch = object()

    def authorize(self, Attributes a not None):
        """(decision, reason, error), or an awaitable of these where ``compile_shape`` or ``compile_path`` gives one."""
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
        """The user's matcher under the present epoch, left in ``user.compiled``."""
        raise NotImplementedError

    def compile_shape(self, Matcher m, Attributes a):
        """((resource names or None, outcome), ...) for requests of this shape, remembered in ``m.shapes``; the last entry holds for all
        names. Or an awaitable of the outcome for this request."""
        raise NotImplementedError

    def compile_path(self, Matcher m, Attributes a):
        """The outcome for a path, remembered in ``m.paths``, or an awaitable of it."""
        raise NotImplementedError
