"""YAML as ``sigs.k8s.io/yaml`` reads and writes it: YAML 1.1 through libyaml, with the scalar rules of Go's yaml.v2.

Decoding gives the result of YAMLToJSON followed by a JSON parser: ``yes`` is true, timestamps stay text, keys become strings. Input is
bounded in depth and aliases (a document whose aliases multiply its size is refused), and in bytes by the caller. Encoding gives the exact
bytes of kube-apiserver for ``application/yaml``: keys in yaml.v2's natural order, its choice of quotes, lines folded at 80 columns.
"""

from __future__ import annotations

import base64
import io
import math
import re
import struct
from array import array
from calendar import monthrange
from collections.abc import Callable
from decimal import Decimal
from functools import cmp_to_key
from typing import Any, cast

import yaml
from yaml._yaml import CEmitter, CParser

from kas._codecs import go_float, go_quote
from kas.meta import utf8
from kas.meta.field import go_float as go_general

MAX_DEPTH = 1000
_TOO_DEEP = "exceeded maximum nesting depth"  # the error of libyaml from 0.2.6 on, at the same depth; earlier versions have no limit
# yaml.v2 compares the number of nodes made from aliases with those written. This is its bound for small documents, applied to all.
MAX_ALIASED_NODES = 100_000
MOST_REPEATED = 1000  # the most repeated keys that are reported, the same bound as for other errors


class YAMLError(ValueError):
    """Invalid YAML. ``str()`` is the error text of Go's yaml package, which begins with ``yaml: `` in most cases."""


_RESOLVED: dict[str, Any] = {"": None, "~": None, "null": None, "Null": None, "NULL": None}
for _word, _value in [(w, True) for w in ("y", "yes", "true", "on")] + [(w, False) for w in ("n", "no", "false", "off")]:
    _RESOLVED |= {_word: _value, _word.capitalize(): _value, _word.upper(): _value}
_RESOLVED |= {w: float("nan") for w in (".nan", ".NaN", ".NAN")}
_RESOLVED |= {s + w: float("inf") for w in (".inf", ".Inf", ".INF") for s in ("", "+")}
_RESOLVED |= {"-" + w: float("-inf") for w in (".inf", ".Inf", ".INF")}
_HINT_WORD = frozenset("yYnNtTfFoO~")
_HINT_NUMBER = frozenset("+-0123456789")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z")
_DOT_FLOAT = re.compile(r"\.[0-9](_?[0-9])*([eE][-+]?[0-9](_?[0-9])*)?\Z")
_BASE60 = re.compile(r"[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?\Z")
# A timestamp is a text, unless it is tagged !!timestamp.
_TIMESTAMP = re.compile(
    r"([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})"
    r"(?:[Tt ]([0-9]{1,2}):([0-9]{1,2}):([0-9]{1,2})(?:\.[0-9]+)?(Z|[-+]([0-9]{2}):([0-9]{2}))?)?\Z"
)
_NO_INT = object()
_DECIMAL, _HEX = "0123456789", "0123456789abcdefABCDEF"
_MAX_INT64 = (1 << 63) - 1


def _parse_int(text: str) -> Any:
    """``strconv.ParseInt(text, 0, 64)`` or ParseUint: with prefixes 0x, 0o, 0b, and a leading 0 for octal. Returns _NO_INT for anything
    else.
    """
    sign, digits = (-1, text[1:]) if text[:1] == "-" else (1, text[1:] if text[:1] == "+" else text)
    base = 10
    if len(digits) > 1 and digits[0] == "0":
        base = {"x": 16, "o": 8, "b": 2}.get(digits[1].lower(), 8)
        digits = digits[2:] if digits[1].lower() in "xob" else digits[1:]
    if not digits or len(digits) > 70 or digits.strip(_HEX if base == 16 else _DECIMAL):
        return _NO_INT
    try:
        value = sign * int(digits, base)
    except ValueError:
        return _NO_INT
    return value if -(1 << 63) <= value < (1 << 64) and not (value >= 1 << 63 and text[0] == "+") else _NO_INT


