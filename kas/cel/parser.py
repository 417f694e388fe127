"""Text to tree: the grammar of CEL (cel-spec ``doc/langdef.md``), with ANTLR's words for what does not fit it."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from kas.cel.macros import MACROS, MacroError, bind
from kas.cel.problems import CompileError, Problem
from kas.cel.syntax import Call, Const, Ident, ListOf, MapOf, Node, Select, qualified_name
from kas.cel.values import Uint
from kas.cel.words import RESERVED

MAX_CODE_POINTS = 100_000
MAX_DEPTH = 250

_TOKEN = re.compile(
    r"""(?P<space>[\t \r\n\f]+|//[^\n]*)
    |(?P<float>(?:[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|\.[0-9]+(?:[eE][+-]?[0-9]+)?))
    |(?P<uint>(?:0x[0-9a-fA-F]+|[0-9]+)[uU])
    |(?P<int>0x[0-9a-fA-F]+|[0-9]+)
    |(?P<text>(?P<prefix>[bB]?[rR]?|[rR][bB])(?:
        '{3}(?:[^\\]|\\.)*?'{3} | "{3}(?:[^\\]|\\.)*?"{3} | '(?:[^'\\\n\r]|\\[^\n])*' | "(?:[^"\\\n\r]|\\[^\n])*"))
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<mark>==|!=|<=|>=|&&|\|\||[<>\[\]{}()!.,:?+\-*/%])""",
    re.X | re.S,
)
_RAW = re.compile(
    r"""(?P<prefix>[rR][bB]?|[bB][rR])(?P<body>'{3}.*?'{3}|"{3}.*?"{3}|'[^'\n\r]*'|"[^"\n\r]*")""", re.S
)
_LITERALS = {"true": True, "false": False, "null": None}
_START = (
    "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}"
)
_RELATIONS = ("<", "<=", ">=", ">", "==", "!=", "in")
_BINARY = {op: f"_{op}_" for op in ("+", "-", "*", "/", "%", "<", "<=", ">=", ">", "==", "!=")} | {"in": "@in"}
_SHORT = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"} | {c: c for c in "\\?\"'`"}
_HEX = {"x": 2, "X": 2, "u": 4, "U": 8}


class Token(NamedTuple):
    """A piece of the text; ``at`` is where it begins."""

    kind: str  # float, uint, int, text, raw, name, mark, end
    text: str
    at: int


class _SyntaxError(Exception):
    pass


def parse(text: str, bindings: bool = False) -> Node:
    """The tree, macros expanded (``cel.bind`` if ``bindings``). Raises CompileError."""
    if len(text) > MAX_CODE_POINTS:
        raise CompileError("", [Problem(0, f"expression code point size exceeds limit: size: {len(text)}, limit {MAX_CODE_POINTS}")])
    return _Parser(text, bindings).whole()


