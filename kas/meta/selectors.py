"""Label and field selectors: apimachinery's ``pkg/labels``, ``pkg/fields`` and ``metav1.LabelSelector``.

A selector is parsed once, is immutable and hashable by its canonical text, and matches plain dicts of strings. The only
error is SelectorError, with upstream's words. What fields a kind can be selected by is the business of ``fieldlabels``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kas.meta import field, names
from kas.meta.field import FieldError
from kas.meta.records import NamedTuple
from kas.observe.caches import remembered


class SelectorError(ValueError):
    """An invalid selector; ``str()`` is upstream's message."""


# Parsed selectors are cached: clients reconnect their watches, and authorization parses a selector before the handler does. The cache is
# bounded in the number of entries and their length.
REMEMBERED_LENGTH = 256
# The most memory of the requirements of a selector of that length, with one character and a comma each.
SELECTOR_BYTES = 128 * 400


class Requirement(NamedTuple):
    """A condition on a label. ``op`` is one of ``= == != in notin exists ! gt lt``; ``values`` as written."""

    key: str
    op: str
    values: tuple[str, ...]

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether ``labels`` satisfy the requirement; ``!=`` and ``notin`` also hold when the key is absent."""
        value = labels.get(self.key)
        op = self.op
        if op in ("=", "==", "in"):
            return value is not None and value in self.values
        if op in ("!=", "notin"):
            return value is None or value not in self.values
        if op == "exists":
            return value is not None
        if op == "!":
            return value is None
        have = _int64(value)
        want = _int64(self.values[0]) if len(self.values) == 1 else None
        if have is None or want is None:
            return False
        return have > want if op == "gt" else have < want

    def __str__(self) -> str:
        if self.op == "exists":
            return self.key
        if self.op == "!":
            return f"!{self.key}"
        text = ",".join(sorted(self.values))
        if self.op in ("in", "notin"):
            return f"{self.key} {self.op} ({text})"
        return f"{self.key}{_SIGNS.get(self.op, self.op)}{text}"


_SIGNS = {"gt": ">", "lt": "<"}
_INT64 = re.compile(r"[+-]?[0-9]{1,63}\Z")


def _int64(text: str | None) -> int | None:
    """Go's ``strconv.ParseInt(text, 10, 64)``; None in place of an error."""
    if text is None or not _INT64.match(text):
        return None
    value = int(text)
    return value if -(2**63) <= value < 2**63 else None


class _Terms:
    """The conjunction of all requirements on one key."""

    __slots__ = ("above", "absent", "among", "below", "but", "needed", "ordered")

    def __init__(self) -> None:
        self.needed = self.absent = self.ordered = False
        self.among: set[str] | None = None  # the allowed values, None for any
        self.but: set[str] | None = None
        self.above, self.below = -(2**63) - 1, 2**63  # exclusive bounds, if ``ordered``

    def add(self, r: Requirement) -> None:
        """Adds a requirement."""
        if r.op in ("!=", "notin"):
            if self.but is None:
                self.but = set()
            self.but.update(r.values)
            return
        if r.op == "!":
            self.absent = True
            return
        self.needed = True
        if r.op in ("=", "==", "in"):
            if self.among is None:
                self.among = set(r.values)
            else:
                self.among.intersection_update(r.values)
        elif r.op in ("gt", "lt"):
            want = _int64(r.values[0]) if len(r.values) == 1 else None
            self.ordered = True
            if want is None:
                self.among = set()
            elif r.op == "gt":
                self.above = max(self.above, want)
            else:
                self.below = min(self.below, want)

    def hold(self, value: str) -> bool:
        """Whether the label may be present with this value."""
        if self.absent or (self.but is not None and value in self.but) or (self.among is not None and value not in self.among):
            return False
        if not self.ordered:
            return True
        have = _int64(value)
        return have is not None and self.above < have < self.below


_NOWHERE = _Terms()  # the key must be absent; shared, since there are no other terms
_NOWHERE.absent = True
MANY_TERMS = 8  # selectors with more requirements, or more values in one, are indexed