def _is_timestamp(text: str) -> bool:
    """Whether a text is a valid timestamp: with a time zone after a T, without one after a blank."""
    found = _TIMESTAMP.match(text)
    if found is None:
        return False
    year, month, day, hour, minute, second, zone, zone_hours, zone_minutes = found.groups()
    if hour is not None:
        if (text[found.end(3)] == " ") is (zone is not None) or int(hour) > 23 or int(minute) > 59 or int(second) > 59:
            return False
        if zone_hours is not None and (int(zone_hours) > 24 or int(zone_minutes) > 60):
            return False
    return 1 <= int(month) <= 12 and 1 <= int(day) <= monthrange(int(year) or 400, int(month))[1]


def _resolve(text: str) -> Any:
    """The value of a plain scalar; the text itself when it is a string or a timestamp."""
    if text in _RESOLVED and (text == "" or text[0] in _HINT_WORD or text[0] in ".+-"):
        return _RESOLVED[text]
    first = text[:1]
    if first == ".":
        number = float(text) if _DOT_FLOAT.match(text) else math.inf
        return _number(number) if math.isfinite(number) else text
    if first not in _HINT_NUMBER or _TIMESTAMP.match(text):
        return text
    plain = text.replace("_", "")
    number = _parse_int(plain)
    if number is not _NO_INT:
        return number
    if _FLOAT.match(plain):
        number = float(plain)
        return _number(number) if number not in (float("inf"), float("-inf")) else text
    return text


def _number(x: float) -> int | float:
    """A float as parsed back from its JSON text: Go prints whole ones without a point."""
    return int(Decimal(repr(x))) if x.is_integer() and abs(x) < 1 << 63 else x


def _message(error: yaml.YAMLError) -> str:
    """libyaml's error as yaml.v2 formats it, with the line that yaml.v2 would report."""
    if isinstance(error, yaml.reader.ReaderError):
        return f"yaml: {error.reason}"
    problem = getattr(error, "problem", None) or "unknown problem parsing YAML content"
    if problem == _TOO_DEEP:
        return "yaml: exceeded max depth"
    mark, context = getattr(error, "problem_mark", None), getattr(error, "context_mark", None)
    line = 0
    if mark is not None and mark.line:
        line = mark.line + isinstance(error, yaml.scanner.ScannerError)
    elif context is not None and context.line:
        line = context.line
    return _at(problem, line)


def _at(problem: str, line: int) -> str:
    return f"yaml: line {line}: {problem}" if line else f"yaml: {problem}"


_ESCAPED_SLASH = re.compile(r"(?<!\\)(?:\\\\)*\\/")
_BREAK = re.compile("\r\n|[\r\n\x85\u2028\u2029]")


def _check_escapes(source: str, event: Any) -> None:
    """Raises YAMLError for an escaped slash in double quotes, which libyaml accepts since 0.2.1 but yaml.v2 does not."""
    said = source[event.start_mark.index : event.end_mark.index]
    found = _ESCAPED_SLASH.search(said)
    if found is not None:
        line = event.start_mark.line + len(_BREAK.findall(said, 0, found.end()))
        raise YAMLError(_at("found unknown escape character", line + 1 if line else 0))


# Nodes of a document. They are kept until the whole document is parsed, because parse errors take precedence over errors of values. A
# scalar that is simply a string is represented by that str: most are, and a document may have a million.
class _Scalar:
    """A scalar; ``value`` is what its text resolves to without a tag."""

    __slots__ = ("plain", "tag", "text", "value")

    def __init__(self, text: str, tag: str, plain: bool, value: Any) -> None:
        self.text, self.tag, self.plain, self.value = text, tag, plain, value


