"""Syntax errors, in the words of ANTLR, and the errors that follow from its recovery."""

from __future__ import annotations

import pytest

from kas import cel
from kas.cel.types import DYN

ENV = cel.BASE.extended(dict.fromkeys(("a", "b", "m", "self"), DYN))
VALUES = "'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}"
START = "{'[', '{', '(', '.', '-', '!', " + VALUES


def errors(text: str) -> list[str]:
    """``column: message`` of each error; [] when the expression compiles."""
    try:
        cel.compile(text, ENV)
    except cel.CompileError as e:
        head = "ERROR: <input>:1:"
        return [line.removeprefix(head).replace("Syntax error: ", "") for line in str(e).split("\n") if line.startswith(head)]
    return []


@pytest.mark.parametrize(("text", "want"), [
    ("a / /", [f"5: mismatched input '/' expecting {START}", f"6: mismatched input '<EOF>' expecting {START}"]),
    ("in", [f"1: mismatched input 'in' expecting {START}", f"3: mismatched input '<EOF>' expecting {START}"]),
    ("/a", [f"1: extraneous input '/' expecting {START}"]),
    ("a b", ["3: extraneous input 'b' expecting <EOF>"]),
    ("a b c", ["3: mismatched input 'b' expecting <EOF>"]),
    ("size(a){}", ["8: mismatched input '{' expecting <EOF>"]),
    ("(a b)", ["4: extraneous input 'b' expecting ')'"]),
    ("(a", ["3: missing ')' at '<EOF>'"]),
    ("a[(b]", ["5: missing ')' at ']'"]),
    ("[a b]", ["4: extraneous input 'b' expecting {']', ','}"]),
    ("[a", ["3: mismatched input '<EOF>' expecting {']', ','}"]),
    ("{a: b", ["6: mismatched input '<EOF>' expecting {'}', ','}"]),
    ("{a}", ["3: mismatched input '}' expecting ':'"]),
    ("{a b}", ["4: missing ':' at 'b'"]),
    ("a ? b", ["6: mismatched input '<EOF>' expecting ':'"]),
    ("[", ["2: mismatched input '<EOF>' expecting {'[', ']', '{', '(', '.', ',', '-', '!', '?', " + VALUES]),
    ("{", ["2: mismatched input '<EOF>' expecting {'[', '{', '}', '(', '.', ',', '-', '!', '?', " + VALUES]),
    ("size(", ["6: mismatched input '<EOF>' expecting {'[', '{', '(', ')', '.', '-', '!', " + VALUES]),
    ("m{a}", ["4: mismatched input '}' expecting ':'"]),
    ("-", ["2: no viable alternative at input '-'", f"2: mismatched input '<EOF>' expecting {START}"]),
    ("a.b.null", ["5: mismatched input 'null' expecting IDENTIFIER"]),
    ("a[0].null", ["6: mismatched input 'null' expecting IDENTIFIER"]),
    ("a.`b`", ["3: unsupported syntax: '`'"]),
    ("while", ["1: reserved identifier: while"]),
    ("a.map(__result__, 1)", ["7: iteration variable overwrites accumulator variable"]),
    ("a.map(for, 1)", ["7: reserved identifier: for", "7: argument is not an identifier"]),
    ("'\\q' + a", ["1: token recognition error at: ''\\q'", "4: token recognition error at: '' + a'",
                   f"9: mismatched input '<EOF>' expecting {START}"]),
    ("'\\xg'", ["1: token recognition error at: ''\\xg'", "5: token recognition error at: '''",
                f"6: mismatched input '<EOF>' expecting {START}"]),
    ("a.`#", ["3: token recognition error at: '`#'", "5: no viable alternative at input '.'"]),
    ("1e999", ["1: invalid double literal"]),
    ("rb'a'", ["3: extraneous input ''a'' expecting <EOF>"]),  # in the other order it is bytes
    # After a dot that is followed by an unexpected token, the open rules go on.
    ("a.in == 1", ["3: no viable alternative at input '.in'", f"6: extraneous input '==' expecting {START}"]),
    ("a.b. == 1", ["6: no viable alternative at input '. =='"]),
    ("(a.(b) || m) && .", ["4: no viable alternative at input '.('", "12: mismatched input ')' expecting <EOF>"]),
    ("a || .", ["7: no viable alternative at input '.'"]),
    ("..a", ["2: no viable alternative at input '..'"]),
    (".?a", ["2: no viable alternative at input '.?'"]),
    ("has(a.)", ["5: invalid argument to has() macro", "7: no viable alternative at input '.)'"]),
    ("a.?b.?", ["7: mismatched input '<EOF>' expecting {IDENTIFIER, ESC_IDENTIFIER}", "7: unsupported ident kind"]),
    ("a.?(1)", ["4: mismatched input '(' expecting {IDENTIFIER, ESC_IDENTIFIER}", "4: unsupported ident kind"]),
    ("a.?.b", ["4: extraneous input '.' expecting {IDENTIFIER, ESC_IDENTIFIER}"]),
    ("a[]", ["3: mismatched input ']' expecting {'[', '{', '(', '.', '-', '!', '?', " + VALUES]),
    ("a[,1]", ["3: extraneous input ',' expecting {'[', '{', '(', '.', '-', '!', '?', " + VALUES]),
    # The end of the text comes where no rule is open.
    ("(a || (b", ["9: mismatched input '<EOF>' expecting ')'"]),
    ("a ? b.c(1", ["10: mismatched input '<EOF>' expecting ')'"]),
    ("[size(a", ["8: mismatched input '<EOF>' expecting ')'"]),
    # A comma without an item after it is the last.
    ("[,1]", ["3: extraneous input '1' expecting ']'"]),
    ("[1,,2]", ["4: mismatched input ',' expecting ']'"]),
    ("[1, ==2]", ["5: missing ']' at '=='", "8: extraneous input ']' expecting <EOF>"]),
    ("[1 2, 3]", ["4: extraneous input '2' expecting {']', ','}", "7: extraneous input '3' expecting ']'"]),
    ("{'a', 'b'}", ["5: mismatched input ',' expecting ':'", "7: extraneous input ''b'' expecting '}'"]),
    ("{1:2,,3:4}", ["6: mismatched input ',' expecting '}'"]),
    ("!", [f"2: extraneous input '<EOF>' expecting {START}"]),
    # Unexpected tokens are skipped, up to one that may follow any of the open rules.
    ("has(a.b && has(m.c)", ["9: invalid argument to has() macro", "20: missing ')' at '<EOF>'"]),
    ("a == 'x' b", ["10: extraneous input 'b' expecting <EOF>"]),
    ("a ? b : m : a", ["11: mismatched input ':' expecting <EOF>"]),
    ("a && && b", [f"6: extraneous input '&&' expecting {START}"]),
    ("-1 a", ["4: extraneous input 'a' expecting <EOF>"]),
    ("a.all(b, b.c 1, m)", ["14: mismatched input '1' expecting ')'"]),
    ("a.exists(b, b = 1)", ["15: token recognition error at: '= '", "17: extraneous input '1' expecting ')'"]),
])  # fmt: skip
def test_errors_of_the_grammar(text, want):
    assert errors(text) == want


