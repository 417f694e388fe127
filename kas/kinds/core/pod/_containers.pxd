# The design of the unit: sums over a pod's containers, and their computed defaults.
#
# quality_of_service adds up what containers ask for and may use in thousandths; default_containers fills in what is computed. Both read
# canonical quantities with milli (kas/checks/_values.pxd) and leave other forms to the rules in Python.

from cpython.object cimport PyObject
from libc.stdint cimport int64_t


# Amounts in thousandths, of processors and of bytes.
cdef struct Need:
    int64_t cpu
    int64_t memory


cdef int add_up(PyObject* v, Need* total)
cdef bint is_fine(PyObject* v)
