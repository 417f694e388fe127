# Design of this unit: evaluate the common operations on ordinary values without Python calls.
#
#     checked tree (syntax.py)  ──quick.py──▶  Step, a tree built once  ──▶  Step.evaluate(variables, limit)
#
# The interpreter (interpreter.py) defines the value and the cost of an expression. A Step yields the same in the plain cases: values that
# are present, of exactly the types an operator usually gets, within the cost limit. In any other case it returns LEAVE, and the interpreter
# evaluates the whole expression from the start. So errors and their words, optional values, dyn and upstream's edge cases are implemented
# in one place. Starting over is safe because nothing here has side effects: quick.py only takes functions of the libraries.
#
# Costs are summed as in the interpreter. They are compared with the limit at the end and also at each step whose work is not bounded by the
# length of its expression (functions, loops).

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
    int64_t looks  # the cost at which to let other threads run next


# ``run`` yields the value of an expression, ``place`` that of the start of a longer path, which costs nothing by itself.
cdef class Step:
    cdef object run(self, dict variables, Tally* tally)
    cdef object place(self, dict variables, Tally* tally)


cdef class Fixed(Step):
    cdef readonly object value


# A variable or the result of a step, and the keys of a path from there: each a string, a number or a Step.
cdef class Path(Step):
    cdef str variable
    cdef Step start
    cdef tuple keys


cdef class Has(Step):
    cdef Step at
    cdef str field


cdef class Compared(Step):
    cdef int op
    cdef bint texts  # whether the checker knows that both are strings, whose comparison costs by length
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
