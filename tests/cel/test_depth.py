"""Limits of nesting in expressions: they are upstream's, whichever function walks the expression."""

from __future__ import annotations

import sys
import threading

import pytest

from kas import cel
from kas.cel.types import DYN, INT, STRING, list_of, map_of

ENV = cel.BASE.extended({"n": INT, "s": STRING, "o": DYN})
PARSER = "ERROR: <input>:-1:0: expression recursion limit exceeded: 250"
VISITOR = "ERROR: <input>:-1:0: max recursion depth exceeded"


def outcome(text):
    try:
        program = cel.compile(text, ENV)
    except cel.CompileError as e:
        return str(e)
    program.estimate(lambda path, t: None)
    return program.run({"n": 2, "s": " a ", "o": {}})[0], str(program.type)


@pytest.mark.parametrize(("text", "most", "beyond"), [
    (lambda n: "(" * n + "n" + ")" * n, 249, PARSER),
    (lambda n: "[" * n + "n" + "]" * n + " != []", 249, PARSER),
    (lambda n: "dyn(" * n + "n" + ")" * n, 249, PARSER),
    (lambda n: "!(" * n + "true" + ")" * n, 249, PARSER),
    (lambda n: '{"a":' * n + "n" + "}" * n, 249, PARSER),
    (lambda n: "[1].all(x, " * n + "true" + ")" * n, 249, PARSER),
    (lambda n: "n == 1 ? 1 : " * n + "n", 249, PARSER),
    (lambda n: "(n + " * n + "n" + ")" * n, 124, PARSER),  # of sums, two levels each
    (lambda n: "n + n * (" * n + "n" + ")" * n, 83, PARSER),  # and three
    (lambda n: "true == (" * n + "true" + ")" * n, 124, PARSER),
    (lambda n: "n" + " + n" * n, 250, VISITOR),
    (lambda n: "o" + ".a" * n, 250, VISITOR),
    (lambda n: "s" + ".trim()" * n, 250, VISITOR),
    (lambda n: "o" + "['a']" * n, 250, VISITOR),
])  # fmt: skip
def test_depth_limits_are_upstreams(text, most, beyond):
    assert not str(outcome(text(most))).startswith("ERROR")
    assert outcome(text(most + 1)) == beyond


def test_many_operands_of_one_operator_are_not_deep():
    assert outcome("true" + " && true" * 1000) == (True, "bool")
    assert outcome("!" * 1001 + "true") == (False, "bool")


def test_long_expressions_may_be_deep_too():
    wide = "[" + "n, " * 3000 + "n].size() > 1 && "
    assert outcome(wide + "(" * 80 + "n" + " + n" * 200 + ")" * 80 + " > 1") == (True, "bool")


def test_a_deep_type_can_be_printed():
    t = STRING
    for _ in range(3000):
        t = list_of(t)
    assert str(t) == "list(" * 3000 + "string" + ")" * 3000
    assert str(map_of(STRING, list_of(INT))) == "map(string, list(int))"


def test_the_deepest_expression_needs_little_of_a_threads_stack():
    texts = ["[" * 249 + "n" + "]" * 249, "[1].all(x, " * 249 + "true" + ")" * 249, "o" + "['a']" * 250, '{"a":' * 249 + "n" + "}" * 249,
             "(true && " * 249 + "true" + ")" * 249, "n" + " + n" * 250, "true ? 1 : " * 249 + "n", "o" + ".?a" * 250]  # fmt: skip
    found, before = [], threading.stack_size(1 << 20)
    try:
        thread = threading.Thread(target=lambda: found.extend(outcome(t) for t in texts))
        thread.start()
        thread.join()
    finally:
        threading.stack_size(before)
    assert len(found) == len(texts)
    assert not [x for x in found if isinstance(x, str)]
    assert sys.getrecursionlimit() == 1000 or sys.getrecursionlimit() < 12_000
