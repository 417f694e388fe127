"""Text to tree: the grammar of CEL (cel-spec ``doc/langdef.md``), with ANTLR's words for what does not fit it."""

from __future__ import annotations

import math
import re
from typing import Any

from kas.cel.macros import MACROS, MacroError, bind
from kas.cel.problems import NOWHERE, CompileError, Problem
from kas.cel.syntax import Call, Const, Ident, ListOf, MapOf, Node, Select, qualified_name
from kas.cel.values import Uint
from kas.cel.words import RESERVED
from kas.meta.records import NamedTuple
from kas.meta.scalars import decimal

MAX_CODE_POINTS = 100_000
MAX_DEPTH = 250

_ESC = r"\\(?:[abfnrtv\"'\\?`]|[xX][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-3][0-7]{2})"
_TOKEN = re.compile(
    r"""(?P<space>[\t \r\n\f]+|//[^\n]*)
    |(?P<float>(?:[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|\.[0-9]+(?:[eE][+-]?[0-9]+)?))
    |(?P<uint>(?:0x[0-9a-fA-F]+|[0-9]+)[uU])
    |(?P<int>0x[0-9a-fA-F]+|[0-9]+)
    |(?P<text>(?P<prefix>[bB]?)(?:
        '{3}(?:[^\\]|ESC)*?'{3} | "{3}(?:[^\\]|ESC)*?"{3} | '(?:[^'\\\n\r]|ESC)*' | "(?:[^"\\\n\r]|ESC)*"))
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<escaped>`[A-Za-z0-9_.\-/ ]+`)
    |(?P<mark>==|!=|<=|>=|&&|\|\||[<>\[\]{}()!.,:?+\-*/%])""".replace("ESC", _ESC),
    re.X | re.S,
)
# As much as may begin a token, where none is whole.
_BEGUN = re.compile(
    r"""'(?:[^'\\\n\r]|ESC)*PART?|"(?:[^"\\\n\r]|ESC)*PART?|`[A-Za-z0-9_.\-/ ]*|[&|=]|""".replace("ESC", _ESC).replace(
        "PART", r"(?:\\(?:[xX][0-9a-fA-F]?|u[0-9a-fA-F]{0,3}|U[0-9a-fA-F]{0,7}|[0-3][0-7]?)?)"
    ),
    re.S,
)
_RAW = re.compile(
    r"""(?P<prefix>[bB]?[rR])(?P<body>'{3}.*?'{3}|"{3}.*?"{3}|'[^'\n\r]*'|"[^"\n\r]*")""", re.S
)
_LITERALS = {"true": True, "false": False, "null": None}
# What an expression may begin with, and the ways ANTLR lists that.
_BEGINS = frozenset("[{(.-!")
_VALUES = "'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}"
_START = "{'[', '{', '(', '.', '-', '!', " + _VALUES
_INDEX = "{'[', '{', '(', '.', '-', '!', '?', " + _VALUES
_ARGUMENT = "{'[', '{', '(', ')', '.', '-', '!', " + _VALUES
_ITEM = "{'[', ']', '{', '(', '.', ',', '-', '!', '?', " + _VALUES
_ENTRY = "{'[', '{', '}', '(', '.', ',', '-', '!', '?', " + _VALUES
_FIELD = "{'}', ',', '?', IDENTIFIER, ESC_IDENTIFIER}"
_NAME = "{IDENTIFIER, ESC_IDENTIFIER}"
_BINDS = dict.fromkeys(("<", "<=", ">=", ">", "==", "!=", "in"), 0) | {"+": 1, "-": 1} | {"*": 2, "/": 2, "%": 2}
_BINARY = {op: f"_{op}_" for op in _BINDS} | {"in": "@in"}
_GOES_ON = frozenset(_BINARY) | {"&&", "||", "?", ".", "["}
_SHORT = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"} | {c: c for c in "\\?\"'`"}
_HEX = {"x": 2, "X": 2, "u": 4, "U": 8}


