# Non-resource paths: exact ones, and prefixes of which the longest match wins.
#
# The table owns two dictionaries. A lookup costs one hash access for an exact path, plus one for each "/" within the length of the longest
# prefix, regardless of the number of prefixes and the length of the path. Why C: every non-resource request passes it.


cdef class PathTable:
    """Maps exact paths, and prefixes (which end with "/"), to handlers."""

    def __init__(self):
        self._exact, self._prefixes, self._longest = {}, {}, 0

    def exact(self, str path not None, handler):
        self._exact[path] = handler

    def prefix(self, str path not None, handler):
        if not path.endswith("/"):
            raise ValueError(f"a prefix ends with /: {path}")
        self._prefixes.setdefault(path, handler)
        self._longest = max(self._longest, <Py_ssize_t>len(path))

    def find(self, str path not None):
        """The handler of a path: of the exact path, else of the longest prefix; None when there is none."""
        cdef object found = self._exact.get(path)
        cdef int kind
        cdef void *data
        cdef Py_ssize_t at
        if found is not None:
            return found
        kind, data = PyUnicode_KIND(path), PyUnicode_DATA(path)
        at = min(<Py_ssize_t>len(path), self._longest)
        while at > 0:
            at -= 1
            if PyUnicode_READ(kind, data, at) == c"/":
                found = self._prefixes.get(PyUnicode_Substring(path, 0, at + 1))
                if found is not None:
                    return found
        return None

    def paths(self) -> list:
        """All exact paths and prefixes, sorted."""
        return sorted({*self._exact, *self._prefixes})