class _Sequence:
    __slots__ = ("children",)

    def __init__(self) -> None:
        self.children: list[_Node] = []


class _Mapping:
    """A mapping. ``children`` are keys and values alternately, ``lines`` the lines on which they begin."""

    __slots__ = ("children", "lines")

    def __init__(self) -> None:
        self.children: list[_Node] = []
        self.lines = array("I")


class _Alias:
    __slots__ = ("name", "node")

    def __init__(self, name: str, node: _Node) -> None:
        self.name, self.node = name, node


_Node = str | _Scalar | _Sequence | _Mapping | _Alias
_TAGS = "tag:yaml.org,2002:"


class _Composer:
    """Builds nodes from a parser's events. It is a class without mutually referencing closures: those would form cycles that keep the
    parser, its input and all texts alive until a garbage collection.
    """

    __slots__ = ("_anchors", "_known", "_parser", "_source", "aliases")

    def __init__(self, parser: CParser, source: str | None) -> None:
        """``source`` is the document's text if it contains escaped slashes, else None."""
        self._parser, self._source = parser, source
        self.aliases: list[_Alias] = []
        self._anchors: dict[str, _Node] = {}
        self._known: dict[str, str | _Scalar] = {}  # plain scalars: the same few numbers and words recur

    def _scalar(self, event: Any) -> str | _Scalar:
        text, tag = event.value, event.tag
        if self._source is not None and event.style == '"':
            _check_escapes(self._source, event)
        if tag is not None:
            return _Scalar(text, tag.replace(_TAGS, "!!", 1), False, text)
        if not event.implicit[0]:
            return text
        found = self._known.get(text)
        if found is None:
            value = _resolve(text)
            found = self._known[text] = text if value is text and text != "<<" else _Scalar(text, "", True, value)
        return found

    def node(self, event: Any, depth: int) -> _Node:
        """The node that begins with ``event``. Raises YAMLError when it is nested too deeply."""
        if depth > MAX_DEPTH:
            raise YAMLError("yaml: exceeded max depth")
        kind = type(event)
        if kind is yaml.AliasEvent:
            if event.anchor not in self._anchors:
                raise YAMLError(f"yaml: unknown anchor '{event.anchor}' referenced")
            self.aliases.append(alias := _Alias(event.anchor, self._anchors[event.anchor]))
            return alias
        made: str | _Scalar | _Sequence | _Mapping
        made = self._scalar(event) if kind is yaml.ScalarEvent else _Sequence() if kind is yaml.SequenceStartEvent else _Mapping()
        if event.anchor is not None:
            self._anchors[event.anchor] = made
        if kind is yaml.SequenceStartEvent or kind is yaml.MappingStartEvent:
            self._children(made, kind, depth + 1)
        return made

    def _children(self, of: Any, kind: type, depth: int) -> None:
        """Reads the children of a sequence or mapping. The common case is inlined, since a document may have a million nodes."""
        end, lines = (yaml.MappingEndEvent, of.lines) if kind is yaml.MappingStartEvent else (yaml.SequenceEndEvent, None)
        take, add, plain, scalar = self._parser.get_event, of.children.append, yaml.ScalarEvent, self._scalar
        while (kind := type(item := take())) is not end:
            if lines is not None:
                lines.append(item.start_mark.line + 1)
            add(scalar(item) if kind is plain and item.anchor is None and depth <= MAX_DEPTH else self.node(item, depth))

    def let_go(self) -> None:
        """Breaks reference cycles once the nodes are no longer needed: an alias may refer to a node that contains it."""
        for alias in self.aliases:
            alias.node = ""


def _document(composer: _Composer, parser: CParser) -> _Node | None:
    """The root node of the first document; None when there is none."""
    parser.get_event()  # stream start
    start = parser.get_event()
    if isinstance(start, yaml.StreamEndEvent):
        return None
    if start.version is not None and start.version != (1, 1):  # libyaml accepts 1.2 as well
        raise YAMLError(_at("found incompatible YAML document", start.start_mark.line))
    document = composer.node(parser.get_event(), 0)
    parser.get_event()  # document end
    return document


