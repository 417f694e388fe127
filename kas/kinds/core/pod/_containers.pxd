# Design of this unit: sums over a pod's containers, and their computed defaults.
#
# quality_of_service sums requests and limits in thousandths; default_containers fills in computed fields. Both read canonical quantities
# with milli (kas/checks/_values.pxd) and leave other forms to the Python code.

from cpython.object cimport PyObject
from libc.stdint cimport int64_t


# Amounts of CPU and memory in thousandths (of a core, of a byte).
cdef struct Need:
    int64_t cpu
    int64_t memory


cdef int add_up(PyObject* v, Need* total)
cdef bint is_fine(PyObject* v)