class _Looked:
    """An index of many requirements by key, so that the cost of matching depends on the number of labels."""

    __slots__ = ("_needed", "_terms")

    def __init__(self, requirements: Sequence[Requirement]) -> None:
        self._terms: dict[str, _Terms] = {}
        for r in requirements:
            terms = self._terms.get(r.key)
            if r.op == "!" and terms is None:
                self._terms[r.key] = _NOWHERE
                continue
            if terms is None or terms is _NOWHERE:
                absent, terms = terms is _NOWHERE, _Terms()
                terms.absent, self._terms[r.key] = absent, terms
            terms.add(r)
        self._needed = [key for key, terms in self._terms.items() if terms.needed]

    def match(self, labels: Mapping[str, str]) -> bool:
        """Whether ``labels`` satisfy all requirements."""
        if len(self._needed) > len(labels) or not all(key in labels for key in self._needed):
            return False
        get = self._terms.get
        return all((terms := get(key)) is None or terms.hold(value) for key, value in labels.items())


class LabelSelector:
    """A conjunction of requirements, sorted by key. Without requirements it selects everything; ``NOTHING`` selects nothing."""

    __slots__ = ("_looked", "_text", "empty", "nothing", "requirements")

    def __init__(self, requirements: Sequence[Requirement] = (), nothing: bool = False) -> None:
        self.requirements = tuple(sorted(requirements, key=lambda r: r.key))
        self.nothing = nothing
        self.empty = not self.requirements and not nothing  # whether it selects everything
        self._text: str | None = None
        self._looked: _Looked | bool | None = None  # built on first use; False for few requirements

    def matches(self, labels: Mapping[str, str] | None) -> bool:
        """Whether ``labels`` satisfy every requirement; None counts as no labels."""
        if self.nothing:
            return False
        labels = labels or {}
        looked = self._looked
        if looked is None:
            looked = self.look()
        return looked.match(labels) if isinstance(looked, _Looked) else all(r.matches(labels) for r in self.requirements)

    def look(self) -> _Looked | bool:
        """Builds the index of many requirements. Call it early where the first match must not be delayed."""
        many = len(self.requirements) > MANY_TERMS or any(len(r.values) > MANY_TERMS for r in self.requirements)
        looked = self._looked = _Looked(self.requirements) if many else False
        return looked

    def requires_exact_match(self, key: str) -> str | None:
        """The value that ``key`` must have according to its first exact requirement, None if there is none or it has several values."""
        for r in self.requirements:
            if r.key == key and r.op in ("=", "==", "in"):
                return r.values[0] if len(r.values) == 1 else None
        return None

    def __str__(self) -> str:
        if self._text is None:
            self._text = ",".join(map(str, self.requirements))
        return self._text

    def __repr__(self) -> str:
        return "LabelSelector(nothing)" if self.nothing else f"LabelSelector({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LabelSelector) and (self.requirements, self.nothing) == (other.requirements, other.nothing)

    def __hash__(self) -> int:
        return hash((self.requirements, self.nothing))


EVERYTHING = LabelSelector()
NOTHING = LabelSelector(nothing=True)


def new_requirement(key: str, op: str, values: Sequence[str], path: str = "") -> Requirement:
    """A validated requirement. Raises SelectorError with all errors, like ``labels.NewRequirement``."""
    errors: list[FieldError] = []
    _check_key(errors, field.child(path, "key"), key)
    values_path = field.child(path, "values")
    count = len(values)
    # An absent list is nil in Go and prints as null.
    listed = list(values) or None
    if op in ("in", "notin"):
        if not count:
            errors.append(field.invalid(values_path, listed, "for 'in', 'notin' operators, values set can't be empty"))
    elif op in ("=", "==", "!="):
        if count != 1:
            errors.append(field.invalid(values_path, listed, "exact-match compatibility requires one single value"))
    elif op in ("exists", "!"):
        if count:
            errors.append(field.invalid(values_path, listed, "values set must be empty for exists and does not exist"))
    elif op in ("gt", "lt"):
        if count != 1:
            errors.append(field.invalid(values_path, listed, "for 'Gt', 'Lt' operators, exactly one value is required"))
        for i, value in enumerate(values):
            if _int64(value) is None:
                errors.append(field.invalid(field.index(values_path, i), value, "for 'Gt', 'Lt' operators, the value must be an integer"))
    else:
        raise ValueError(f"{op!r} is no selector operator")
    for i, value in enumerate(values):
        complaints = names.is_label_value(value)
        if complaints:
            errors.append(field.invalid(field.key(field.index(values_path, i), key), value, "; ".join(complaints)))
    if errors:
        texts = list(dict.fromkeys(map(str, errors)))
        raise SelectorError(texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]")
    return Requirement(key, op, tuple(values))


