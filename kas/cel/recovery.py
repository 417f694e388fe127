"""A parser with ANTLR's error recovery, for texts that do not fit the grammar: it reports unexpected tokens, skips or inserts tokens, and
continues. It is much slower than ``parser.py`` and yields the same tree for any text; it does not use recursion.

Each rule of the grammar is a coroutine that requests the rules it consists of; ``_Rules.run`` keeps the suspended ones. A ``site`` is a
position in the grammar, ``look`` the kinds of tokens that may come there, including ``END_OF_RULE`` where the rule may end.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from kas.cel.problems import NOWHERE, Problem
from kas.cel.tokens import END, Token, Unread

MAX_DEPTH = 250  # of each rule within itself
MAX_ERRORS = 100
MAX_ATTEMPTS = 30
MAX_SKIPPED = 256

END_OF_RULE = ""
_RELATIONS = ("==", "!=", "in", "<", "<=", ">=", ">")
_LITERALS = ("true", "false", "null")
_MARKS = (
    *_RELATIONS, "&&", "||", "[", "]", "{", "}", "(", ")", ".", ",", "-", "!", "?", ":", "+", "*", "/", "%", *_LITERALS,
)  # fmt: skip
_NAMED = ("NUM_FLOAT", "NUM_INT", "NUM_UINT", "STRING", "BYTES", "IDENTIFIER", "ESC_IDENTIFIER")
# Token kinds as errors name them, in their order.
_SHOWN = {END: END} | {mark: f"'{mark}'" for mark in _MARKS} | {name: name for name in _NAMED}
_KINDS = {
    "float": "NUM_FLOAT", "int": "NUM_INT", "uint": "NUM_UINT", "text": "STRING", "raw": "STRING", "name": "IDENTIFIER",
    "escaped": "ESC_IDENTIFIER",
}  # fmt: skip
_RESERVED = frozenset(f".{word}" for word in _LITERALS)
_NUMBERS = ("NUM_INT", "NUM_FLOAT")
_NAME = frozenset(("IDENTIFIER", "ESC_IDENTIFIER"))
_MEMBERS = frozenset(("[", "{", "(", ".", "-", *_LITERALS, *_NAMED[:-1]))
_BEGINS = _MEMBERS | {"!"}
_OPTIONAL = _BEGINS | {"?"}
_ENDS = frozenset((END_OF_RULE,))
_PRECEDENCE = {"*": 2, "/": 2, "%": 2, "+": 1, "-": 1}

Look = frozenset[str]


class Branch:
    """The result of a rule, or of its chosen alternative; ``parts`` are its labelled rules and tokens."""

    __slots__ = ("kind", "parts", "start")

    def __init__(self, kind: str, start: Token, **parts: Any) -> None:
        self.kind, self.start, self.parts = kind, start, parts

    def add(self, label: str, part: Any) -> None:
        """Append a part with the label."""
        self.parts.setdefault(label, []).append(part)


class _Frame:
    """A rule being parsed."""

    __slots__ = ("follow", "parent", "precedence", "rule", "site", "tree")

    def __init__(self, rule: str, parent: _Frame | None, site: int, follow: Look, precedence: int, tree: Branch) -> None:
        self.rule, self.parent, self.site, self.follow, self.precedence, self.tree = rule, parent, site, follow, precedence, tree


class _MismatchError(Exception):
    """The rule cannot continue; ``str`` is the reason."""

    def __init__(self, token: Token, message: str) -> None:
        super().__init__(message)
        self.token = token


class _GivenUpError(Exception):
    """Parsing is abandoned."""


_Steps = Generator[tuple[Any, ...], Branch, None]


def kind_of(t: Token) -> str:
    """Return the kind of a token in the grammar."""
    if t.kind in ("mark", "end") or (t.kind == "name" and t.text in ("in", *_LITERALS)):
        return t.text
    return "BYTES" if t.kind in ("text", "raw") and t.text[0] in "bB" else _KINDS[t.kind]


def recover(text: str, tokens: list[Token], unread: list[Unread]) -> tuple[Branch | None, list[Problem]]:
    """Return the tree, as far as there is one (None: parsing was abandoned), and the problems of the text."""
    rules = _Rules(text, tokens, unread)
    try:
        return rules.run(), rules.problems
    except _GivenUpError:
        return None, rules.problems


def _shown(text: str) -> str:
    return "'" + text.replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r") + "'"


def _expected(look: Look) -> str:
    names = [name for kind, name in _SHOWN.items() if kind in look]
    return names[0] if len(names) == 1 else "{" + ", ".join(names) + "}"


class _Recovery:
    """The tokens, and ANTLR's strategy for unexpected ones."""

    def __init__(self, text: str, tokens: list[Token], unread: list[Unread]) -> None:
        self.text, self.tokens, self.unread = text, tokens, unread
        self.kinds = [kind_of(t) for t in tokens]
        self.i = self.read = self.lexed = self.reported = self.attempts = 0
        self.problems: list[Problem] = []
        self.recovering = False  # after an error: further errors are suppressed until a token matches
        self.site = 0
        self.failed_at, self.failed_sites = -1, set[int]()
        self.frame: _Frame | None = None

    # --- tokens

    def look(self, n: int) -> str:
        """Return the kind of the ``n``-th token from here; reports lexer errors before it when they are first passed."""
        place = min(self.i + n - 1, len(self.tokens) - 1)
        while self.lexed < len(self.unread) and self.unread[self.lexed].before <= place:
            self.lexed += 1
            self.tell(self.unread[self.lexed - 1].problem)
        return self.kinds[place]

    @property
    def token(self) -> Token:
        return self.tokens[self.i]

    def consume(self) -> Token:
        t = self.tokens[self.i]
        if self.i < len(self.tokens) - 1:
            self.i += 1
            self.look(1)
        return t

    # --- errors

    def tell(self, problem: Problem) -> None:
        if self.reported == MAX_ERRORS:
            self.problems.append(Problem(problem.at, f"Syntax error: More than {MAX_ERRORS} syntax errors"))
            raise _GivenUpError
        self.reported += 1
        self.problems.append(problem)

    def error(self, t: Token, message: str) -> None:
        """Report an error, unless it may be a consequence of the previous one."""
        if not self.recovering:
            self.recovering = True
            self.tell(Problem(t.at, f"Syntax error: {message}"))

    def fits(self) -> None:
        self.recovering, self.failed_at, self.failed_sites = False, -1, set()

    def expected(self, look: Look) -> Look:
        """Return the tokens that may come, including those after the rule if it may end."""
        frame, out = self.frame, look
        while END_OF_RULE in look and frame is not None:
            look, frame = frame.follow, frame.parent
            out |= look
        return out - _ENDS

    def mismatch(self, look: Look) -> _MismatchError:
        return _MismatchError(self.token, f"mismatched input {_shown(self.token.text)} expecting {_expected(self.expected(look))}")

    def no_way(self, ahead: int) -> _MismatchError:
        """Return the error that no alternative matches the tokens up to ``ahead``."""
        self.look(ahead + 1)
        first, last = self.token, self.tokens[min(self.i + ahead, len(self.tokens) - 1)]
        if first.kind == "end":
            return _MismatchError(first, f"no viable alternative at input {_shown(END)}")
        shown, at = "", first.at
        for bad in self.unread:  # text that is not a token is not shown
            if first.at < bad.problem.at < last.at:
                shown += self.text[at : bad.problem.at]
                at = bad.problem.at + len(bad.text)
        shown += self.text[at : last.at + (len(last.text) if last.kind != "end" else 0)]
        if shown in _RESERVED:
            return _MismatchError(last, f"mismatched input '{shown[1:]}' expecting IDENTIFIER")
        return _MismatchError(last, f"no viable alternative at input {_shown(shown)}")

    def unwanted(self, look: Look) -> None:
        self.error(self.token, f"extraneous input {_shown(self.token.text)} expecting {_expected(self.expected(look))}")

    def delete(self, look: Look) -> bool:
        """If the next token fits, skip the current one and return True."""
        if self.look(2) not in self.expected(look):
            return False
        self.unwanted(look)
        self.consume()
        self.fits()
        return True

    def resume(self) -> Look:
        """Return the tokens with which the open rules may continue."""
        frame, out = self.frame, frozenset[str]()
        while frame is not None and frame.parent is not None:
            out |= frame.follow
            frame = frame.parent
        return out - _ENDS

    def skip(self, until: Look, most: int) -> None:
        while (kind := self.look(1)) != END and kind not in until:
            if not most:
                self.problems.append(Problem(NOWHERE, f"error recovery token lookahead limit exceeded: {MAX_SKIPPED}"))
                raise _GivenUpError
            most -= 1
            self.consume()

    def attempt(self) -> None:
        if self.attempts == MAX_ATTEMPTS:
            self.tell(Problem(self.token.at, f"Syntax error: error recovery attempt limit exceeded: {MAX_ATTEMPTS}"))
            raise _GivenUpError
        self.attempts += 1

    def give_up_rule(self, e: _MismatchError) -> None:
        """Report that the rule failed, and skip tokens that cannot follow it."""
        self.error(e.token, str(e))
        self.attempt()
        most = MAX_SKIPPED
        if self.failed_at == self.i and self.site in self.failed_sites:
            self.consume()  # guarantees progress
            most -= 1
        self.failed_at = self.i
        self.failed_sites.add(self.site)
        self.skip(self.resume(), most)

    # --- what rules do

    def sync(self, site: int, look: Look, again: bool = False) -> str:
        """Return the kind of the current token, one of ``look`` if an error can be repaired; ``again``: after a loop iteration."""
        self.site = site
        if not self.recovering and END_OF_RULE not in look and self.look(1) not in look:
            if again:
                self.unwanted(look)
                self.skip(self.expected(look) | self.resume(), len(self.tokens))
            elif not self.delete(look):
                raise self.mismatch(look)
        return self.look(1)

    def match(self, site: int, kind: str, then: Look = _ENDS) -> Token:
        """Consume a token of that kind, or insert one if the current token is one of ``then``."""
        self.site = site
        if self.look(1) != kind:
            wanted = frozenset((kind,))
            self.attempt()
            if not self.delete(wanted):
                if self.look(1) not in self.expected(then):
                    raise self.mismatch(wanted)
                t = self.token
                self.error(t, f"missing {_SHOWN[kind]} at {_shown(t.text)}")
                before = self.tokens[self.i - 1] if t.kind == "end" and self.i else t
                return Token("missing", f"<missing {_SHOWN[kind] if kind in _MARKS else 'undefined'}>", before.at)
        self.fits()
        return self.consume()