class _Parser:
    def __init__(self, text: str, bindings: bool) -> None:
        self.text, self.bindings, self.problems, self.depth = text, bindings, list[Problem](), 0
        self.tokens = self._tokens()
        self.i = 0

    def _tokens(self) -> list[Token]:
        out, at, text = [], 0, self.text
        while at < len(text):
            m = _RAW.match(text, at)
            if m is not None:
                out.append(Token("raw", m.group(), at))
                at = m.end()
                continue
            m = _TOKEN.match(text, at)
            if m is None:
                end = self._unreadable(at)
                self.problems.append(Problem(at, f"Syntax error: token recognition error at: '{_shown(text[at:end])}'"))
                at = end
                continue
            kind = m.lastgroup if m.lastgroup != "prefix" else "text"
            if kind != "space":
                out.append(Token(kind or "text", m.group(), at))
            at = m.end()
        out.append(Token("end", "<EOF>", len(text)))
        return out

    def _unreadable(self, at: int) -> int:
        """Where the lexer goes on: behind a string that does not end, or behind what is no token."""
        if self.text[at] in "'\"":
            end = self.text.find("\n", at)
            return len(self.text) if end < 0 else end
        # Half an operator takes along what is not its other half.
        return min(at + 2, len(self.text)) if self.text[at] in "&|=" else at + 1

    # --- tokens

    @property
    def token(self) -> Token:
        return self.tokens[self.i]

    def take(self, *texts: str) -> Token | None:
        t = self.token
        if t.text in texts and t.kind in ("mark", "name"):
            self.i += 1
            return t
        return None

    def fail(self, at: int, message: str) -> _SyntaxError:
        self.problems.append(Problem(at, f"Syntax error: {message}"))
        return _SyntaxError()

    def need(self, mark: str) -> Token:
        t = self.take(mark)
        if t is None:
            shown = _shown(self.token.text)
            if self.token.kind == "end":
                raise self.fail(self.token.at, f"missing '{mark}' at '{shown}'")
            raise self.fail(self.token.at, f"mismatched input '{shown}' expecting '{mark}'")
        return t

    # --- grammar

    def whole(self) -> Node:
        node: Node | None = None
        try:
            node = self.expression()
            if self.token.kind != "end":
                shown = _shown(self.token.text)
                only = self.tokens[self.i + 1].kind == "end"
                raise self.fail(self.token.at, f"{'extraneous' if only else 'mismatched'} input '{shown}' expecting <EOF>")
        except _SyntaxError:
            pass
        if self.problems or node is None:
            raise CompileError(self.text, self.problems)
        return node

    def expression(self) -> Node:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.problems.append(Problem(self.token.at, f"expression recursion limit exceeded: {MAX_DEPTH}"))
            raise _SyntaxError
        node = self.either()
        mark = self.take("?")
        if mark is not None:
            yes = self.either()
            self.need(":")
            node = Call(mark.at, "_?_:_", [node, yes, self.expression()])
        self.depth -= 1
        return node

    def either(self) -> Node:
        node = self.both()
        while (mark := self.take("||")) is not None:
            node = Call(mark.at, "_||_", [node, self.both()])
        return node

    def both(self) -> Node:
        node = self.relation()
        while (mark := self.take("&&")) is not None:
            node = Call(mark.at, "_&&_", [node, self.relation()])
        return node

    def relation(self) -> Node:
        node = self.sum()
        while (mark := self.take(*_RELATIONS)) is not None:
            node = Call(mark.at, _BINARY[mark.text], [node, self.sum()])
        return node

    def sum(self) -> Node:
        node = self.product()
        while (mark := self.take("+", "-")) is not None:
            node = Call(mark.at, _BINARY[mark.text], [node, self.product()])
        return node

    def product(self) -> Node:
        node = self.unary()
        while (mark := self.take("*", "/", "%")) is not None:
            node = Call(mark.at, _BINARY[mark.text], [node, self.unary()])
        return node

    def unary(self) -> Node:
        mark = self.take("!", "-")
        if mark is None:
            return self.member()
        if mark.text == "-" and self.token.kind in ("int", "float"):
            self.i -= 1
            return self.member()
        count = 1
        while self.take(mark.text) is not None:
            count += 1
        node = self.member()
        if count % 2 == 0:
            return node
        return Call(mark.at, "!_" if mark.text == "!" else "-_", [node])

    def member(self) -> Node:
        node = self.primary()
        while True:
            mark = self.take(".", "[", "{")
            if mark is None:
                return node
            if mark.text == ".":
                optional = self.take("?") is not None
                name = self.name()
                opened = None if optional else self.take("(")
                if opened is not None:
                    node = self.call(opened.at, name, self.arguments(), node)
                elif optional:
                    node = Call(mark.at, "_?._", [node, Const(mark.at, name)])
                else:
                    node = Select(mark.at, node, name)
            elif mark.text == "[":
                optional = self.take("?") is not None
                index = self.expression()
                self.need("]")
                node = Call(mark.at, "_[?_]" if optional else "_[_]", [node, index])
            else:
                node = self.message(mark.at, node)

    def message(self, at: int, node: Node) -> Node:
        name = qualified_name(node)
        if not name:
            raise self.fail(at, "extraneous input '{' expecting <EOF>")
        entries: list[tuple[Any, Node, bool]] = []
        while self.take("}") is None:
            optional = self.take("?") is not None
            field = self.name()
            colon = self.need(":")
            entries.append(((field, colon.at), self.expression(), optional))
            if self.take(",") is None:
                self.need("}")
                break
        return MapOf(at, entries, name)

    def name(self) -> str:
        t = self.token
        if t.kind != "name" or t.text in _LITERALS or t.text == "in":
            raise self.fail(t.at, f"no viable alternative at input '.{_shown(t.text) if t.kind != 'end' else ''}'")
        self.i += 1
        return t.text

    def arguments(self) -> list[Node]:
        out: list[Node] = []
        if self.take(")") is not None:
            return out
        while True:
            out.append(self.expression())
            if self.take(",") is None:
                self.need(")")
                return out

    def call(self, at: int, name: str, args: list[Node], target: Node | None) -> Node:
        macro = MACROS.get((name, len(args), target is not None))
        if self.bindings and name == "bind" and len(args) == 3 and isinstance(target, Ident) and target.name == "cel":
            macro = bind
        if macro is not None:
            try:
                return macro(at, target, args)
            except MacroError as e:
                self.problems.append(e.problem)
                return Const(at, None)
        return Call(at, name, args, target)

    def primary(self) -> Node:
        t = self.token
        if t.text == "-" and self.tokens[self.i + 1].kind in ("int", "float"):  # the sign of a number
            number = self.tokens[self.i + 1]
            self.i += 2
            return self.number(Token(number.kind, "-" + number.text, t.at))
        if t.kind in ("int", "uint", "float"):
            self.i += 1
            return self.number(t)
        if t.kind in ("text", "raw"):
            self.i += 1
            return Const(t.at, self.literal(t))
        if t.kind == "name" and t.text in _LITERALS:
            self.i += 1
            return Const(t.at, _LITERALS[t.text])
        if self.take("("):
            node = self.expression()
            self.need(")")
            return node
        if self.take("["):
            return self.list_of(t.at)
        if self.take("{"):
            return self.map_of(t.at)
        dotted = self.take(".")
        if self.token.kind == "name" and self.token.text != "in":
            at, name = self.token.at, self.token.text
            if name in RESERVED:
                self.problems.append(Problem(at, f"Syntax error: reserved identifier: {name}"))
            self.i += 1
            full = f".{name}" if dotted else name
            opened = self.take("(")
            return self.call(opened.at, full, self.arguments(), None) if opened is not None else Ident(at, full)
        unexpected = self.token
        shown = _shown(unexpected.text)
        if dotted:
            raise self.fail(unexpected.at, f"mismatched input '{shown}' expecting IDENTIFIER")
        following = self.tokens[self.i + 1] if unexpected.kind != "end" else unexpected
        if following.kind in ("int", "uint", "float", "text", "raw") or (following.kind == "name" and following.text != "in"):
            self.fail(unexpected.at, f"extraneous input '{shown}' expecting {_START}")
            self.i += 1
            return self.primary()
        raise self.fail(unexpected.at, f"mismatched input '{shown}' expecting {_START}")

    def list_of(self, at: int) -> Node:
        items: list[Node] = []
        optional = set()
        while self.take("]") is None:
            if self.take("?") is not None:
                optional.add(len(items))
            items.append(self.expression())
            if self.take(",") is None:
                self.need("]")
                break
        return ListOf(at, items, frozenset(optional))

    def map_of(self, at: int) -> Node:
        entries: list[tuple[Any, Node, bool]] = []
        while self.take("}") is None:
            optional = self.take("?") is not None
            key = self.expression()
            self.need(":")
            entries.append((key, self.expression(), optional))
            if self.take(",") is None:
                self.need("}")
                break
        return MapOf(at, entries)

    # --- literals

    def number(self, t: Token) -> Node:
        if t.kind == "float":
            return Const(t.at, float(t.text))
        unsigned = t.kind == "uint"
        digits = t.text[:-1] if unsigned else t.text
        value = int(digits, 16 if "x" in digits else 10)
        if unsigned:
            if value >= 1 << 64:
                self.problems.append(Problem(t.at, "invalid uint literal"))
            return Const(t.at, Uint(value))
        if not -(1 << 63) <= value < 1 << 63:
            self.problems.append(Problem(t.at, "invalid int literal"))
        return Const(t.at, value)

    def literal(self, t: Token) -> str | bytes:
        text = t.text
        quote = min(i for i in (text.find("'"), text.find('"')) if i >= 0)
        prefix, body = text[:quote].lower(), text[quote:]
        width = 3 if body[:3] in ("'''", '"""') and len(body) >= 6 else 1
        body = body[width:-width].replace("\r\n", "\n").replace("\r", "\n")
        if "r" in prefix:
            return body.encode() if "b" in prefix else body
        try:
            return _unescaped_bytes(body) if "b" in prefix else _unescaped(body)
        except ValueError as e:
            self.problems.append(Problem(t.at, str(e)))
            return b"" if "b" in prefix else ""


def _shown(text: str) -> str:
    return text.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")


_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|X[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-3][0-7]{2}|.)", re.S)


def _code(escape: str) -> int | str:
    """What an escape stands for: a number, or the character itself."""
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