def _scalar(node: _Scalar) -> Any:
    """yaml.v2's resolve: the value of a scalar by its tag or, if it is plain and untagged, by its text. Raises YAMLError."""
    text, tag = node.text, node.tag
    if tag == "!!binary":
        try:
            return utf8.text(base64.b64decode(text.replace("\n", "").replace("\r", ""), validate=True))
        except ValueError:  # non-ASCII characters raise a plain ValueError, not binascii.Error
            raise YAMLError("yaml: !!binary value contains invalid base64 data") from None
    if tag not in _RESOLVABLE:
        return node.value
    value: Any = text
    found = "!!timestamp" if tag == "!!timestamp" and _is_timestamp(text) else "!!str"
    if found == "!!str":
        value = _resolve(text)
        found = next(t for kind, t in _KINDS if isinstance(value, kind))
        if found == "!!int" and _is_float(text):
            found = "!!float"
    if found != tag and not (tag == "!!float" and found == "!!int" and value <= _MAX_INT64):
        raise YAMLError(f"yaml: cannot decode {found} `{text}` as a {tag}")
    return value


_RESOLVABLE = frozenset(("!!bool", "!!int", "!!float", "!!null", "!!timestamp"))
_KINDS = ((bool, "!!bool"), (int, "!!int"), (float, "!!float"), (type(None), "!!null"), (str, "!!str"))


def _is_float(text: str) -> bool:
    """Whether the text of a whole number is written as a float, as in 1.0 or 1e3."""
    return _parse_int(text.replace("_", "")) is _NO_INT


def _float(node: _Scalar) -> float:
    """The value as a float, although JSON represents it as a whole number."""
    return float(_scalar(node)) or float(node.text.replace("_", ""))  # -0.0


class _Decoder:
    """yaml.v2's decoder for values of any type, with the conversion to JSON of sigs.k8s.io/yaml. ``repeated`` collects the errors of strict
    decoding.
    """

    def __init__(self) -> None:
        self.open: set[int] = set()
        self.aliased = self.aliases = 0
        self.repeated: list[str] = []
        # the outermost key that JSON does not support, and its value; reported after all values are decoded
        self.unsupported: tuple[Any, _Node] | None = None

    def value(self, node: _Node) -> Any:
        if self.aliases:
            self.spend(len(node.text) if isinstance(node, _Scalar) else 0)
        if isinstance(node, str):
            return node
        if isinstance(node, _Scalar):
            return _scalar(node)
        if isinstance(node, _Sequence):
            return [self.value(item) for item in node.children]
        if isinstance(node, _Alias):
            return self.alias(node, self.value)
        out: dict[str, Any] = {}
        self.mapping(node, out, set())
        return out

    def spend(self, characters: int) -> None:
        """Accounts for a node that is decoded again through an alias, of about ``characters`` characters. Raises YAMLError beyond
        ``MAX_ALIASED_NODES``.
        """
        self.aliased += 1 + characters // 64
        if self.aliased > MAX_ALIASED_NODES:
            raise YAMLError("yaml: document contains excessive aliasing")

    def alias(self, node: _Alias, use: Callable[[_Node], Any]) -> Any:
        """Returns ``use`` of the aliased node. Raises YAMLError when the node contains itself."""
        if id(node.node) in self.open:
            raise YAMLError(f"yaml: anchor '{node.name}' value contains itself")
        self.open.add(id(node.node))
        self.aliases += 1
        value = use(node.node)
        self.aliases -= 1
        self.open.discard(id(node.node))
        return value

    def mapping(self, node: _Mapping, out: dict[str, Any], seen: set[tuple[type, Any]]) -> None:
        """Decodes a mapping into ``out``. ``seen`` holds its keys as written (1 is not "1", although JSON has one key for both)."""
        children = iter(node.children)
        for key, given, line in zip(children, children, node.lines[1::2], strict=True):
            if isinstance(key, _Scalar) and key.text == "<<" and (key.plain or key.tag == "!!merge"):
                self.merge(given, out, seen)
                continue
            name = self.value(key)
            if type(name) is int and isinstance(key, _Scalar) and _is_float(key.text):
                name = _float(key)
            if isinstance(name, (dict, list)):
                raise YAMLError(f"yaml: invalid map key: {_go_syntax(key)}")
            typed = (type(name), name)
            again = typed in seen
            seen.add(typed)
            value = self.value(given)
            if again and len(self.repeated) < MOST_REPEATED:
                if self.aliases and isinstance(name, str):
                    self.spend(len(name))
                self.repeated.append(f"line {line}: key {_go_syntax(key)} already set in map")
            text = _key(name)
            if text is None:
                self.unsupported = name, given
            else:
                out[text] = value

    def merge(self, node: _Node, out: dict[str, Any], seen: set[tuple[type, Any]]) -> None:
        """Merges the value of ``<<``: a mapping, or mappings from the last to the first."""
        for one in reversed(node.children) if isinstance(node, _Sequence) else (node,):
            if isinstance(one, _Alias) and isinstance(one.node, _Mapping):
                self.alias(one, lambda to: self.mapping(cast(_Mapping, to), out, seen))
            elif isinstance(one, _Mapping):
                self.mapping(one, out, seen)
            else:
                raise YAMLError("yaml: map merge requires map or sequence of maps as the value")


