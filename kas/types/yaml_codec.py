"""YAML as ``sigs.k8s.io/yaml`` reads and writes it: YAML 1.1 through libyaml, with the scalar rules of Go's yaml.v2.

Decoding gives what YAMLToJSON followed by a JSON parser would: ``yes`` is true, timestamps stay text, keys become strings. Input is
bounded: depth, aliases (a document whose aliases multiply its size is refused) and, by the caller, bytes. Encoding gives the exact bytes
kube-apiserver answers for ``application/yaml``: keys in yaml.v2's natural order, its choice of quotes, lines folded at 80 columns.
"""

from __future__ import annotations

import base64
import binascii
import io
import math
import re
import struct
from decimal import Decimal
from functools import cmp_to_key
from typing import Any

import yaml
from yaml._yaml import CEmitter, CParser

from kas._codecs import go_float, go_quote

MAX_DEPTH = 1000
_TOO_DEEP = "exceeded maximum nesting depth"  # what libyaml says from 0.2.6 on, at the same depth; before, it knew no limit
# yaml.v2 compares the nodes made from aliases with those written; this is its bound for small documents, applied to all.
MAX_ALIASED_NODES = 100_000


class YAMLError(ValueError):
    """``str()`` is the text of Go's yaml package, beginning with ``yaml: ``."""


_RESOLVED: dict[str, Any] = {"": None, "~": None, "null": None, "Null": None, "NULL": None}
for _word, _value in [(w, True) for w in ("y", "yes", "true", "on")] + [(w, False) for w in ("n", "no", "false", "off")]:
    _RESOLVED |= {_word: _value, _word.capitalize(): _value, _word.upper(): _value}
_RESOLVED |= {w: float("nan") for w in (".nan", ".NaN", ".NAN")}
_RESOLVED |= {s + w: float("inf") for w in (".inf", ".Inf", ".INF") for s in ("", "+")}
_RESOLVED |= {"-" + w: float("-inf") for w in (".inf", ".Inf", ".INF")}
_HINT_WORD = frozenset("yYnNtTfFoO~")
_HINT_NUMBER = frozenset("+-0123456789")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z")
_DOT_FLOAT = re.compile(r"\.[0-9]+([eE][-+]?[0-9]+)?\Z")
_BASE60 = re.compile(r"[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?\Z")
_TIMESTAMP = re.compile(
    r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}"
    r"(?:[Tt][0-9]{1,2}:[0-9]{1,2}:[0-9]{1,2}(?:\.[0-9]+)?(?:Z|[-+][0-9]{2}:[0-9]{2})"
    r"| [0-9]{1,2}:[0-9]{1,2}:[0-9]{1,2}(?:\.[0-9]+)?)?\Z"
)
_NO_INT = object()


def _parse_int(text: str) -> Any:
    """``strconv.ParseInt(text, 0, 64)`` or ParseUint: prefixes 0x, 0o, 0b and a leading 0 for octal."""
    sign, digits = (-1, text[1:]) if text[:1] == "-" else (1, text[1:] if text[:1] == "+" else text)
    base = 10
    if len(digits) > 1 and digits[0] == "0":
        base = {"x": 16, "o": 8, "b": 2}.get(digits[1].lower(), 8)
        digits = digits[2:] if digits[1].lower() in "xob" else digits[1:]
    if not digits or len(digits) > 70 or not digits.isascii() or not digits.isalnum():
        return _NO_INT
    try:
        value = sign * int(digits, base)
    except ValueError:
        return _NO_INT
    return value if -(1 << 63) <= value < (1 << 64) and not (value >= 1 << 63 and text[0] == "+") else _NO_INT


def _resolve(text: str) -> Any:
    """The value of a plain scalar; the text itself when it is a string. Timestamps resolve to the text, too."""
    if text in _RESOLVED and (text == "" or text[0] in _HINT_WORD or text[0] in ".+-"):
        return _RESOLVED[text]
    first = text[:1]
    if first == ".":
        return _number(float(text)) if _DOT_FLOAT.match(text) else text
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
    """A float as it comes back from its JSON text: Go prints whole ones without a point."""
    return int(x) if x.is_integer() and abs(x) < 1e18 else x


def _message(error: yaml.YAMLError) -> str:
    """libyaml's complaint with the line yaml.v2 would name."""
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
    return f"yaml: line {line}: {problem}" if line else f"yaml: {problem}"