class _Rules(_Recovery):
    """The grammar."""

    def run(self) -> Branch:
        depths = dict.fromkeys(_RULES, 0)
        waiting: list[_Steps] = []
        request: tuple[Any, ...] | None = ("start", 0, _ENDS)
        done: Branch | None = None
        self.look(1)
        while True:
            if request is not None:
                rule, site, follow, *precedence = request
                depths[rule] += 1
                if depths[rule] > MAX_DEPTH:
                    self.problems.append(Problem(NOWHERE, f"expression recursion limit exceeded: {MAX_DEPTH}"))
                    raise _GivenUpError
                tree = Branch(rule, self.token)
                self.site = site
                self.frame = frame = _Frame(rule, self.frame, site, follow, precedence[0] if precedence else 0, tree)
                waiting.append(_RULES[rule](self, frame))
                done = None
            try:
                request = waiting[-1].send(done)  # type: ignore[arg-type]
                continue
            except StopIteration:
                pass
            except _MismatchError as e:
                self.give_up_rule(e)
            assert self.frame is not None
            waiting.pop()
            request, done, ended = None, self.frame.tree, self.frame
            depths[ended.rule] -= 1
            self.site, self.frame = ended.site, ended.parent
            if self.frame is None:
                return done

    def start(self, f: _Frame) -> _Steps:
        f.tree.parts["e"] = yield "expr", 1, frozenset((END,))
        self.match(2, END)

    def expr(self, f: _Frame) -> _Steps:
        parts = f.tree.parts
        parts["e"] = yield "or", 3, frozenset(("?", END_OF_RULE))
        if self.sync(4, frozenset(("?", END_OF_RULE))) == "?":
            parts["op"] = self.match(5, "?", _BEGINS)
            parts["yes"] = yield "or", 6, frozenset(":")
            self.match(7, ":", _BEGINS)
            parts["no"] = yield "expr", 8, _ENDS

    def either(self, f: _Frame) -> _Steps:
        yield from self._chain(f, "||", "and", 9)

    def both(self, f: _Frame) -> _Steps:
        yield from self._chain(f, "&&", "relation", 13)

    def _chain(self, f: _Frame, mark: str, rule: str, site: int) -> _Steps:
        look = frozenset((mark, END_OF_RULE))
        f.tree.parts["e"] = yield rule, site, look
        kind = self.sync(site + 1, look)
        while kind == mark:
            f.tree.add("ops", self.match(site + 2, mark, _BEGINS))
            f.tree.add("more", (yield rule, site + 3, look))
            kind = self.sync(site + 1, look, True)

    def relation(self, f: _Frame) -> _Steps:
        look = frozenset((*_RELATIONS, END_OF_RULE))
        f.tree.parts["e"] = yield "calc", 20, look
        while self.sync(21, look) in _RELATIONS and f.precedence <= 1:
            f.tree = Branch("relation", f.tree.start, left=f.tree, op=self.match(22, self.look(1)))
            f.tree.parts["right"] = yield "relation", 23, look, 2

    def calc(self, f: _Frame) -> _Steps:
        look = frozenset((*_PRECEDENCE, END_OF_RULE))
        f.tree.parts["e"] = yield "unary", 24, look
        while _PRECEDENCE.get(kind := self.sync(25, look), -1) >= f.precedence:
            f.tree = Branch("calc", f.tree.start, left=f.tree, op=self.match(26, kind))
            f.tree.parts["right"] = yield "calc", 27, look, _PRECEDENCE[kind] + 1

    def unary(self, f: _Frame) -> _Steps:
        kind = self.sync(28, _BEGINS)
        if kind == "!":
            f.tree.kind = "not"
            while kind == "!":
                f.tree.add("ops", self.match(29, "!", _BEGINS))
                kind = self.sync(30, _BEGINS, True)
        elif kind == "-" and self.look(2) not in _NUMBERS:  # otherwise it is the sign of a number literal
            if self.look(2) not in _MEMBERS:
                raise self.no_way(1)
            f.tree.kind = "negated"
            while True:
                f.tree.add("ops", self.match(31, "-", _MEMBERS))
                kind = self.sync(32, _MEMBERS, True)
                if kind not in _MEMBERS:
                    raise self.no_way(0)
                if kind != "-":
                    break
                if self.look(2) not in _MEMBERS:
                    raise self.no_way(1)
        elif kind not in _MEMBERS:
            raise self.no_way(0)
        else:
            f.tree.kind = "member expr"
        f.tree.parts["e"] = yield "member", 33, _ENDS

    def member(self, f: _Frame) -> _Steps:
        look = frozenset((".", "[", END_OF_RULE))
        f.tree.kind = "primary expr"
        f.tree.parts["e"] = yield "primary", 34, look
        while (kind := self.sync(35, look)) in (".", "["):
            self.site = 36
            if kind == "." and self.look(2) not in ("?", *_NAME):
                raise self.no_way(1)
            f.tree = Branch("index" if kind == "[" else "select", f.tree.start, e=f.tree)
            parts = f.tree.parts
            if kind == "[":
                parts["op"] = self.match(37, "[", _OPTIONAL)
                if self.sync(38, _OPTIONAL) == "?":
                    parts["opt"] = self.match(39, "?", _BEGINS)
                parts["index"] = yield "expr", 40, frozenset("]")
                self.match(41, "]", look)
            elif self.look(2) == "IDENTIFIER" and self.look(3) == "(":
                f.tree.kind = "member call"
                self.match(42, ".")
                parts["name"] = self.match(43, "IDENTIFIER")
                yield from self._arguments(f, 44)
            else:
                parts["op"] = self.match(48, ".")
                if self.sync(49, _NAME | {"?"}) == "?":
                    parts["opt"] = self.match(50, "?", _NAME)
                parts["name"] = yield "name", 51, look

    def _arguments(self, f: _Frame, site: int) -> _Steps:
        f.tree.parts["op"] = self.match(site, "(")
        if self.sync(site + 1, _BEGINS | {")"}) in _BEGINS:
            f.tree.parts["args"] = yield "arguments", site + 2, frozenset(")")
        self.match(site + 3, ")", frozenset((".", "[", END_OF_RULE)) if f.tree.kind == "member call" else _ENDS)

    def primary(self, f: _Frame) -> _Steps:
        kind = self.sync(52, _MEMBERS)
        if kind in (".", "IDENTIFIER"):
            yield from self._named(f)
        elif kind == "(":
            f.tree.kind = "nested"
            self.match(53, "(")
            f.tree.parts["e"] = yield "expr", 54, frozenset(")")
            self.match(55, ")")
        elif kind == "[":
            f.tree.kind = "list"
            f.tree.parts["op"] = self.match(56, "[")
            yield from self._entries(f, "items", "]", _OPTIONAL, 57)
        elif kind == "{":
            f.tree.kind = "map"
            f.tree.parts["op"] = self.match(62, "{")
            yield from self._entries(f, "pairs", "}", _OPTIONAL, 63)
        elif kind in _MEMBERS:
            f.tree.kind = "constant"
            f.tree.parts["e"] = yield "literal", 68, _ENDS
        else:
            raise self.no_way(0)

    def _named(self, f: _Frame) -> _Steps:
        """Parse a name, a call, or a message literal, which the brace after its name distinguishes."""
        dotted = self.look(1) == "."
        if self.look(1 + dotted) != "IDENTIFIER":
            raise self.no_way(1)
        at = 2 + dotted
        f.tree.kind = "call" if self.look(at) == "(" else "ident"
        while self.look(at) == "." and self.look(at + 1) == "IDENTIFIER":
            at += 2
        if self.look(at) == "{":
            f.tree.kind = "message"
        if dotted:
            f.tree.parts["dot"] = self.match(69, ".")
        f.tree.add("names", self.match(70, "IDENTIFIER"))
        if f.tree.kind == "call":
            yield from self._arguments(f, 71)
        elif f.tree.kind == "message":
            while self.look(1) == ".":
                self.match(75, ".")
                f.tree.add("names", self.match(76, "IDENTIFIER"))
            f.tree.parts["op"] = self.match(77, "{")
            yield from self._entries(f, "fields", "}", _NAME | {"?"}, 78)

    def _entries(self, f: _Frame, rule: str, closer: str, first: Look, site: int) -> _Steps:
        """Parse the entries between the brackets of a list, map or message."""
        ends = frozenset((",", closer))
        if self.sync(site, first | ends) in first:
            f.tree.parts["entries"] = yield rule, site + 1, ends
        if self.sync(site + 2, ends) == ",":
            self.match(site + 3, ",")
        self.match(site + 4, closer)

    def arguments(self, f: _Frame) -> _Steps:
        look = frozenset((",", END_OF_RULE))
        f.tree.add("e", (yield "expr", 83, look))
        while self.sync(84, look) == ",":
            self.match(85, ",")
            f.tree.add("e", (yield "expr", 86, look))

    def items(self, f: _Frame) -> _Steps:
        look = frozenset((",", END_OF_RULE))
        f.tree.add("e", (yield "item", 87, look))
        while self.sync(88, look) == "," and self.look(2) in _OPTIONAL:
            self.match(89, ",")
            f.tree.add("e", (yield "item", 90, look))

    def fields(self, f: _Frame) -> _Steps:
        return self._pairs(f, "field", _NAME | {"?"}, 91)

    def pairs(self, f: _Frame) -> _Steps:
        return self._pairs(f, "item", _OPTIONAL, 98)

    def _pairs(self, f: _Frame, rule: str, first: Look, site: int) -> _Steps:
        look = frozenset((",", END_OF_RULE))
        f.tree.add("keys", (yield rule, site, frozenset(":")))
        f.tree.add("colons", self.match(site + 1, ":", _BEGINS))
        f.tree.add("values", (yield "expr", site + 2, look))
        while self.sync(site + 3, look) == "," and self.look(2) in first:
            self.match(site + 4, ",")
            f.tree.add("keys", (yield rule, site + 5, frozenset(":")))
            f.tree.add("colons", self.match(site + 6, ":", _BEGINS))
            f.tree.add("values", (yield "expr", site + 2, look))

    def field(self, f: _Frame) -> _Steps:
        if self.sync(105, _NAME | {"?"}) == "?":
            f.tree.parts["opt"] = self.match(106, "?", _NAME)
        f.tree.parts["name"] = yield "name", 107, _ENDS

    def name(self, f: _Frame) -> _Steps:
        kind = self.sync(108, _NAME)
        if kind not in _NAME:
            raise self.no_way(0)
        f.tree.kind = "simple name" if kind == "IDENTIFIER" else "escaped name"
        f.tree.parts["id"] = self.match(109, kind)
        yield from ()

    def item(self, f: _Frame) -> _Steps:
        if self.sync(110, _OPTIONAL) == "?":
            f.tree.parts["opt"] = self.match(111, "?", _BEGINS)
        f.tree.parts["e"] = yield "expr", 112, _ENDS

    def literal(self, f: _Frame) -> _Steps:
        kind = self.sync(113, _MEMBERS - {"[", "{", "(", ".", "IDENTIFIER"})
        if kind == "-":
            if self.look(2) not in _NUMBERS:
                raise self.no_way(1)
            f.tree.parts["sign"] = self.match(114, "-", frozenset(_NUMBERS))
            kind = self.look(1)
        f.tree.kind = "number" if kind.startswith("NUM") else "text" if kind in ("STRING", "BYTES") else "word"
        f.tree.parts["token"] = self.match(115, kind)
        yield from ()


_RULES: dict[str, Callable[[_Rules, _Frame], _Steps]] = {
    "start": _Rules.start, "expr": _Rules.expr, "or": _Rules.either, "and": _Rules.both, "relation": _Rules.relation, "calc": _Rules.calc,
    "unary": _Rules.unary, "member": _Rules.member, "primary": _Rules.primary, "arguments": _Rules.arguments, "items": _Rules.items,
    "fields": _Rules.fields, "pairs": _Rules.pairs, "field": _Rules.field, "name": _Rules.name, "item": _Rules.item,
    "literal": _Rules.literal,
}  # fmt: skip
