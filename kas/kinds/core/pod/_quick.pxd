# The design of the quick check of pods: one walk over containers, volumes and tolerations that answers yes, or leaves it to the rules.
#
#   values.pxi                    texts in memory, amounts, dicts without reference counting     (shared with _containers.pyx)
#   scalars.pxi                   names, ports, paths, keys: each says that no rule refuses the value
#   env, resources, containers    containers by their fields; a field that is not named there is for the rules
#   volumes, tolerations          likewise
#
# Each function gets a value that may be anything (NULL and None: absent) and answers whether it certainly is fine. What concerns several
# parts of a pod travels along: the names and ports taken, the volumes there are, the paths of one projected volume. Nothing is changed,
# nothing is kept, and only the sets of what was seen are made.

from libc.stdint cimport int64_t


cdef int64_t milli(object s)
cdef bint quick_container(dict container, bint init, dict volumes, set names, set ports)
cdef bint quick_source(int what, dict source, set paths)
