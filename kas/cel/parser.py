"""The parser for valid texts of moderate depth: the grammar of CEL (cel-spec ``doc/langdef.md``). ``recovery.py`` reads all other texts
and reports their errors.
"""

from __future__ import annotations

from typing import Any

from kas.cel.making import Maker, balanced
from kas.cel.problems import NOWHERE, CompileError, Problem
from kas.cel.syntax import Call, Const, Ident, ListOf, MapOf, Node, Select, qualified_name
from kas.cel.tokens import Token, Unread, tokens
from kas.cel.words import RESERVED

MAX_CODE_POINTS = 100_000
MAX_DEPTH = 83  # of nested expressions: this parser recurses, and each may count as three of the 250 levels allowed
MAX_HEIGHT = 250  # of operators, fields and calls applied to one another
MOST_READ_AGAIN = 4_000  # tokens that recovery.py reads: each takes some 40 us

_LITERALS = {"true": True, "false": False, "null": None}
_BINDS = dict.fromkeys(("<", "<=", ">=", ">", "==", "!=", "in"), 0) | {"+": 1, "-": 1} | {"*": 2, "/": 2, "%": 2}
_BINARY = {op: f"_{op}_" for op in _BINDS} | {"in": "@in"}


class _UnfitError(Exception):
    """The text needs the other parser."""


def parse(text: str, bindings: bool = False) -> Node:
    """Parse a text, expanding macros (``cel.bind`` if ``bindings``). Raises CompileError."""
    if len(text) > MAX_CODE_POINTS:
        raise CompileError("", [Problem(NOWHERE, f"expression code point size exceeds limit: size: {len(text)}, limit {MAX_CODE_POINTS}")])
    found, unread = tokens(text)
    parser = _Parser(found, bindings)
    if not unread:
        try:
            node = parser.whole()
            if not parser.problems:
                return node
        except _UnfitError:
            pass
    if len(found) > MOST_READ_AGAIN:
        raise CompileError(text, [_first(parser, unread)])
    return _recovered(text, found, unread, bindings)


def _first(parser: _Parser, unread: list[Unread]) -> Problem:
    """Return the first problem of a text that is too long for the other parser."""
    if unread:
        return unread[0].problem
    if parser.depth > MAX_DEPTH:
        return Problem(NOWHERE, "expression recursion limit exceeded: 250")
    if parser.height > MAX_HEIGHT:
        return Problem(NOWHERE, "max recursion depth exceeded")
    if parser.problems:
        return parser.problems[0]
    token = parser.tokens[min(parser.i, len(parser.tokens) - 1)]
    return Problem(token.at, f"Syntax error: no viable alternative at input '{token.text}'")


def _recovered(text: str, found: list[Token], unread: list[Unread], bindings: bool) -> Node:
    from kas.cel.recovered import read

    node, problems = read(text, found, unread, bindings)
    if problems:
        raise CompileError(text, problems)
    return node


