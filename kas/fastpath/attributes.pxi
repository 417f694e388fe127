# The input of an authorizer. Why C: one is created per request, and each authorizer reads most of it.


cdef class Attributes:
    """What an authorizer decides about, like upstream's ``authorizer.Attributes``.

    ``field_requirements`` and ``label_requirements`` are the conditions of the parsed selectors (``FieldTerm`` and ``Requirement`` of
    kas.meta.selectors). They are None without a selector, or when none of it could be parsed; ``field_error`` and ``label_error`` then say
    why.
    """

    def __init__(
        self, user, str verb not None, str namespace not None="", str api_group not None="", str api_version not None="",
        str resource not None="", str subresource not None="", str name not None="", bint resource_request=True, str path not None="",
        field_requirements=None, label_requirements=None, str field_error not None="", str label_error not None="",
    ):
        self.user, self.verb, self.namespace = user, verb, namespace
        self.api_group, self.api_version, self.resource, self.subresource = api_group, api_version, resource, subresource
        self.name, self.resource_request, self.path = name, resource_request, path
        self.field_requirements, self.label_requirements = field_requirements, label_requirements
        self.field_error, self.label_error = field_error, label_error

    def is_read_only(self) -> bool:
        return self.verb in ("get", "list", "watch")

    def __repr__(self):
        names = (
            "user", "verb", "namespace", "api_group", "api_version", "resource", "subresource", "name", "resource_request", "path",
            "field_requirements", "label_requirements", "field_error", "label_error",
        )
        return "Attributes(" + ", ".join(f"{n}={getattr(self, n)!r}" for n in names if getattr(self, n)) + ")"


def attributes_of(Request req not None):
    """The authorization attributes of a request, without its selectors."""
    cdef RequestInfo info = req.info
    cdef Attributes a = Attributes.__new__(Attributes)
    a.user, a.verb, a.path = req.user, info.verb, info.path
    a.field_error = a.label_error = ""
    a.resource_request = info.is_resource_request
    if info.is_resource_request:
        a.namespace, a.api_group, a.api_version = info.namespace, info.api_group, info.api_version
        a.resource, a.subresource, a.name = info.resource, info.subresource, info.name
    else:
        a.namespace = a.api_group = a.api_version = a.resource = a.subresource = a.name = ""
    return a
