"""The fast path of expressions gives the values, errors and costs of the interpreter."""

import gc
import itertools
import math
import random
import weakref

import pytest

from kas import cel
from kas.cel.interpreter import Frame
from kas.cel.types import BOOL, DOUBLE, DYN, INT, STRING, list_of, map_of, struct
from kas.cel.values import NONE, MapList, Message, Optional, Uint

FIELDS = {
    "i": INT, "j": INT, "s": STRING, "t": STRING, "b": BOOL, "f": DOUBLE, "g": DOUBLE, "l": list_of(STRING), "m": map_of(STRING, INT),
    "d": DYN, "n": struct("Inner"), "ms": list_of(struct("Inner")),
}  # fmt: skip
ENV = cel.BASE.extended(
    {"self": struct("Self"), "x": DYN, "y": DYN}, {"Self": FIELDS, "Inner": {"i": INT, "s": STRING, "b": BOOL}}, bindings=True
)
DYNS = [
    None, True, False, 0, 1, -1, 7, 2**63 - 1, -(2**63), 2**63, 0.0, 1.0, -1.5, math.nan, math.inf, "", "a", "b" * 29, "b" * 30, "7", [],
    ["a"], [1, "a", None], {}, {"a": 1}, {"a": {"a": 1}}, {True: 2}, {1: 2}, Uint(7), b"a", NONE, Optional(3), Message("M"),
    MapList([{"k": "a"}], ("k",)),
]  # fmt: skip
BINARY = ["<", "<=", ">", ">=", "==", "!=", "+", "-", "*", "/", "%", "&&", "||", "in"]
OF_X = [
    "x", "!x", "x.a", "has(x.a)", "has(x.a.a)", "x['a']", "x[0]", "x[1]", "x[true]", "x[y]", "x.a.a", "size(x)", "x.size()", "x ? 1 : 2",
    "x ? y : x", "(x ? x : y).a", "x in ['a', 'b']", "x.startsWith('a')", "x.matches('^b*$')", "int(x) + 1",
    "string(x) + 'a'",
    "x.all(k, k == 'a')", "x.exists(k, k > 0)", "x.exists_one(k, k == 'a')", "x.all(k, v, k == v)", "x.map(k, k)", "x.filter(k, k == 'a')",
    "x.?a.orValue(y)", "x.all(k, x.all(n, n == k))", "has(x.a) && x.a > 0", "[x, y]", "{'a': x}", "x.contains(y)", "cel.bind(z, x, z == y)",
    "x.format([y])", "x.isSorted()", "x + y + x", "type(x) == int", "x == null", "null != x", "int('7') + x", "x - -1 > y", "x == [] || y",
]  # fmt: skip
OF_SELF = [
    "self.i <= self.j", "self.s == self.t", "self.s < self.t", "self.s + self.t", "self.f < self.g", "self.f + self.g", "self.i / self.j",
    "self.i % self.j", "self.l.all(e, size(e) < 5)", "self.l.exists(e, e == self.s)", "self.m.all(k, self.m[k] > self.i)",
    "self.ms.all(e, e.i > 0 && has(e.s))", "self.ms.exists_one(e, e.s == self.s)", "has(self.n) ? self.n.i : self.i",
    "!has(self.b) || self.b", "self.d == self.i", "self.d.i > 3", "self.ms[0].s.startsWith(self.s)", "self.s in self.l", "self.l == self.l",
    "self.n.s.size() + self.i > 4 && self.s != ''", "self.s.contains(self.t)", "self.l.size() < 3 && self.l[0] != self.t",
]  # fmt: skip


def shown(found):
    value, cost = found
    return type(value).__name__, str(value) if isinstance(value, cel.EvaluationError) else _bare(value), cost


def _bare(value):
    return ("optional", value.present, repr(value.value)) if isinstance(value, Optional) else repr(value)


def interpreted(program, variables, limit):
    frame = Frame(variables, limit)
    try:
        return program._step(frame), frame.cost
    except cel.EvaluationError as e:
        return e, frame.cost