class _Composer:
    """Builds JSON values from parser events. ``repeated`` collects keys that occur twice in a mapping."""

    def __init__(self, data: bytes) -> None:
        self.parser = CParser(data)
        self.anchors: dict[str, Any] = {}
        self.sizes: dict[str, int] = {}
        self.open: set[str] = set()
        self.nodes = 0
        self.aliased = 0
        self.repeated: list[str] = []

    def document(self) -> Any:
        parser = self.parser
        parser.get_event()  # stream start
        event = parser.get_event()
        if isinstance(event, yaml.StreamEndEvent):
            return None
        value = self.node(parser.get_event(), 0)
        parser.get_event()  # document end
        return value

    def node(self, event: Any, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise YAMLError("yaml: exceeded max depth")
        self.nodes += 1
        if isinstance(event, yaml.AliasEvent):
            return self.alias(event)
        anchor, before = event.anchor, self.nodes
        if anchor is not None:
            self.open.add(anchor)
        if isinstance(event, yaml.ScalarEvent):
            value = self.scalar(event)
        elif isinstance(event, yaml.SequenceStartEvent):
            value = []
            while not isinstance(item := self.parser.get_event(), yaml.SequenceEndEvent):
                value.append(self.node(item, depth + 1))
        else:
            value = self.mapping(depth)
        if anchor is not None:
            self.open.discard(anchor)
            self.anchors[anchor] = value
            self.sizes[anchor] = self.nodes - before + 1
        return value

    def alias(self, event: Any) -> Any:
        name = event.anchor
        if name in self.open:
            raise YAMLError(f"yaml: anchor '{name}' value contains itself")
        if name not in self.anchors:
            raise YAMLError(f"yaml: unknown anchor '{name}' referenced")
        self.aliased += self.sizes[name]
        self.nodes += self.sizes[name]
        if self.aliased > MAX_ALIASED_NODES:
            raise YAMLError("yaml: document contains excessive aliasing")
        return self.anchors[name]

    def mapping(self, depth: int) -> dict[str, Any]:
        out: dict[str, Any] = {}
        merged: list[Any] = []
        while not isinstance(event := self.parser.get_event(), yaml.MappingEndEvent):
            line = event.start_mark.line + 1
            merge = isinstance(event, yaml.ScalarEvent) and event.value == "<<" and event.implicit[0]
            given = None if merge else self.node(event, depth + 1)
            value = self.node(self.parser.get_event(), depth + 1)
            if merge:
                merged += value if isinstance(value, list) else [value]
                continue
            key = _key(given, value)
            if key in out:
                self.repeated.append(f"line {line}: key {go_quote(key)} already set in map")
            out[key] = value
        for other in merged:
            if not isinstance(other, dict):
                raise YAMLError("yaml: map merge requires map or sequence of maps as the value")
            for key, value in other.items():
                out.setdefault(key, value)
        return out

    def scalar(self, event: Any) -> Any:
        text, tag = event.value, event.tag
        if tag is None or tag == "!":
            return text if event.style in ("'", '"', "|", ">") or tag == "!" else _resolve(text)
        short = tag.removeprefix("tag:yaml.org,2002:")
        if short == "binary":
            try:
                return base64.b64decode(text.replace("\n", "").replace(" ", ""), validate=True).decode("utf-8", "replace")
            except binascii.Error:
                raise YAMLError("yaml: !!binary value contains invalid base64 data") from None
        value = _resolve(text) if short in ("int", "float", "bool", "null") else text
        wanted = {"int": int, "float": (int, float), "bool": bool, "null": type(None)}.get(short)
        if wanted is not None and not isinstance(value, wanted):  # type: ignore[arg-type]
            raise YAMLError(f"yaml: cannot decode !!str `{text}` as a !!{short}")
        return value


def _key(key: Any, value: Any) -> str:
    """A mapping key as JSON text, by the rules of sigs.k8s.io/yaml; ``value`` is what it stands for."""
    if isinstance(key, str):
        return key
    if key is True or key is False:
        return "true" if key else "false"
    if isinstance(key, int):
        return str(key)
    if isinstance(key, float):
        if math.isfinite(key):
            return _shortest(key)
        return ".nan" if key != key else ".inf" if key > 0 else "-.inf"
    if key is not None:
        raise YAMLError(f"yaml: invalid map key: {_source(key)}")
    raise YAMLError(f"unsupported map key of type: %!s(<nil>), key: <nil>, value: {_source(value) if value is not None else '<nil>'}")


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


def _source(value: Any) -> str:
    """fmt's %#v of a decoded YAML value."""
    if isinstance(value, dict):
        return "map[interface {}]interface {}{" + ", ".join(f"{go_quote(k)}:{_source(value[k])}" for k in sorted(value)) + "}"
    if isinstance(value, list):
        return "[]interface {}{" + ", ".join(map(_source, value)) + "}"
    if isinstance(value, str):
        return go_quote(value)
    if value is None:
        return "interface {}(nil)"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _check_numbers(value: Any) -> None:
    """JSON has no infinity and no NaN."""
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        name = "NaN" if value != value else "+Inf" if value > 0 else "-Inf"
        raise YAMLError(f"json: unsupported value: {name}")
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list):
        return
    for item in value:
        if isinstance(item, (dict, list, float)):
            _check_numbers(item)


