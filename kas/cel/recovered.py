"""Conversion of the tree that ``recovery.py`` made of a text to nodes, with their problems (cel-go's ``parser/parser.go``)."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from kas.cel.making import Maker, balanced
from kas.cel.problems import BEFORE, NOWHERE, Problem
from kas.cel.recovery import MAX_DEPTH, Branch, recover
from kas.cel.syntax import Call, Const, Ident, ListOf, MapOf, Node, Select
from kas.cel.tokens import Token, Unread
from kas.cel.words import RESERVED

_Steps = Generator["Branch | None", Node, Node]
_WORDS = {"true": True, "false": False, "null": None}
# Rules that may nest at most MAX_DEPTH levels.
_COUNTED = frozenset(("expr", "relation", "calc", "select", "member call", "index"))


def read(text: str, tokens: list[Token], unread: list[Unread], bindings: bool) -> tuple[Node, list[Problem]]:
    """Return the tree and the problems of the text. With problems, only what they say holds of the tree."""
    tree, problems = recover(text, tokens, unread)
    if tree is None:
        return Const(BEFORE, None), problems
    nodes = _Nodes(bindings)
    nodes.problems = problems
    return nodes.run(tree.parts.get("e")), problems


def _at(tree: Branch) -> int:
    return tree.start.at


def _bare(tree: Branch | None) -> Branch | None:
    """Skip branches that only wrap another one."""
    while tree is not None and tree.kind in _BARE and "op" not in tree.parts and "ops" not in tree.parts:
        tree = tree.parts.get("e")
    return tree


_BARE = frozenset(("expr", "or", "and", "relation", "calc", "member expr", "primary expr", "nested", "constant"))


class _Nodes(Maker):
    """Converts the tree without recursion: each kind is a coroutine that requests the nodes of its parts."""

    __slots__ = ()

    def run(self, root: Branch | None) -> Node:
        waiting: list[_Steps] = []
        counts: list[bool] = []
        depth, request, done, asked = 0, root, None, True
        while True:
            if asked:
                tree = _bare(request)
                make = _KINDS.get(tree.kind) if tree is not None else None
                if tree is None or make is None:
                    done = Const(BEFORE, None)
                else:
                    depth += tree.kind in _COUNTED
                    if depth > MAX_DEPTH:
                        self.problems.append(Problem(NOWHERE, "max recursion depth exceeded"))
                        return Const(BEFORE, None)
                    waiting.append(make(self, tree))
                    counts.append(tree.kind in _COUNTED)
                    done = None
            if not waiting:
                assert done is not None
                return done
            try:
                request, asked = waiting[-1].send(done), True  # type: ignore[arg-type]
            except StopIteration as e:
                done, asked = e.value, False
                waiting.pop()
                depth -= counts.pop()

    def conditional(self, tree: Branch) -> _Steps:
        parts, nodes = tree.parts, list[Node]()
        for label in ("e", "yes", "no"):
            nodes.append((yield parts.get(label)))
        return Call(parts["op"].at, "_?_:_", nodes)

    def either(self, tree: Branch) -> _Steps:
        return (yield from self._chain(tree, "||"))

    def both(self, tree: Branch) -> _Steps:
        return (yield from self._chain(tree, "&&"))

    def _chain(self, tree: Branch, mark: str) -> _Steps:
        terms, marks = [(yield tree.parts.get("e"))], list[int]()
        more = tree.parts.get("more", [])
        for i, op in enumerate(tree.parts["ops"]):
            if i >= len(more):
                return self.wrong(_at(tree), f"unexpected character, wanted '{mark}'")
            terms.append((yield more[i]))
            marks.append(op.at)
        return balanced(f"_{mark}_", terms, marks, 0, len(marks))

    def binary(self, tree: Branch) -> _Steps:
        op, left = tree.parts["op"], (yield tree.parts["left"])
        right = yield tree.parts.get("right")
        return Call(op.at, "@in" if op.text == "in" else f"_{op.text}_", [left, right])

    def unary(self, tree: Branch) -> _Steps:
        ops = tree.parts.get("ops", [])
        node = yield tree.parts.get("e")
        if len(ops) % 2 == 0:
            return node
        return Call(ops[0].at, "!_" if tree.kind == "not" else "-_", [node])

    def failed(self, tree: Branch) -> _Steps:
        yield from ()
        return Const(_at(tree), "<<error>>")

    def select(self, tree: Branch) -> _Steps:
        parts, operand = tree.parts, (yield tree.parts["e"])
        name, op = parts.get("name"), parts.get("op")
        if name is None or op is None:
            return Const(_at(tree), None)
        field = self._field(name, _at(name)) or ""
        if "opt" in parts:
            return Call(op.at, "_?._", [operand, Const(_at(name), field)])
        return Select(op.at, operand, field)

    def _field(self, name: Branch, at: int) -> str | None:
        """Return a simple name; for other names, report a problem at ``at`` and return None."""
        if name.kind == "simple name":
            field: str = name.parts["id"].text
            return field
        self.problems.append(Problem(at, "unsupported syntax: '`'" if name.kind == "escaped name" else "unsupported ident kind"))
        return None

    def _arguments(self, tree: Branch) -> Generator[Branch | None, Node, list[Node]]:
        args: Branch | None = tree.parts.get("args")
        out = []
        for arg in args.parts.get("e", []) if args is not None else []:
            out.append((yield arg))
        return out

    def member_call(self, tree: Branch) -> _Steps:
        target = yield tree.parts["e"]
        args = yield from self._arguments(tree)
        return self.call(tree.parts["op"].at, tree.parts["name"].text, args, target)

    def index(self, tree: Branch) -> _Steps:
        parts, operand = tree.parts, (yield tree.parts["e"])
        index = yield parts.get("index")
        return Call(parts["op"].at, "_[?_]" if "opt" in parts else "_[_]", [operand, index])

    def name(self, tree: Branch) -> _Steps:
        token = tree.parts["names"][0]
        if token.text in RESERVED:
            return self.wrong(_at(tree), f"reserved identifier: {token.text}")
        full = f".{token.text}" if "dot" in tree.parts else token.text
        if tree.kind == "ident":
            return Ident(token.at, full)
        args = yield from self._arguments(tree)
        return self.call(tree.parts["op"].at, full, args)

    def message(self, tree: Branch) -> _Steps:
        parts = tree.parts
        name = ("." if "dot" in parts else "") + ".".join(t.text for t in parts["names"])
        entries: list[tuple[Any, Node, bool]] = []
        for key, colon, value in _entries(parts.get("entries")):
            field = self._field(key.parts["name"], _at(parts["entries"])) if "name" in key.parts else None
            if field is not None:
                entries.append(((field, colon.at), (yield value), "opt" in key.parts))
        return MapOf(parts["op"].at, entries, name)

    def map_of(self, tree: Branch) -> _Steps:
        entries: list[tuple[Any, Node, bool]] = []
        for key, _, value in _entries(tree.parts.get("entries")):
            node = yield key.parts.get("e")
            entries.append((node, (yield value), "opt" in key.parts))
        return MapOf(tree.parts["op"].at, entries)

    def list_of(self, tree: Branch) -> _Steps:
        entries: Branch | None = tree.parts.get("entries")
        items, optional = list[Node](), set[int]()
        for item in entries.parts.get("e", []) if entries is not None else []:
            if "opt" in item.parts:
                optional.add(len(items))
            items.append((yield item.parts.get("e")))
        return ListOf(tree.parts["op"].at, items, frozenset(optional))

    def literal(self, tree: Branch) -> _Steps:
        yield from ()
        token, at = tree.parts["token"], _at(tree)
        if tree.kind == "word":
            return Const(at, _WORDS[token.text])
        if tree.kind == "text":
            return self.text(at, token.text)
        return self.number(at, token.kind, f"-{token.text}" if "sign" in tree.parts else token.text)


def _entries(tree: Branch | None) -> list[tuple[Branch, Token, Branch]]:
    """Return the complete entries of a map or message."""
    parts = tree.parts if tree is not None else {}
    return list(zip(parts.get("keys", []), parts.get("colons", []), parts.get("values", []), strict=False))


_KINDS: dict[str, Callable[[_Nodes, Branch], _Steps]] = {
    "expr": _Nodes.conditional, "or": _Nodes.either, "and": _Nodes.both, "relation": _Nodes.binary, "calc": _Nodes.binary,
    "unary": _Nodes.failed, "not": _Nodes.unary, "negated": _Nodes.unary, "select": _Nodes.select, "member call": _Nodes.member_call,
    "index": _Nodes.index, "ident": _Nodes.name, "call": _Nodes.name, "message": _Nodes.message, "map": _Nodes.map_of,
    "list": _Nodes.list_of, "number": _Nodes.literal, "text": _Nodes.literal, "word": _Nodes.literal,
}  # fmt: skip