def agree(program, variables):
    want = interpreted(program, variables, 10**6)
    assert shown(program.run(variables, 10**6)) == shown(want), variables
    for limit in {0, 1, want[1] // 2, want[1] - 1, want[1]}:
        assert shown(program.run(variables, limit)) == shown(interpreted(program, variables, limit)), (variables, limit)


@pytest.mark.parametrize("op", BINARY)
def test_operators_on_values_of_all_types(op):
    program = cel.compile(f"x {op} y", ENV)
    for x, y in itertools.product(DYNS, DYNS):
        agree(program, {"x": x, "y": y})


@pytest.mark.parametrize("text", OF_X)
def test_functions_and_macros_on_values_of_all_types(text):
    program = cel.compile(text, ENV)
    for x in DYNS:
        for y in DYNS[1:30:4]:
            agree(program, {"x": x, "y": y})
    agree(program, {})


def test_constant_conversions_are_done_at_compile_time_and_are_free():
    for text in ("string(duration('1h'))", "int('7') + 1 == 8", "type(1) == int", "string(timestamp('2020-01-02T03:04:05Z')) == x"):
        agree(cel.compile(text, ENV), {"x": "a"})


def test_fields_with_declared_types():
    rng = random.Random(10)
    programs = [cel.compile(text, ENV) for text in OF_SELF]

    def text():
        return rng.choice(["", "a", "ab", "x" * 12, "é" * 30])

    def number():
        return rng.choice([0, 1, -1, 3, -7, 2**63 - 1, -(2**63)])

    def made():
        inner = {"i": number(), "s": text(), "b": rng.random() < 0.5}
        whole = {
            "i": number(), "j": number(), "s": text(), "t": text(), "b": rng.random() < 0.5, "f": rng.random(), "g": rng.random(),
            "l": [text() for _ in range(rng.randrange(4))], "m": {text(): number() for _ in range(rng.randrange(3))}, "d": rng.choice(DYNS),
            "n": inner, "ms": [inner for _ in range(rng.randrange(3))],
        }  # fmt: skip
        return {k: v for k, v in whole.items() if rng.random() < 0.8}

    for _ in range(40):
        me = made()
        for program in programs:
            agree(program, {"self": me})


def test_simple_rules_have_a_fast_path():
    me = {"i": 1, "j": 2, "s": "a", "t": "b", "l": ["a"], "b": True}
    for text in ("self.i <= self.j", "has(self.s) && self.s != ''", "self.l.all(e, e in ['a', 'b'])", "self.b ? self.i + 1 > 0 : false"):
        program = cel.compile(text, ENV)
        assert program.run({"self": me})[0] is True
        assert program._quick({"self": me}, 10**6) is not None


def test_expressions_that_use_the_authorizer_are_interpreted():
    """An authorizer's answer may have to be awaited, and must be requested only once."""
    from kas.cel.admission import environment

    program = cel.compile("authorizer.group('').resource('pods').check('get').allowed() || true", environment(False))
    program.run({})
    assert program._quick({}, 10**6) is None


def test_a_dict_that_computes_its_values_is_left_to_the_interpreter():
    class Lazy(dict):
        def __contains__(self, key):
            return True

        def __getitem__(self, key):
            return 3

    program = cel.compile("x.a == 3 && has(x.a)", ENV)
    assert program.run({"x": Lazy()}) == interpreted(program, {"x": Lazy()}, 10**6) and program.run({"x": Lazy()})[0] is True


@pytest.mark.parametrize("runs", [False, True])
def test_an_unused_expression_is_freed_without_the_collector(runs: bool):
    """Most rules of a definition never run, and the collector seldom runs."""
    program = cel.compile("self.i < self.j && x == y", ENV)
    steps = weakref.ref(program._step)
    if runs:
        program.run({"self": {"i": 1, "j": 2}, "x": 1, "y": 1})
    gc.disable()
    try:
        del program
        assert steps() is None
    finally:
        gc.enable()