def _check_key(errors: list[FieldError], path: str, key: str) -> None:
    complaints = names.is_qualified_name(key)
    if complaints:
        errors.append(field.invalid(path, key, "; ".join(complaints)))


# --- the language of label selectors -------------------------------------------------------------------------------

_SPECIAL = "=!(),><"
_SPACE = " \t\r\n"
_SYMBOLS = frozenset(("=", "==", "!=", "!", "(", ")", ",", ">", "<"))
_OPERATORS = {"in": "in", "notin": "notin", "=": "=", "==": "==", "!=": "!=", ">": "gt", "<": "lt"}
_BINARY = "in, notin, =, ==, !=, gt, lt"

# Token kinds: a symbol is its own kind; IDENTIFIER covers words, including keywords where a value is expected.
IDENTIFIER, END = "identifier", "end"


def _scan(text: str) -> list[tuple[str, str]]:
    """Tokens as (kind, literal), the last of them END. As upstream, NUL ends a token, and a NUL on its own ends the text."""
    tokens: list[tuple[str, str]] = []
    i, n = 0, len(text)
    while True:
        while i < n and text[i] in _SPACE:
            i += 1
        if i >= n or text[i] == "\0":
            tokens.append((END, ""))
            return tokens
        start = i
        if text[i] in _SPECIAL:
            # The longest symbol wins; there is always one, since each single character is a symbol.
            i += 2 if text[i : i + 2] in _SYMBOLS else 1
            tokens.append((text[start:i], text[start:i]))
            if text[i : i + 1] == "\0":
                i += 1
            continue
        while i < n and text[i] != "\0" and text[i] not in _SPECIAL and text[i] not in _SPACE:
            i += 1
        tokens.append((IDENTIFIER, text[start:i]))
        if text[i : i + 1] == "\0":
            i += 1


class _Parser:
    """Upstream's recursive-descent parser. Where a value is expected, the keywords ``in`` and ``notin`` are plain words."""

    def __init__(self, text: str) -> None:
        self.tokens = _scan(text)
        self.position = 0

    def look(self) -> tuple[str, str]:
        return self.tokens[self.position]

    def take(self) -> tuple[str, str]:
        token = self.tokens[self.position]
        # END is never consumed: reading past it returns END again.
        if token[0] != END:
            self.position += 1
        return token

    def parse(self) -> list[Requirement]:
        out: list[Requirement] = []
        while True:
            kind, literal = self.look()
            if kind == END:
                return out
            if kind not in (IDENTIFIER, "!"):
                raise SelectorError(f"found '{literal}', expected: !, identifier, or 'end of string'")
            try:
                out.append(self.requirement())
            except SelectorError as e:
                raise SelectorError(f"unable to parse requirement: {e}") from None
            kind, literal = self.take()
            if kind == END:
                return out
            if kind != ",":
                raise SelectorError(f"found '{literal}', expected: ',' or 'end of string'")
            kind, literal = self.look()
            if kind not in (IDENTIFIER, "!"):
                raise SelectorError(f"found '{literal}', expected: identifier after ','")

    def requirement(self) -> Requirement:
        kind, key = self.take()
        negated = kind == "!"
        if negated:
            kind, key = self.take()
        if kind != IDENTIFIER:
            raise SelectorError(f"found '{key}', expected: identifier")
        errors: list[FieldError] = []
        # A nil field.Path prints as <nil>.
        _check_key(errors, "<nil>", key)
        if errors:
            raise SelectorError(str(errors[0]))
        if negated:
            return new_requirement(key, "!", ())
        if self.look()[0] in (END, ","):
            return new_requirement(key, "exists", ())
        _, literal = self.take()
        op = _OPERATORS.get(literal)
        if op is None:
            raise SelectorError(f"found '{literal}', expected: {_BINARY}")
        values = self.values() if op in ("in", "notin") else {self.value()}
        return new_requirement(key, op, sorted(values))

    def value(self) -> str:
        if self.look()[0] in (END, ","):
            return ""
        kind, literal = self.take()
        if kind != IDENTIFIER:
            raise SelectorError(f"found '{literal}', expected: identifier")
        return literal

    def values(self) -> set[str]:
        kind, literal = self.take()
        if kind != "(":
            raise SelectorError(f"found '{literal}' expected: '('")
        kind, literal = self.look()
        if kind == ")":
            self.take()
            return {""}
        if kind not in (IDENTIFIER, ","):
            raise SelectorError(f"found '{literal}', expected: ',', ')' or identifier")
        values = self.list()
        kind, _ = self.take()
        if kind != ")":
            raise SelectorError(f"found '{literal}', expected: ')'")
        return values

    def list(self) -> set[str]:
        out: set[str] = set()
        while True:
            kind, literal = self.take()
            if kind == IDENTIFIER:
                out.add(literal)
                kind, literal = self.look()
                if kind == ")":
                    return out
                if kind != ",":
                    raise SelectorError(f"found '{literal}', expected: ',' or ')'")
            elif kind == ",":
                if not out:
                    out.add("")
                kind, _ = self.look()
                if kind == ")":
                    out.add("")
                    return out
                if kind == ",":
                    self.take()
                    out.add("")
            else:
                raise SelectorError(f"found '{literal}', expected: ',', or identifier")


