"""Expressions on plain values: steps that yield what the interpreter would, or leave the expression to it. ``_quick.pxd`` has the design.

Bounds checks are off in the whole unit: lists and tuples are indexed below the size read in the same step.
"""

from cpython.dict cimport PyDict_CheckExact, PyDict_GetItem
from cpython.list cimport PyList_Check
from cpython.object cimport Py_EQ, Py_GE, Py_GT, Py_LE, Py_LT, PyObject, PyObject_RichCompareBool
from libc.math cimport ceil

from kas.cel.problems import EvaluationError
from kas.cel.values import Struct, Unreadable
from kas.meta.offload import abandoned

cdef extern from "Python.h":
    bint PyLong_CheckExact(object)
    bint PyFloat_CheckExact(object)
    bint PyUnicode_CheckExact(object)
    bint PyBool_Check(object)
    Py_ssize_t PyUnicode_GET_LENGTH(object)
    double PyFloat_AS_DOUBLE(object)
    long long PyLong_AsLongLongAndOverflow(object, int*) except? -1

cdef extern from *:
    bint added "__builtin_add_overflow"(long long, long long, long long*) nogil
    bint taken "__builtin_sub_overflow"(long long, long long, long long*) nogil
    bint multiplied "__builtin_mul_overflow"(long long, long long, long long*) nogil

cdef object LEAVE = object()
cdef object UNREADABLE = Unreadable
cdef dict OPS = {
    "_<_": LESS, "_<=_": AT_MOST, "_>_": MORE, "_>=_": AT_LEAST, "_==_": SAME, "_!=_": OTHER,
    "_+_": PLUS, "_-_": MINUS, "_*_": TIMES, "_/_": OVER, "_%_": REST,
}
cdef int LOOKS_EVERY = 25_000  # cost units, about a millisecond, during which no other thread can run
cdef int FREE = 100  # characters of a string whose comparison costs one unit (interpreter.FREE)


cdef inline int64_t traversal(Py_ssize_t n):
    """Return the cost of traversing ``n`` characters, in floating point as upstream: 30 of them cost 4 units."""
    return <int64_t> ceil(n * 0.1)


cdef inline bint is_object(object value):
    return PyDict_CheckExact(value) or type(value) is Struct


cdef class Step:
    def evaluate(self, variables, int64_t limit):
        """Return (value, cost), or None to leave the expression to the interpreter."""
        cdef Tally tally
        cdef object found
        if not PyDict_CheckExact(variables):
            return None
        tally.cost, tally.limit, tally.looks = 0, limit, LOOKS_EVERY
        found = self.run(<dict> variables, &tally)
        if found is LEAVE or tally.cost > limit:
            return None
        return found, tally.cost

    cdef object run(self, dict variables, Tally* tally):
        return LEAVE

    cdef object place(self, dict variables, Tally* tally):
        return self.run(variables, tally)


cdef class Fixed(Step):
    def __init__(self, value):
        self.value = value

    cdef object run(self, dict variables, Tally* tally):
        return self.value


cdef class Path(Step):
    def __init__(self, str variable, Step start, tuple keys):
        self.variable, self.start, self.keys = variable, start, keys

    def then(self, key):
        """Return the path extended by one key."""
        return Path(self.variable, self.start, (*self.keys, key))

    cdef object run(self, dict variables, Tally* tally):
        if not isinstance(self.start, Chosen):  # a choice between places is not a name and costs its selections
            tally.cost += 1
        return self.place(variables, tally)

    cdef object place(self, dict variables, Tally* tally):
        cdef PyObject* found
        cdef object value, key
        cdef Py_ssize_t i, n = len(self.keys)
        if self.start is not None:
            value = self.start.place(variables, tally)
        else:
            found = PyDict_GetItem(variables, self.variable)
            if found is NULL:
                return LEAVE
            value = <object> found
        for i in range(n):
            key = self.keys[i]
            if isinstance(key, Step):
                key = (<Step> key).place(variables, tally)
            if PyUnicode_CheckExact(key) and is_object(value):
                found = PyDict_GetItem(value, key)
                if found is NULL:
                    return LEAVE
                value = <object> found
            elif PyLong_CheckExact(key) and PyList_Check(value):
                if not 0 <= key < len(<list> value):
                    return LEAVE
                value = (<list> value)[<Py_ssize_t> key]
            else:
                return LEAVE
            tally.cost += 1
        return LEAVE if type(value) is UNREADABLE else value