def _key(key: Any) -> str | None:
    """A mapping key as JSON text, by the rules of sigs.k8s.io/yaml; None for a key that JSON does not support."""
    if isinstance(key, str):
        return key
    if key is True or key is False:
        return "true" if key else "false"
    if isinstance(key, int) and key <= _MAX_INT64:
        return str(key)
    if isinstance(key, float):
        if math.isfinite(key):
            return _shortest(key)
        return ".nan" if key != key else ".inf" if key > 0 else "-.inf"
    return None


def _unsupported(key: Any, value: _Node) -> YAMLError:
    """The error for a key that JSON does not support; ``value`` is its value."""
    kind, text = ("%!s(<nil>)", "<nil>") if key is None else ("uint64", f"{key:#x}")
    shown = _go_syntax(value)
    return YAMLError(f"unsupported map key of type: {kind}, key: {text}, value: {'<nil>' if shown == _GO_NIL else shown}")


def _shortest(value: float) -> str:
    """``strconv.FormatFloat(value, 'g', -1, 32)``: an exponent below -4 and from 6 on."""
    try:
        single = struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        single = math.inf
    if math.isinf(single):
        return ".inf" if value > 0 else "-.inf"
    texts = (f"{single:.{n}e}" for n in range(9))
    text = next(t for t in texts if struct.unpack("f", struct.pack("f", float(t)))[0] == single)
    mantissa, _, exponent = text.partition("e")
    if -4 <= int(exponent) < 6:
        return f"{Decimal(text):f}"
    return f"{mantissa}e{exponent}"


_GO_NIL = "interface {}(nil)"


def _go_syntax(node: _Node) -> str:
    """Go's ``%#v`` of a decoded YAML value."""
    if isinstance(node, str):
        return go_quote(node)
    if isinstance(node, _Alias):
        return _go_syntax(node.node)
    if isinstance(node, _Sequence):
        return "[]interface {}{" + ", ".join(map(_go_syntax, node.children)) + "}"
    if isinstance(node, _Mapping):
        texts = list(map(_go_syntax, node.children))
        pairs = sorted(f"{k}:{v}" for k, v in zip(texts[::2], texts[1::2], strict=True))
        return "map[interface {}]interface {}{" + ", ".join(pairs) + "}"
    value = _scalar(node)
    if isinstance(value, str):
        return go_quote(value)
    if value is None:
        return _GO_NIL
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) or _is_float(node.text):
        number = _float(node)
        return go_general(number) if math.isfinite(number) else _go_number(number)
    return str(value) if value <= _MAX_INT64 else f"{value:#x}"