def parse_label_selector(text: str) -> LabelSelector:
    """``labels.Parse``, cached. Raises SelectorError."""
    if not text:
        return EVERYTHING
    return _remembered_label_selector(text)


_PLAIN_WORD = r"[A-Za-z0-9][-A-Za-z0-9_.]{0,62}+(?<![-_.])"
# A term as nearly all are: a key without a prefix, alone or compared with one value.
_PLAIN_TERM = re.compile(rf"({_PLAIN_WORD})(?:(!=|==?)({_PLAIN_WORD})?)?")


def _plain_requirements(text: str) -> list[Requirement] | None:
    """The requirements of a text that consists of common terms only, None for any other. This takes 1 µs per term where the parser takes 4,
    and clients may send thousands of terms.
    """
    out = []
    for part in text.split(","):
        term = _PLAIN_TERM.fullmatch(part)
        if term is None:
            return None
        key, op, value = term.groups()
        out.append(Requirement(key, op, (value or "",)) if op else Requirement(key, "exists", ()))
    return out


@remembered("label_selectors", "label selectors as they were parsed", 256, REMEMBERED_LENGTH, SELECTOR_BYTES)
def _remembered_label_selector(text: str) -> LabelSelector:
    plain = _plain_requirements(text)
    return LabelSelector(_Parser(text).parse() if plain is None else plain)


_EXPRESSION_OPERATORS = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "!"}


def from_label_selector(selector: Mapping[str, Any] | None) -> LabelSelector:
    """``metav1.LabelSelectorAsSelector``: an absent selector selects nothing, an empty one everything. Raises SelectorError."""
    if selector is None:
        return NOTHING
    requirements = [new_requirement(k, "=", (v,)) for k, v in sorted((selector.get("matchLabels") or {}).items())]
    for expression in selector.get("matchExpressions") or ():
        operator = expression.get("operator") or ""
        op = _EXPRESSION_OPERATORS.get(operator)
        if op is None:
            raise SelectorError(f"{field.go_quote(operator)} is not a valid label selector operator")
        requirements.append(new_requirement(expression.get("key") or "", op, expression.get("values") or ()))
    return LabelSelector(requirements) if requirements else EVERYTHING


def format_label_selector(selector: Mapping[str, Any] | None) -> str:
    """The text of a LabelSelector in a table cell: ``metav1.FormatLabelSelector``."""
    try:
        return str(from_label_selector(selector)) or "<none>"
    except SelectorError:
        return "<error>"


