"""Construction of tree nodes: calls, macro expansion, and literals."""

from __future__ import annotations

import math
import re

from kas.cel.macros import MACROS, MacroError, bind
from kas.cel.problems import Problem
from kas.cel.syntax import Call, Const, Ident, Node
from kas.cel.values import Uint
from kas.meta.scalars import decimal

_SHORT = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"} | {c: c for c in "\\?\"'`"}
_HEX = {"x": 2, "X": 2, "u": 4, "U": 8}


class Maker:
    """Makes nodes and collects their problems. ``bindings``: whether ``cel.bind`` is available."""

    __slots__ = ("bindings", "problems")

    def __init__(self, bindings: bool) -> None:
        self.bindings, self.problems = bindings, list[Problem]()

    def call(self, at: int, name: str, args: list[Node], target: Node | None = None) -> Node:
        """Return a call, or the expansion of the macro of that name."""
        macro = MACROS.get((name, len(args), target is not None))
        if self.bindings and name == "bind" and len(args) == 3 and isinstance(target, Ident) and target.name == "cel":
            macro = bind
        if macro is None:
            return Call(at, name, args, target)
        try:
            return macro(at, target, args)
        except MacroError as e:
            return self.wrong(e.problem.at, e.problem.message)

    def wrong(self, at: int, message: str) -> Node:
        """Report a problem; return a placeholder node."""
        self.problems.append(Problem(at, message))
        return Const(at, None)

    def number(self, at: int, kind: str, text: str) -> Node:
        """Return a number literal; ``kind`` is float, int or uint."""
        if kind == "float":
            value = float(text)
            return self.wrong(at, "invalid double literal") if math.isinf(value) else Const(at, value)
        unsigned = kind == "uint"
        digits = text[:-1] if unsigned else text
        whole = int(digits, 16) if "x" in digits else decimal(digits)
        if unsigned:
            return self.wrong(at, "invalid uint literal") if whole >= 1 << 64 else Const(at, Uint(whole))
        return Const(at, whole) if -(1 << 63) <= whole < 1 << 63 else self.wrong(at, "invalid int literal")

    def text(self, at: int, text: str) -> Node:
        """Return a string or bytes literal; ``text`` includes the quotes."""
        quote = min(i for i in (text.find("'"), text.find('"')) if i >= 0)
        prefix, body = text[:quote].lower(), text[quote:]
        width = 3 if body[:3] in ("'''", '"""') and len(body) >= 6 else 1
        body = body[width:-width].replace("\r\n", "\n").replace("\r", "\n")
        if "r" in prefix:
            return Const(at, body.encode() if "b" in prefix else body)
        try:
            return Const(at, _unescaped_bytes(body) if "b" in prefix else _unescaped(body))
        except ValueError as e:
            self.problems.append(Problem(at, str(e)))
            return Const(at, b"" if "b" in prefix else "")


def balanced(function: str, terms: list[Node], marks: list[int], low: int, high: int) -> Node:
    """Join the terms from ``low`` to ``high`` by ``function``, at the positions ``marks``, as a balanced tree, to keep it shallow."""
    if low == high:
        return terms[low]
    middle = (low + high) // 2
    left, right = balanced(function, terms, marks, low, middle), balanced(function, terms, marks, middle + 1, high)
    return Call(marks[middle], function, [left, right])


_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|X[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-3][0-7]{2}|.)", re.S)


def _code(escape: str) -> int | str:
    """Return the value of an escape: a code, or the character itself."""
    if escape[0] in _HEX and len(escape) > 1:
        return int(escape[1:], 16)
    if len(escape) == 3:
        return int(escape, 8)
    try:
        return _SHORT[escape]
    except KeyError:
        raise ValueError("unable to unescape string") from None


def _unescaped(body: str) -> str:
    def one(m: re.Match) -> str:
        code = _code(m.group(1))
        if isinstance(code, str):
            return code
        if code > 0x10FFFF or 0xD800 <= code < 0xE000:
            raise ValueError("invalid unicode code point")
        return chr(code)

    return _ESCAPE.sub(one, body)


def _unescaped_bytes(body: str) -> bytes:
    out, at = bytearray(), 0
    for m in _ESCAPE.finditer(body):
        out += body[at : m.start()].encode()
        code = _code(m.group(1))
        if isinstance(code, str):
            out += code.encode()
        elif m.group(1)[0] in "uU":
            raise ValueError("unable to unescape string")
        else:
            out.append(code)
        at = m.end()
    return bytes(out + body[at:].encode())