def _go_number(value: float) -> str:
    """The text of a number that JSON cannot express."""
    return "NaN" if value != value else "+Inf" if value > 0 else "-Inf"


def _check_numbers(value: Any) -> None:
    """Raises YAMLError for infinities and NaN, which JSON does not have."""
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        raise YAMLError(f"json: unsupported value: {_go_number(value)}")
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list):
        return
    for item in value:
        if isinstance(item, (dict, list, float)):
            _check_numbers(item)


def decode(data: bytes) -> tuple[Any, list[str]]:
    """Decodes the first document. Returns its JSON value and the errors of strict decoding (repeated keys), which are at most one text.
    Raises YAMLError.
    """
    source = utf8.text(data).removeprefix("\ufeff") if b"\\/" in data else None
    try:
        composer = _Composer(parser := CParser(data), source)
    except yaml.YAMLError as e:
        raise YAMLError(_message(e)) from None
    try:
        return _decoded(composer, parser)
    finally:
        composer.let_go()


def _decoded(composer: _Composer, parser: CParser) -> tuple[Any, list[str]]:
    decoder = _Decoder()
    try:
        document = _document(composer, parser)
        value = None if document is None else decoder.value(document)
    except yaml.YAMLError as e:
        raise YAMLError(_message(e)) from None
    except RecursionError:
        raise YAMLError("yaml: exceeded max depth") from None
    if decoder.unsupported is not None:
        raise _unsupported(*decoder.unsupported)
    _check_numbers(value)
    if decoder.repeated:
        return value, ["yaml: unmarshal errors:\n  " + "\n  ".join(decoder.repeated)]
    return value, []


def _is_digit(c: str) -> bool:
    return c.isdigit()


def _compare_keys(a: str, b: str) -> int:
    """yaml.v2's keyList.Less: digits by value, letters after everything else."""
    for i in range(min(len(a), len(b))):
        if a[i] == b[i]:
            continue
        letter_a, letter_b = a[i].isalpha(), b[i].isalpha()
        if letter_a and letter_b:
            return -1 if a[i] < b[i] else 1
        if letter_a or letter_b:
            return -1 if letter_b else 1
        number_a = number_b = 0
        if a[i] == "0" or b[i] == "0":
            j = i - 1
            while j >= 0 and _is_digit(a[j]):
                if a[j] != "0":
                    number_a = number_b = 1
                    break
                j -= 1
        end_a = end_b = i
        while end_a < len(a) and _is_digit(a[end_a]):
            number_a = number_a * 10 + ord(a[end_a]) - 48
            end_a += 1
        while end_b < len(b) and _is_digit(b[end_b]):
            number_b = number_b * 10 + ord(b[end_b]) - 48
            end_b += 1
        if number_a != number_b:
            return -1 if number_a < number_b else 1
        if end_a != end_b:
            return -1 if end_a < end_b else 1
        return -1 if a[i] < b[i] else 1
    return len(a) - len(b)


_natural = cmp_to_key(_compare_keys)
_PLAIN_WORD = re.compile(r"[A-Za-z][-A-Za-z0-9_./]*\Z")
_IMPLICIT = (True, True)
_MAPPING_START = yaml.MappingStartEvent(None, None, True, flow_style=False)
_MAPPING_FLOW = yaml.MappingStartEvent(None, None, True, flow_style=True)
_SEQUENCE_START = yaml.SequenceStartEvent(None, None, True, flow_style=False)
_MERGE_KEY = yaml.ScalarEvent(None, None, _IMPLICIT, "<<", style='"')  # upstream writes it plain, which reads as a merge
_MAPPING_END, _SEQUENCE_END = yaml.MappingEndEvent(), yaml.SequenceEndEvent()