# --- field selectors -----------------------------------------------------------------------------------------------


class FieldTerm(NamedTuple):
    """A condition on a field; ``op`` is ``=`` or ``!=``. An absent field counts as the empty string."""

    key: str
    op: str
    value: str

    def __str__(self) -> str:
        return f"{self.key}{self.op}{escape_value(self.value)}"


class FieldSelector:
    """A conjunction of terms, in the canonical order of their text."""

    __slots__ = ("requirements",)

    def __init__(self, requirements: Sequence[FieldTerm] = ()) -> None:
        self.requirements = tuple(requirements)

    @property
    def empty(self) -> bool:
        """Whether it selects everything."""
        return not self.requirements

    def matches(self, fields: Mapping[str, str]) -> bool:
        """Whether ``fields`` satisfy every term; an absent field is the empty string."""
        return all((fields.get(t.key, "") == t.value) == (t.op == "=") for t in self.requirements)

    def requires_exact_match(self, key: str) -> str | None:
        """The value that ``key`` must have, None when no ``=`` term names it."""
        for t in self.requirements:
            if t.key == key and t.op == "=":
                return t.value
        return None

    def transform(self, convert: Callable[[str, str], tuple[str, str]]) -> FieldSelector:
        """The selector with each term's (field, value) mapped; a term for which both are returned empty is dropped."""
        terms = []
        for t in self.requirements:
            key, value = convert(t.key, t.value)
            if key or value:
                terms.append(FieldTerm(key, t.op, value))
        return FieldSelector(terms)

    def __str__(self) -> str:
        return ",".join(map(str, self.requirements))

    def __repr__(self) -> str:
        return f"FieldSelector({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FieldSelector) and self.requirements == other.requirements

    def __hash__(self) -> int:
        return hash(self.requirements)


ALL_FIELDS = FieldSelector()

_ESCAPE = re.compile(r"[\\,=]")
# A backslash escapes the character after it, whatever it is.
_TERM = re.compile(r"(?:\\.|[^\\,]|\\\Z)*", re.DOTALL)
_TERM_OPERATOR = re.compile(r"!=|==|=")


def escape_value(value: str) -> str:
    """The value of a field selector with its comma, equals sign and backslash escaped."""
    return _ESCAPE.sub(lambda m: "\\" + m.group(), value)


def unescape_value(text: str) -> str:
    """``fields.UnescapeValue``. Raises SelectorError."""
    if not _ESCAPE.search(text):
        return text
    out = []
    chars = iter(text)
    for c in chars:
        if c == "\\":
            c = next(chars, "")
            if c not in ("\\", ",", "="):
                raise SelectorError(f"invalid field selector: invalid escape sequence: \\{c}")
        elif c in ",=":
            raise SelectorError(f"invalid field selector: unescaped character in value: {ord(c)}")
        out.append(c)
    return "".join(out)


def _split_terms(text: str) -> list[str]:
    if "\\" not in text:
        return text.split(",")
    terms, position = [], 0
    while True:
        match = _TERM.match(text, position)
        assert match is not None  # the pattern matches the empty string
        terms.append(match.group())
        position = match.end() + 1
        if position > len(text):
            return terms


def parse_field_selector(text: str) -> FieldSelector:
    """``fields.ParseSelector``. Raises SelectorError."""
    if not text:
        return ALL_FIELDS
    return _remembered_field_selector(text)


def _parse_terms(text: str) -> FieldSelector:
    terms = []
    for part in sorted(_split_terms(text)):
        if not part:
            continue
        match = _TERM_OPERATOR.search(part)
        if match is None:
            raise SelectorError(f"invalid selector: '{text}'; can't understand '{part}'")
        op = "!=" if match.group() == "!=" else "="
        key, value = part[: match.start()], unescape_value(part[match.end() :])
        if key or value:  # an empty term is dropped, as in ``transform``
            terms.append(FieldTerm(key, op, value))
    return FieldSelector(terms)


_remembered_field_selector = remembered(
    "field_selectors", "field selectors as they were parsed", 256, REMEMBERED_LENGTH, SELECTOR_BYTES
)(_parse_terms)