cdef class Has(Step):
    def __init__(self, Step at, str field):
        self.at, self.field = at, field

    cdef object run(self, dict variables, Tally* tally):
        cdef object value = self.at.place(variables, tally)
        cdef PyObject* found
        if not is_object(value):
            return LEAVE
        tally.cost += 1
        found = PyDict_GetItem(value, self.field)
        if found is NULL:
            return False
        return LEAVE if type(<object> found) is UNREADABLE else True


cdef inline int64_t sized(object value):
    return PyUnicode_GET_LENGTH(value) if PyUnicode_CheckExact(value) else 1


cdef inline bint is_simple(object value):
    return value is None or PyUnicode_CheckExact(value) or PyLong_CheckExact(value) or PyBool_Check(value)


cdef class Compared(Step):
    def __init__(self, str symbol, str overload, Step left, Step right):
        self.op, self.left, self.right = OPS[symbol], left, right
        self.texts = overload.endswith("_string")

    cdef object run(self, dict variables, Tally* tally):
        cdef object a = self.left.run(variables, tally)
        cdef object b = self.right.run(variables, tally)
        if self.op == SAME or self.op == OTHER:
            return self.equal(a, b, tally)
        if PyLong_CheckExact(a) and PyLong_CheckExact(b):
            tally.cost += 1
        elif PyFloat_CheckExact(a) and PyFloat_CheckExact(b):
            if PyFloat_AS_DOUBLE(a) != PyFloat_AS_DOUBLE(a) or PyFloat_AS_DOUBLE(b) != PyFloat_AS_DOUBLE(b):
                return LEAVE
            tally.cost += 1
        elif PyUnicode_CheckExact(a) and PyUnicode_CheckExact(b):
            tally.cost += traversal(min(PyUnicode_GET_LENGTH(a), PyUnicode_GET_LENGTH(b))) if self.texts else 1
        else:
            return LEAVE
        if self.op == LESS:
            return PyObject_RichCompareBool(a, b, Py_LT)
        if self.op == AT_MOST:
            return PyObject_RichCompareBool(a, b, Py_LE)
        if self.op == MORE:
            return PyObject_RichCompareBool(a, b, Py_GT)
        return PyObject_RichCompareBool(a, b, Py_GE)

    cdef object equal(self, object a, object b, Tally* tally):
        cdef bint same
        if not is_simple(a) or not is_simple(b):
            return LEAVE
        tally.cost += traversal(min(sized(a), sized(b)))
        same = type(a) is type(b) and PyObject_RichCompareBool(a, b, Py_EQ)
        return same if self.op == SAME else not same


cdef class Computed(Step):
    def __init__(self, str symbol, str overload, Step left, Step right):
        self.op, self.left, self.right = OPS[symbol], left, right
        self.texts = overload == "add_string"

    cdef object run(self, dict variables, Tally* tally):
        cdef object a = self.left.run(variables, tally)
        cdef object b = self.right.run(variables, tally)
        cdef long long x, y, out = 0
        cdef int beyond_x = 0, beyond_y = 0
        if self.op == PLUS and PyUnicode_CheckExact(a) and PyUnicode_CheckExact(b):
            tally.cost += traversal(PyUnicode_GET_LENGTH(a) + PyUnicode_GET_LENGTH(b)) if self.texts else 1
            return LEAVE if tally.cost > tally.limit else a + b
        if not (PyLong_CheckExact(a) and PyLong_CheckExact(b)):
            return LEAVE
        x, y = PyLong_AsLongLongAndOverflow(a, &beyond_x), PyLong_AsLongLongAndOverflow(b, &beyond_y)
        if beyond_x or beyond_y:
            return LEAVE
        if self.op == PLUS:
            beyond_x = added(x, y, &out)
        elif self.op == MINUS:
            beyond_x = taken(x, y, &out)
        elif self.op == TIMES:
            beyond_x = multiplied(x, y, &out)
        elif y == 0 or y == -1:  # an error or, for the least number, an overflow
            return LEAVE
        elif self.op == OVER:
            out = x // y  # C's division: cdivision is on
        else:
            out = x % y
        if beyond_x:
            return LEAVE
        tally.cost += 1
        return out