def decode(data: bytes) -> tuple[Any, list[str]]:
    """The first document as a JSON value, and what strict decoding objects to (repeated keys): at most one text. Raises YAMLError."""
    composer = _Composer(data)
    try:
        value = composer.document()
    except yaml.YAMLError as e:
        raise YAMLError(_message(e)) from None
    except RecursionError:
        raise YAMLError("yaml: exceeded max depth") from None
    _check_numbers(value)
    if composer.repeated:
        return value, ["yaml: unmarshal errors:\n  " + "\n  ".join(composer.repeated)]
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
_MAPPING_END, _SEQUENCE_END = yaml.MappingEndEvent(), yaml.SequenceEndEvent()


# libyaml 0.2 pads to the indent after the last line break of a single-quoted scalar, the copy inside yaml.v2 does not. Such an ending
# (only Unicode breaks can be one: text with a newline is written as a block) gets an end mark that is cut off with the padding.
_UNICODE_BREAK_END = re.compile(r"[\x20-\x7e\xa0-\u2027\u202a-\ud7ff]*(?<! )[\x85\u2028\u2029]+\Z")
_END_MARK = "\uf8fc"
_PADDING = re.compile(rb"(\xc2\x85|\xe2\x80[\xa8\xa9]) *\xef\xa3\xbc'")


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
    """Whether the plain text reads back as a string: no number, word or timestamp, and no number in base 60."""
    value = _resolve(text)
    return isinstance(value, str) and not _TIMESTAMP.match(text) and not _BASE60.match(text) and text != "<<"


def _go_yaml_float(x: float) -> str:
    """``strconv.FormatFloat(x, 'g', -1, 64)``: exponent form below 1e-4 and from 1e21 on."""
    text = go_float(x)
    mantissa, _, exponent = f"{abs(x)!r}".partition("e")
    if x and (abs(x) < 1e-4 or abs(x) >= 1e21):
        digits = mantissa.replace(".", "").lstrip("0").rstrip("0")
        e = int(exponent) if exponent else _exponent(mantissa)
        head = digits[0] + ("." + digits[1:] if len(digits) > 1 else "")
        return f"{'-' if x < 0 else ''}{head}e{'-' if e < 0 else '+'}{abs(e):02d}"
    return text


def _exponent(mantissa: str) -> int:
    whole, _, fraction = mantissa.partition(".")
    if whole.strip("0"):
        return len(whole) - 1
    return -(len(fraction) - len(fraction.lstrip("0")) + 1)


def _emit(value: Any, emit: Any, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise YAMLError("yaml: exceeded max depth")
    if isinstance(value, str):
        emit(_string_event(value))
    elif isinstance(value, dict):
        emit(_MAPPING_START if value else _MAPPING_FLOW)
        for key in sorted(value, key=_natural):
            emit(_string_event(key))
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
            text = _go_yaml_float(value) if isinstance(value, float) else str(value)
        emit(yaml.ScalarEvent(None, None, _IMPLICIT, text, style=""))


def encode(value: Any) -> bytes:
    """A JSON value as kube-apiserver writes YAML, with the final newline."""
    out = io.BytesIO()
    emitter = CEmitter(out, allow_unicode=True, width=80, encoding="utf-8")
    emit = emitter.emit
    emit(yaml.StreamStartEvent(encoding="utf-8"))
    emit(yaml.DocumentStartEvent(explicit=False))
    _emit(value, emit, 0)
    emit(yaml.DocumentEndEvent(explicit=False))
    emit(yaml.StreamEndEvent())
    text = out.getvalue()
    return _PADDING.sub(rb"\1'", text) if b"\xef\xa3\xbc" in text else text