@pytest.mark.parametrize("text", ["has(has(a.b))", "[1].all(.x, true)", "[1].map(.x, 1) == a", "[1].transformList(.i, v, v) == a"])
def test_arguments_of_macros(text):
    assert errors(text) == []


@pytest.mark.parametrize(
    "text", ["[a,]", "{a: b,}", "[,]", "{,}", "m{}", "- 5 == a", "!-1 == a", "'\\x41\\u00e9\\101\\?' == a", "r'\\q' == a", "bR'\\q' == a"]
)
def test_valid_expressions(text):
    assert not any("expecting" in e or "recognition" in e or "viable" in e for e in errors(text))


def test_the_remainder_of_the_least_int_overflows():
    value, _ = cel.compile("(a - 1) % b", ENV).run({"a": -(1 << 63) + 1, "b": -1})
    assert str(value) == "integer overflow"


@pytest.mark.parametrize("text", ["'a'.find('(')", "'a'.findAll('[', 1)"])
def test_a_constant_pattern_is_compiled_with_the_program(text):
    with pytest.raises(cel.ProgramError, match="error parsing regexp"):
        cel.compile(text, ENV)


def problems(text: str) -> list[str]:
    with pytest.raises(cel.CompileError) as e:
        cel.compile(text, ENV)
    return [p.message for p in e.value.problems]


def test_error_recovery_is_bounded():
    assert problems("#" * 200)[99:] == ["Syntax error: token recognition error at: '#'", "Syntax error: More than 100 syntax errors"]
    assert problems("a " * 400)[-1] == "error recovery token lookahead limit exceeded: 256"
    assert problems("(" * 40)[-1] == "Syntax error: error recovery attempt limit exceeded: 30"


@pytest.mark.parametrize(("text", "said"), [
    ("[" + "a, " * 3000 + ",]", "Syntax error: no viable alternative at input ']'"), ("a" + " + a" * 3000, "max recursion depth exceeded"),
    ("[" + "a, " * 3000 + "#]", "Syntax error: token recognition error at: '#'"),
    ("[" + "has(1), " * 3000 + "]", "invalid argument to has() macro"),
])  # fmt: skip
def test_only_the_first_error_of_a_long_text_is_reported(text, said):
    assert problems(text) == [said]