cdef class Decided(Step):
    def __init__(self, bint deciding, Step left, Step right):
        self.deciding, self.left, self.right = deciding, left, right

    cdef object run(self, dict variables, Tally* tally):
        cdef object found = self.left.run(variables, tally)
        if found is (True if self.deciding else False):
            return found
        if not PyBool_Check(found):
            return LEAVE
        found = self.right.run(variables, tally)
        return found if PyBool_Check(found) else LEAVE


cdef class Chosen(Step):
    def __init__(self, Step condition, Step yes, Step no):
        self.condition, self.yes, self.no = condition, yes, no

    cdef object run(self, dict variables, Tally* tally):
        cdef object found = self.condition.run(variables, tally)
        if found is True:
            return self.yes.place(variables, tally)
        return self.no.place(variables, tally) if found is False else LEAVE


cdef class Opposite(Step):
    def __init__(self, Step of):
        self.of = of

    cdef object run(self, dict variables, Tally* tally):
        cdef object found = self.of.run(variables, tally)
        if not PyBool_Check(found):
            return LEAVE
        tally.cost += 1
        return found is False


cdef class NotFalse(Step):
    def __init__(self, Step of):
        self.of = of

    cdef object run(self, dict variables, Tally* tally):
        cdef object found = self.of.run(variables, tally)
        if not PyBool_Check(found):
            return LEAVE
        tally.cost += 1
        return found


cdef class Member(Step):
    def __init__(self, Step of, frozenset texts):
        self.of, self.texts = of, texts

    cdef object run(self, dict variables, Tally* tally):
        cdef object found = self.of.run(variables, tally)
        return found in self.texts if PyUnicode_CheckExact(found) else LEAVE


cdef class Called(Step):
    def __init__(self, function, str overload, steps):
        self.function, self.counted, self.ahead = function.run, function.cost, function.ahead
        self.overload, self.steps = overload, list(steps)

    cdef object run(self, dict variables, Tally* tally):
        cdef list values = []
        cdef object found, result
        for step in self.steps:
            found = (<Step> step).run(variables, tally)
            if found is LEAVE:
                return LEAVE
            values.append(found)
        if tally.cost > tally.limit:
            return LEAVE
        try:
            if self.ahead is not None and tally.cost + self.ahead(values, tally.limit - tally.cost) > tally.limit:
                return LEAVE
            result = self.function(*values)
        except EvaluationError:
            return LEAVE
        if self.counted is not None:
            tally.cost += self.counted(self.overload, values, result)
        else:
            tally.cost += len(result) // 10 if PyUnicode_CheckExact(result) and len(result) >= FREE else 1
        return LEAVE if tally.cost > tally.limit else result


cdef class Loop(Step):
    def __init__(self, Step over, str variable, str second, str accumulator, Step init, Step condition, Step step, Step result):
        self.over, self.variable, self.second, self.accumulator = over, variable, second, accumulator
        self.init, self.condition, self.step, self.result = init, condition, step, result

    cdef object run(self, dict variables, Tally* tally):
        cdef object items = self.over.run(variables, tally), found
        cdef dict inner
        cdef bint of_map = PyDict_CheckExact(items)
        if not of_map and not PyList_Check(items):
            return LEAVE
        inner = variables.copy()
        found = self.init.run(variables, tally)
        if found is LEAVE:
            return LEAVE
        inner[self.accumulator] = found
        for key, value in items.items() if of_map else enumerate(items):
            if self.second:
                inner[self.variable], inner[self.second] = key, value
            else:
                inner[self.variable] = key if of_map else value
            found = self.condition.run(inner, tally)
            if found is LEAVE or tally.cost > tally.limit:
                return LEAVE
            if tally.cost > tally.looks:
                if abandoned():
                    return LEAVE
                tally.looks = tally.cost + LOOKS_EVERY
            if found is not True:
                break
            found = self.step.run(inner, tally)
            if found is LEAVE:
                return LEAVE
            inner[self.accumulator] = found
        inner.pop(self.variable, None)
        if self.second:
            inner.pop(self.second, None)
        return self.result.run(inner, tally)
