# The design of the unit: what most expressions do on ordinary values, without a Python call.
#
#     checked tree (syntax.py)  ──quick.py──▶  Step, a tree built once  ──▶  Step.evaluate(variables, limit)
#
# The interpreter (interpreter.py) says what an expression comes to and costs; a Step is the same for values whose case is plain: what is
# there, of exactly the types that an operator is mostly asked for, within the limit. For anything else it answers LEAVE, and the whole
# expression is interpreted from its beginning: so errors and their words, optional values, dyn and what upstream does at the edges stand in
# one place. That may be done because nothing here has an effect: quick.py takes functions of the libraries and no others.
#
# Costs are summed as the interpreter sums them. They are compared with the limit at the end, and, where there is work behind a step
# that its expression's length does not bound (functions, loops), at each of them.

from libc.stdint cimport int64_t


cdef enum Op:
    LESS
    AT_MOST
    MORE
    AT_LEAST
    SAME
    OTHER
    PLUS
    MINUS
    TIMES
    OVER
    REST


cdef struct Tally:
    int64_t cost
    int64_t limit
    int64_t looks  # from this cost on others may go before it


# ``run`` is the value of an expression, ``place`` that of the beginning of a longer path, which costs nothing by itself.
cdef class Step:
    cdef object run(self, dict variables, Tally* tally)
    cdef object place(self, dict variables, Tally* tally)


cdef class Fixed(Step):
    cdef readonly object value


# A variable or what a step gives, and the keys that lead on from there: each a text, a number or a Step.
cdef class Path(Step):
    cdef str variable
    cdef Step start
    cdef tuple keys


cdef class Has(Step):
    cdef Step at
    cdef str field


cdef class Compared(Step):
    cdef int op
    cdef bint texts  # whether the checker knew that both are texts, which cost by their length
    cdef Step left, right
    cdef object equal(self, object a, object b, Tally* tally)


cdef class Computed(Step):
    cdef int op
    cdef bint texts
    cdef Step left, right


cdef class Decided(Step):
    cdef bint deciding
    cdef Step left, right


cdef class Chosen(Step):
    cdef Step condition, yes, no


cdef class Opposite(Step):
    cdef Step of


cdef class NotFalse(Step):
    cdef Step of


cdef class Member(Step):
    cdef Step of
    cdef frozenset texts


cdef class Called(Step):
    cdef object function, counted, ahead
    cdef str overload
    cdef list steps


cdef class Loop(Step):
    cdef str variable, second, accumulator
    cdef Step over, init, condition, step, result