# From 0.2.2 on, libyaml ends a document whose text ends with more than one line break with "..."; yaml.v2 does not.
_DOCUMENT_END = b"...\n"
_DOCUMENT_ENDS = tuple(line_break.encode() + _DOCUMENT_END for line_break in "\n\u2028\u2029")

# libyaml 0.2 pads to the indent after the last line break of a single-quoted scalar; the copy in yaml.v2 does not. A scalar that ends so
# (only with Unicode line breaks: text with a newline is written as a block) gets an end mark, which is removed together with the padding.
_UNICODE_BREAK_END = re.compile(r"[\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd]*(?<! )[\u2028\u2029]+\Z")
_END_MARK = "\uf8fc"
_PADDING = re.compile(rb"(\xe2\x80[\xa8\xa9]) *\xef\xa3\xbc'")


def _string_event(text: str) -> Any:
    if _PLAIN_WORD.match(text) and text not in _RESOLVED:
        style = ""
    elif "\n" in text:
        style = "|"
    elif _is_string(text):
        style = ""
    else:
        style = '"'
    if style == "" and not text.isascii() and _UNICODE_BREAK_END.match(text):
        return yaml.ScalarEvent(None, None, _IMPLICIT, text + _END_MARK, style="'")
    return yaml.ScalarEvent(None, None, _IMPLICIT, text, style=style)


def _is_string(text: str) -> bool:
    """Whether the plain text is parsed back as a string: it is no number, word, timestamp or base-60 number."""
    value = _resolve(text)
    return isinstance(value, str) and not _is_timestamp(text) and not _BASE60.match(text)


def _float_text(x: float) -> str:
    """A float as text. Upstream parses its JSON text as YAML first: one that looks whole there is an integer of up to 64 bits, any other is
    formatted with Go's %g.
    """
    text = go_float(x)
    return text if _parse_int(text) is not _NO_INT else go_general(x)


def _emit(value: Any, emit: Any, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise YAMLError("yaml: exceeded max depth")
    if isinstance(value, str):
        emit(_string_event(value))
    elif isinstance(value, dict):
        emit(_MAPPING_START if value else _MAPPING_FLOW)
        for key in sorted(value, key=_natural):
            emit(_MERGE_KEY if key == "<<" else _string_event(key))
            _emit(value[key], emit, depth + 1)
        emit(_MAPPING_END)
    elif isinstance(value, list):
        emit(_SEQUENCE_START)
        for item in value:
            _emit(item, emit, depth + 1)
        emit(_SEQUENCE_END)
    else:
        if value is None:
            text = "null"
        elif value is True or value is False:
            text = "true" if value else "false"
        else:
            text = _float_text(value) if isinstance(value, float) else str(value)
        emit(yaml.ScalarEvent(None, None, _IMPLICIT, text, style=""))


def encode(value: Any) -> bytes:
    """Encodes a JSON value as kube-apiserver writes YAML, with the final newline. Raises YAMLError when it is nested too deeply."""
    out = io.BytesIO()
    emitter = CEmitter(out, allow_unicode=True, width=80, encoding="utf-8")
    emit = emitter.emit
    emit(yaml.StreamStartEvent(encoding="utf-8"))
    emit(yaml.DocumentStartEvent(explicit=False))
    _emit(value, emit, 0)
    emit(yaml.DocumentEndEvent(explicit=False))
    emit(yaml.StreamEndEvent())
    text = out.getvalue()
    if isinstance(value, (dict, list)):
        text = text.removesuffix(_DOCUMENT_END) if text.endswith(_DOCUMENT_ENDS) else text
    return _PADDING.sub(rb"\1'", text) if b"\xef\xa3\xbc" in text else text