class Token(NamedTuple):
    """A piece of the text; ``at`` is where it begins."""

    kind: str  # float, uint, int, text, raw, name, escaped, mark, end
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
        self.closers: list[str] = []  # what ends each of the brackets that are open here
        self.unread: list[str] = []
        self.recovering = False  # from an error: until a token fits again, others are not told
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
                self.unread.append(text[at:end])
                self.problems.append(Problem(at, f"Syntax error: token recognition error at: '{text[at:end]}'"))
                at = end
                continue
            kind = m.lastgroup if m.lastgroup != "prefix" else "text"
            if kind != "space":
                out.append(Token(kind or "text", m.group(), at))
            at = m.end()
        out.append(Token("end", "<EOF>", len(text)))
        return out

    def _unreadable(self, at: int) -> int:
        """Where the lexer goes on: behind what might have become a token, and the character that kept it from that."""
        begun = _BEGUN.match(self.text, at)
        return min((begun.end() if begun is not None else at) + 1, len(self.text))

    # --- tokens

    @property
    def token(self) -> Token:
        return self.tokens[self.i]

    def take(self, *texts: str) -> Token | None:
        t = self.token
        return self.next() if t.text in texts and t.kind in ("mark", "name") else None

    def next(self) -> Token:
        """Take the token, which fits."""
        t, self.recovering = self.token, False
        self.i += 1
        return t

    def told(self, at: int, message: str) -> None:
        """Note an error, unless it may come from the one before."""
        if not self.recovering:
            self.problems.append(Problem(at, f"Syntax error: {message}"))
        self.recovering = True

    def extraneous(self, expected: str) -> None:
        """Note a token that is too much, and pass over it: the next one fits."""
        self.told(self.token.at, f"extraneous input '{_shown(self.token.text)}' expecting {expected}")
        self.next()

    def fail(self, at: int, message: str) -> _SyntaxError:
        """Note an error after which nothing is looked at."""
        self.told(at, message)
        return _SyntaxError()

    def begins(self, i: int) -> bool:
        """Whether an expression may begin with that token."""
        t = self.tokens[min(i, len(self.tokens) - 1)]
        return t.text in _BEGINS if t.kind == "mark" else t.kind not in ("end", "escaped") and t.text != "in"

    def follows(self, t: Token) -> bool:
        """Whether what is open here may go on with the token."""
        return t.kind == "end" or (t.kind in ("mark", "name") and (t.text in _GOES_ON or any(t.text in c for c in self.closers)))

    def continues(self, t: Token) -> bool:
        """Whether the innermost of what is open here may go on with the token."""
        if t.kind == "end" or not self.closers:
            return self.follows(t) and (t.kind != "end" or not self.closers)
        return t.kind in ("mark", "name") and (t.text in _GOES_ON or t.text in self.closers[-1])

    def skip(self, but: str = "") -> None:
        """Pass over what cannot follow, as ANTLR's recovery does; and over the marks ``but``."""
        while not self.follows(self.token) or (self.token.kind == "mark" and self.token.text in but):
            self.i += 1

    def lacks_name(self, optional: str = "") -> bool:
        """Whether there is no name behind the dot here, which is noted; ``optional`` may be between them."""
        dot, t = self.token, self.tokens[self.i + 1]
        if self._is_name(t) or (t.kind == "mark" and t.text == optional):
            return False
        end, between = t.at + len(t.text) if t.kind != "end" else t.at, self.text[dot.at + 1 : t.at]
        for bad in self.unread:  # what is no token is not shown
            between = between.replace(bad, "")
        self.told(t.at, f"no viable alternative at input '{_shown('.' + between + self.text[t.at : end])}'")
        return True

    def unexpected(self, expected: str, more: str = "") -> bool:
        """Note that the token is none of those ``expected``. One that is too much is passed over: then it is tried again (True)."""
        t, after = self.token, self.tokens[min(self.i + 1, len(self.tokens) - 1)]
        shown = _shown(t.text)
        if t.kind != "end" and (self.begins(self.i + 1) or (after.kind == "mark" and after.text in more)):
            self.extraneous(expected)
            return True
        self.told(t.at, f"mismatched input '{shown}' expecting {expected}")
        return False

    def need(self, mark: str, others: str = "", but: str = "") -> bool:
        """Take a mark that has to be here; False where it is not, after which the brackets around go on, but not with what ``but`` says.
        ``others`` are the marks that might have been, too."""
        if self.take(mark) is not None:
            return True
        t, after = self.token, self.tokens[min(self.i + 1, len(self.tokens) - 1)]
        shown, expected = _shown(t.text), "{" + f"'{mark}', '{others}'" + "}" if others else f"'{mark}'"
        if t.kind != "end" and after.kind == "mark" and after.text in mark + others:
            self.extraneous(expected)
            return self.need(mark, but=but) if others and self.take(others) is not None else self.take(mark) is not None
        if not others and (self.begins(self.i) if mark == ":" else self.continues(t)):
            self.told(t.at, f"missing '{mark}' at '{shown}'")
            return True
        self.told(t.at, f"mismatched input '{shown}' expecting {expected}")
        self.skip(but)
        return False

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
            self.problems.append(Problem(NOWHERE, f"expression recursion limit exceeded: {MAX_DEPTH}"))
            raise _SyntaxError
        node = self.either()
        mark = self.take("?")
        if mark is not None:
            self.closers.append(":")
            yes = self.either()
            self.closers.pop()
            if self.need(":"):
                node = Call(mark.at, "_?_:_", [node, yes, self.expression()])
        self.depth -= 1
        return node

    def either(self) -> Node:
        terms, marks = [self.both()], []
        while (mark := self.take("||")) is not None:
            marks.append(mark.at)
            terms.append(self.both())
        return _balanced("_||_", terms, marks, 0, len(marks))

    def both(self) -> Node:
        terms, marks = [self.infix()], []
        while (mark := self.take("&&")) is not None:
            marks.append(mark.at)
            terms.append(self.infix())
        return _balanced("_&&_", terms, marks, 0, len(marks))

    def infix(self, level: int = 0) -> Node:
        """Relations, sums and products: what binds at least as strongly as ``level`` says."""
        node = self.unary()
        while (mark := self.token).kind in ("mark", "name") and _BINDS.get(mark.text, -1) >= level:
            self.next()
            node = Call(mark.at, _BINARY[mark.text], [node, self.infix(_BINDS[mark.text] + 1)])
        return node

    def unary(self) -> Node:
        mark = self.take("!", "-")
        if mark is None:
            return self.member()
        if mark.text == "-" and self.token.kind in ("int", "float"):
            self.i -= 1
            return self.member()
        count, last = 1, mark
        while (again := self.take(mark.text)) is not None:
            count, last = count + 1, again
        if mark.text == "!" and self.token.kind == "end":
            raise self.fail(self.token.at, f"extraneous input '<EOF>' expecting {_START}")
        if mark.text == "-" and not self.begins(self.i):  # it might have been the sign of a number
            t = self.token
            text = self.text[last.at : t.at + len(t.text)] if t.kind != "end" else last.text
            self.told(t.at, f"no viable alternative at input '{_shown(text)}'")
            self.i -= 1  # it is taken for that of a difference
            return Const(last.at, None)
        node = self.member()
        if count % 2 == 0:
            return node
        return Call(mark.at, "!_" if mark.text == "!" else "-_", [node])

    def member(self) -> Node:
        node = self.primary()
        while True:
            if self.token.text == "{" and not (self.token.kind == "mark" and qualified_name(node)):
                return node
            if self.token.text == "." and self.token.kind == "mark" and self.lacks_name("?"):
                self.skip(".[")
                return node
            mark = self.take(".", "[", "{")
            if mark is None:
                return node
            if mark.text == ".":
                optional = self.take("?") is not None
                if optional and not self.is_named():
                    self.no_optional_name()
                    continue
                name = self.name()
                opened = None if optional else self.take("(")
                if opened is not None:
                    node = self.call(opened.at, name, self.arguments(".["), node)
                elif optional:
                    node = Call(mark.at, "_?._", [node, Const(mark.at, name)])
                else:
                    node = Select(mark.at, node, name)
            elif mark.text == "[":
                optional = self.take("?") is not None
                self.closers.append("]")
                index: Node = Const(self.token.at, None)
                if optional or self.begins(self.i) or self.unexpected(_INDEX):
                    index = self.expression()
                else:
                    self.skip()
                self.closers.pop()
                self.need("]", but=".[")
                node = Call(mark.at, "_[?_]" if optional else "_[_]", [node, index])
            else:
                node = self.message(mark.at, node)

    def message(self, at: int, node: Node) -> Node:
        entries: list[tuple[Any, Node, bool]] = []
        self.closers.append("},")
        if self.is_empty("}"):
            self.closers.pop()
            return MapOf(at, entries, qualified_name(node))
        while self.take("}") is None:
            optional = self.take("?") is not None
            if self.token.kind not in ("name", "escaped"):
                after = self.tokens[min(self.i + 1, len(self.tokens) - 1)]
                if after.kind not in ("name", "escaped"):
                    raise self.fail(self.token.at, f"mismatched input '{_shown(self.token.text)}' expecting {_FIELD}")
                self.extraneous(_FIELD)
            field, colon = self.name(), self.token.at
            if self.need(":"):
                entries.append(((field, colon), self.expression(), optional))
            if self.take(",") is None:
                self.need("}", ",")
                break
        self.closers.pop()
        return MapOf(at, entries, qualified_name(node))

    def is_named(self) -> bool:
        """Whether there is a name here, behind ``.?``; what is too much before one is passed over."""
        if self._is_name(self.token):
            return True
        t = self.token
        if t.kind == "end" or not self._is_name(self.tokens[self.i + 1]):
            return False
        self.extraneous(_NAME)
        return True

    @staticmethod
    def _is_name(t: Token) -> bool:
        return t.kind == "escaped" or (t.kind == "name" and t.text not in _LITERALS and t.text != "in")

    def no_optional_name(self) -> None:
        t = self.token
        self.told(t.at, f"mismatched input '{_shown(t.text)}' expecting {_NAME}")
        self.problems.append(Problem(t.at, "unsupported ident kind"))
        self.skip()

    def name(self) -> str:
        t = self.next()
        if t.kind == "escaped":  # not everybody may write so
            self.problems.append(Problem(t.at, "unsupported syntax: '`'"))
        return t.text

    def arguments(self, but: str = "") -> list[Node]:
        """What is between the parentheses of a call, up to the closing one; ``but`` as for ``need``."""
        out: list[Node] = []
        self.closers.append("),")
        if self.first(")", _ARGUMENT):
            while True:
                out.append(self.expression())
                if self.take(",") is None:
                    self.closers.pop()
                    self.need(")", but=but)
                    return out
        self.closers.pop()
        return out

    def first(self, closer: str, expected: str, more: str = "") -> bool:
        """Whether there is anything between brackets, of which the first is open; an empty pair is taken."""
        if self.take(closer) is not None:
            return False
        while not self.begins(self.i) and not (self.token.kind == "mark" and self.token.text in more):
            if not self.unexpected(expected, closer + more):
                self.skip()
                self.take(closer)
                return False
            if self.take(closer) is not None:
                return False
        return True

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
            self.next()
            number = self.next()
            return self.number(Token(number.kind, "-" + number.text, t.at))
        if t.kind in ("int", "uint", "float"):
            return self.number(self.next())
        if t.kind in ("text", "raw"):
            return Const(t.at, self.literal(self.next()))
        if t.kind == "name" and t.text in _LITERALS:
            self.next()
            return Const(t.at, _LITERALS[t.text])
        if self.take("("):
            return self.group()
        if self.take("["):
            return self.list_of(t.at)
        if self.take("{"):
            return self.map_of(t.at)
        if t.text == "." and t.kind == "mark" and self.lacks_name():
            self.skip()
            return Const(t.at, None)
        dotted = self.take(".")
        if self.token.kind == "name" and self.token.text != "in":
            at, name = self.token.at, self.next().text
            if name in RESERVED:
                self.problems.append(Problem(at, f"reserved identifier: {name}"))
            full = f".{name}" if dotted else name
            opened = self.take("(")
            if opened is not None:
                return self.call(opened.at, full, self.arguments(), None)
            return Const(at, None) if name in RESERVED else Ident(at, full)
        if self.unexpected(_START):
            return self.unary()
        self.skip()
        return Const(t.at, None)

    def group(self) -> Node:
        self.closers.append(")")
        if not self.begins(self.i) and not self.unexpected(_START):
            self.skip()
            node: Node = Const(self.token.at, None)
        else:
            node = self.expression()
        self.closers.pop()
        self.need(")")
        return node

    def list_of(self, at: int) -> Node:
        items: list[Node] = []
        optional = set()
        self.closers.append("],")
        more = self.first("]", _ITEM, ",?") and not self.is_empty("]")
        while more:
            if self.take("?") is not None:
                optional.add(len(items))
            items.append(self.expression())
            more = self.goes_on("]")
        self.closers.pop()
        return ListOf(at, items, frozenset(optional))

    def is_empty(self, closer: str) -> bool:
        """Whether there is nothing but a comma between brackets."""
        return self.token.text == "," and self.token.kind == "mark" and not self.goes_on(closer, "")

    def goes_on(self, closer: str, optional: str = "?") -> bool:
        """Behind one of several: whether another one comes. A comma that none follows is the last, and then the bracket has to end."""
        closers = self.closers.pop()
        try:
            if self.take(",") is None:
                self.need(closer, ",")
                return False
            if optional and (self.begins(self.i) or (self.token.kind == "mark" and self.token.text == optional)):
                return True
            self.need(closer)
            return False
        finally:
            self.closers.append(closers)

    def map_of(self, at: int) -> Node:
        entries: list[tuple[Any, Node, bool]] = []
        self.closers.append("},")
        more = self.first("}", _ENTRY, ",?") and not self.is_empty("}")
        while more:
            optional = self.take("?") is not None
            self.closers.append(":")
            key = self.expression()
            self.closers.pop()
            if not self.need(":"):  # no other entry is read then
                self.take(",")
                self.closers.pop()
                self.need("}")
                return MapOf(at, entries)
            entries.append((key, self.expression(), optional))
            more = self.goes_on("}")
        self.closers.pop()
        return MapOf(at, entries)

    # --- literals

    def number(self, t: Token) -> Node:
        if t.kind == "float":
            value = float(t.text)
            if math.isinf(value):
                self.problems.append(Problem(t.at, "invalid double literal"))
            return Const(t.at, value)
        unsigned = t.kind == "uint"
        digits = t.text[:-1] if unsigned else t.text
        whole = int(digits, 16) if "x" in digits else decimal(digits)
        if unsigned:
            if whole >= 1 << 64:
                self.problems.append(Problem(t.at, "invalid uint literal"))
            return Const(t.at, Uint(whole))
        if not -(1 << 63) <= whole < 1 << 63:
            self.problems.append(Problem(t.at, "invalid int literal"))
        return Const(t.at, whole)

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


def _balanced(function: str, terms: list[Node], marks: list[int], low: int, high: int) -> Node:
    """The terms from ``low`` to ``high``, joined by what stands at ``marks``: as a tree that is not deep, however many there are."""
    if low == high:
        return terms[low]
    middle = (low + high) // 2
    left, right = _balanced(function, terms, marks, low, middle), _balanced(function, terms, marks, middle + 1, high)
    return Call(marks[middle], function, [left, right])


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
