"""``shardSelector``: lists and watches of the objects whose uid or namespace hashes into ranges (gate ShardedListAndWatch).

A selector is parsed by CEL's grammar but never evaluated: ``shardRange(field, '0x…', '0x…')``, several joined by ``||``. Messages and
rules are those of apiserver ``pkg/sharding`` and apimachinery ``pkg/sharding``.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

from kas.cel.parser import parse as parse_cel
from kas.cel.problems import CompileError
from kas.cel.syntax import Call, Const, Fold, Ident, ListOf, MapOf, Node, Select
from kas.cel.values import Uint
from kas.meta.field import go_quote
from kas.meta.records import NamedTuple

FIELDS = ("object.metadata.uid", "object.metadata.namespace")
END = "0x10000000000000000"  # 2^64, above every hash
DIGITS = frozenset("0123456789abcdef")


class ShardError(Exception):
    """An invalid selector; ``str`` is upstream's message."""


class Range(NamedTuple):
    """Hashes from ``start`` (inclusive) to ``end`` (exclusive), both as written."""

    field: str
    start: str
    end: str


class Shards:
    """A parsed selector. ``text`` is its form in a list's ``shardInfo``."""

    __slots__ = ("_bounds", "_member", "text")

    def __init__(self, ranges: list[Range]) -> None:
        self.text = " || ".join(f"shardRange({r.field}, '{r.start}', '{r.end}')" for r in ranges)
        self._member = ranges[0].field.rpartition(".")[2]
        bounds: list[int] = []  # the selected intervals: start, end, start, …
        for start, end in sorted((int(r.start, 16), int(r.end, 16)) for r in ranges):
            if bounds and start <= bounds[-1]:
                bounds[-1] = max(bounds[-1], end)
            else:
                bounds += (start, end)
        self._bounds = bounds

    def matches(self, obj: dict[str, Any]) -> bool:
        """Return whether the selector matches an object."""
        return bisect_right(self._bounds, field_hash(obj["metadata"].get(self._member) or "")) % 2 == 1


def field_hash(value: str) -> int:
    """Return the 64-bit FNV-1a hash."""
    found = 0xCBF29CE484222325
    for byte in value.encode(errors="surrogatepass"):
        found = (found ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return found


def parse(text: str) -> Shards:
    """Parse a selector. Raises ShardError."""
    text = text.strip()
    if not text:
        raise ShardError("empty shard selector is not allowed; omit the parameter for unfiltered lists")
    try:
        root = parse_cel(text)
    except CompileError as e:
        raise ShardError(f"CEL parse error: {e.problems[0].message}") from None
    ranges, left = list[Range](), [root]
    while left:
        node = left.pop()
        if not isinstance(node, Call):
            raise ShardError(f"unexpected expression kind {_kind(node)}; expected shardRange() call or || operator")
        if node.function == "_||_":
            left += reversed(node.args)
        elif node.function == "shardRange":
            ranges.append(_range(node.args))
        else:
            raise ShardError(f"unsupported function {go_quote(node.function)}; only shardRange() and || are allowed")
    for r in ranges:
        if r.field != ranges[0].field:
            raise ShardError(f"all shard ranges must use the same field, got {go_quote(ranges[0].field)} and {go_quote(r.field)}")
    return Shards(ranges)


def _range(args: list[Node]) -> Range:
    if len(args) != 3:
        raise ShardError(f"shardRange() requires exactly 3 arguments, got {len(args)}")
    field = _path(args[0])
    if field not in FIELDS:
        raise ShardError(f"unsupported field path {go_quote(field)}; supported: {', '.join(FIELDS)}")
    start, end = _hex(args[1], "hexStart"), _hex(args[2], "hexEnd")
    if int(start, 16) >= int(end, 16):
        raise ShardError(f"shard range start {start} must be less than end {end}")
    return Range(field, start, end)


def _path(node: Node) -> str:
    names: list[str] = []
    while isinstance(node, Select):
        names.append(node.field)
        node = node.operand
    if not isinstance(node, Ident):
        why = f"expected field path (e.g. object.metadata.uid), got expression kind {_kind(node)}"
        raise ShardError(f"shardRange() first argument: {why}")
    return ".".join((node.name, *reversed(names)))


def _hex(node: Node, name: str) -> str:
    """Return a bound as written. Raises ShardError."""
    if not isinstance(node, Const):
        raise ShardError(f"{name} must be a string literal (e.g. '0xff'), got expression kind {_kind(node)}")
    text = node.value
    if not isinstance(text, str):
        raise ShardError(f"{name} must be a string literal, got {_go_type(text)}")
    if not text.startswith("0x"):
        raise ShardError(f"{name} must have '0x' prefix, got {go_quote(text)}")
    digits = text[2:]
    size = len(digits.encode(errors="surrogatepass"))
    if not digits:
        raise ShardError(f"{name}: hex value is required after '0x'")
    if size > 17:
        raise ShardError(f"{name}: hex value too long ({size} chars, max 17): {go_quote(digits)}")
    for c in digits:
        if c not in DIGITS:
            raise ShardError(f"{name}: invalid hex character {go_quote(c)} in {go_quote(text)}")
    if size == 17 and text != END:
        raise ShardError(f"{name}: 17-digit hex value must be '{END}' (2^64), got {go_quote(text)}")
    if size < 16:
        padded = go_quote("0x" + digits.rjust(16, "0"))
        raise ShardError(f"{name} must be a 0x-prefixed 16-digit hex value, got {go_quote(text)} (did you mean {padded}?)")
    return text


def _kind(node: Node) -> int:
    """Return cel-go's number for the kind of an expression."""
    if isinstance(node, MapOf):
        return 8 if node.name else 6
    kinds: dict[type[Node], int] = {Call: 1, Fold: 2, Ident: 3, ListOf: 4, Const: 5, Select: 7}
    return kinds[type(node)]


def _go_type(value: Any) -> str:
    if isinstance(value, Uint):
        return "uint64"
    types: dict[type, str] = {bool: "bool", int: "int64", float: "float64", bytes: "[]uint8"}
    return types.get(type(value), "structpb.NullValue")
