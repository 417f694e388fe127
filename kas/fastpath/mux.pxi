# Paths beside the REST resources: exact ones and prefixes, of which the longest wins.
#
# Owns two dictionaries. Costs one look-up for an exact path, and one for each "/" of the part that a prefix can cover, however
# many prefixes there are and however long the path. Why C: every request that is no resource's comes through here.


cdef class PathTable:
    """``exact`` path -> handler and ``prefix`` (which ends with "/") -> handler."""

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
        """The handler of a path, None when nobody has it."""
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
        """All of them, sorted."""
        return sorted({*self._exact, *self._prefixes})