class _Parser(Maker):
    __slots__ = ("depth", "height", "i", "tokens")

    def __init__(self, tokens: list[Token], bindings: bool) -> None:
        super().__init__(bindings)
        self.tokens, self.i, self.depth = tokens, 0, 0
        self.height = 0  # of the node read last

    # --- tokens

    @property
    def token(self) -> Token:
        return self.tokens[self.i]

    def take(self, *texts: str) -> Token | None:
        t = self.tokens[self.i]
        if t.text in texts and t.kind in ("mark", "name"):
            self.i += 1
            return t
        return None

    def need(self, mark: str) -> None:
        if self.take(mark) is None:
            raise _UnfitError

    def name(self) -> Token:
        t = self.tokens[self.i]
        if t.kind != "name" or t.text in _LITERALS or t.text == "in":
            raise _UnfitError
        self.i += 1
        return t

    # --- grammar

    def whole(self) -> Node:
        node = self.expression()
        if self.token.kind != "end":
            raise _UnfitError
        return node

    def expression(self) -> Node:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise _UnfitError
        node = self.either()
        mark = self.take("?")
        if mark is not None:
            highest = self.height
            yes = self.either()
            highest = max(highest, self.height)
            self.need(":")
            node = Call(mark.at, "_?_:_", [node, yes, self.expression()])
            self.grow(highest)
        self.depth -= 1
        return node

    def grow(self, height: int = 0) -> None:
        """Record a node on top of the one read last and of one of ``height``."""
        self.height = max(self.height, height) + 1
        if self.height > MAX_HEIGHT:
            raise _UnfitError

    def either(self) -> Node:
        terms, marks = [self.both()], []
        highest = self.height
        while (mark := self.take("||")) is not None:
            marks.append(mark.at)
            terms.append(self.both())
            highest = max(highest, self.height)
        self.height = highest
        return balanced("_||_", terms, marks, 0, len(marks))

    def both(self) -> Node:
        terms, marks = [self.infix()], []
        highest = self.height
        while (mark := self.take("&&")) is not None:
            marks.append(mark.at)
            terms.append(self.infix())
            highest = max(highest, self.height)
        self.height = highest
        return balanced("_&&_", terms, marks, 0, len(marks))

    def infix(self, level: int = 0) -> Node:
        """Parse relations, sums and products with operators that bind at least as strongly as ``level``."""
        node = self.unary()
        while (mark := self.tokens[self.i]).kind in ("mark", "name") and _BINDS.get(mark.text, -1) >= level:
            self.i += 1
            height = self.height
            node = Call(mark.at, _BINARY[mark.text], [node, self.infix(_BINDS[mark.text] + 1)])
            self.grow(height)
        return node

    def unary(self) -> Node:
        mark = self.take("!", "-")
        if mark is None:
            return self.member()
        count = 1
        while self.take(mark.text) is not None:
            count += 1
        if mark.text == "-" and self.token.kind in ("int", "float"):
            if count == 1:
                self.i -= 1
                return self.member()
            raise _UnfitError
        node = self.member()
        if count % 2 == 0:
            return node
        return Call(mark.at, "!_" if mark.text == "!" else "-_", [node])

    def member(self) -> Node:
        node = self.primary()
        while True:
            if self.token.text == "{" and not (self.token.kind == "mark" and qualified_name(node)):
                return node
            mark = self.take(".", "[", "{")
            if mark is None:
                return node
            height = self.height
            if mark.text == ".":
                optional = self.take("?") is not None
                name = self.name()
                opened = None if optional else self.take("(")
                if opened is not None:
                    node = self.call(opened.at, name.text, self.arguments(), node)
                elif optional:
                    node = Call(mark.at, "_?._", [node, Const(name.at, name.text)])
                    self.height = 0
                else:
                    node = Select(mark.at, node, name.text)
                    self.height = 0
                self.grow(height)
            elif mark.text == "[":
                optional = self.take("?") is not None
                index = self.expression()
                self.need("]")
                node = Call(mark.at, "_[?_]" if optional else "_[_]", [node, index])
                self.grow(height)
            else:
                return self.message(mark.at, node)

    def message(self, at: int, node: Node) -> Node:
        entries: list[tuple[Any, Node, bool]] = []
        highest = 0
        while self.ends("}", entries):
            optional = self.take("?") is not None
            field, colon = self.name().text, self.token.at
            self.need(":")
            entries.append(((field, colon), self.expression(), optional))
            highest = max(highest, self.height)
        self.height = highest
        return MapOf(at, entries, qualified_name(node))

    def ends(self, closer: str, before: list[Any]) -> bool:
        """Whether the bracket ends after the items ``before``; consumes the closer, which may follow a comma."""
        if self.take(closer) is not None:
            return False
        comma = self.take(",")
        if (comma is None) != (not before):
            self.need(closer)
            return False
        return self.take(closer) is None

    def arguments(self) -> list[Node]:
        """Parse the arguments of a call, including the closing parenthesis."""
        out: list[Node] = []
        highest = 0
        if self.take(")") is None:
            out.append(self.expression())
            highest = self.height
            while self.take(",") is not None:
                out.append(self.expression())
                highest = max(highest, self.height)
            self.need(")")
        self.height = highest
        return out

    def primary(self) -> Node:
        t = self.tokens[self.i]
        self.i += 1
        self.height = 0
        if t.kind == "name":
            if t.text in _LITERALS:
                return Const(t.at, _LITERALS[t.text])
            return self.named(t, t.text)
        if t.kind in ("int", "uint", "float"):
            return self.number(t.at, t.kind, t.text)
        if t.kind in ("text", "raw"):
            return self.text(t.at, t.text)
        if t.kind != "mark":
            raise _UnfitError
        if t.text == "(":
            node = self.expression()
            self.need(")")
            return node
        if t.text == "[":
            return self.list_of(t.at)
        if t.text == "{":
            return self.map_of(t.at)
        if t.text == ".":
            name = self.name()
            return self.named(name, f".{name.text}")
        if t.text == "-" and self.token.kind in ("int", "float"):  # the sign of a number literal
            number = self.tokens[self.i]
            self.i += 1
            return self.number(t.at, number.kind, f"-{number.text}")
        raise _UnfitError

    def named(self, t: Token, full: str) -> Node:
        if t.text in RESERVED or t.text == "in":
            raise _UnfitError
        opened = self.take("(")
        return Ident(t.at, full) if opened is None else self.call(opened.at, full, self.arguments())

    def list_of(self, at: int) -> Node:
        items: list[Node] = []
        optional, highest = set[int](), 0
        while self.ends("]", items):
            if self.take("?") is not None:
                optional.add(len(items))
            items.append(self.expression())
            highest = max(highest, self.height)
        self.height = highest
        return ListOf(at, items, frozenset(optional))

    def map_of(self, at: int) -> Node:
        entries: list[tuple[Any, Node, bool]] = []
        highest = 0
        while self.ends("}", entries):
            optional = self.take("?") is not None
            key = self.expression()
            highest = max(highest, self.height)
            self.need(":")
            entries.append((key, self.expression(), optional))
            highest = max(highest, self.height)
        self.height = highest
        return MapOf(at, entries)
