"""Expression types of custom resources' structural schemas (apiserver ``pkg/cel/common/schemas.go``)."""

from __future__ import annotations

import re
from typing import Any

from kas.cel.declared import Declared
from kas.cel.types import BOOL, BYTES, DOUBLE, DURATION, DYN, INT, STRING, TIMESTAMP, Type, list_of, map_of, struct
from kas.cel.words import LITERALS, RESERVED

Schema = dict[str, Any]
Structs = dict[str, dict[str, Type]]

Shape = tuple[Declared, int]
_Made = dict[tuple[int, bool], tuple[Schema, "Shape | None"]]  # keyed by identity; holding the schema keeps its id valid

MAX_REQUEST_BYTES = 3 << 20
# The minimum size of a value in JSON, and the maximum of a time.
_MIN_TEXT, _MIN_BOOL, _MIN_NUMBER, _MIN_CONTAINER = 2, 4, 1, 2
_TIMES = {"duration": (DURATION, 3, 32), "date": (TIMESTAMP, 12, 12), "date-time": (TIMESTAMP, 21, 32)}
_MAX_CHARACTER = 4  # bytes
_TEXT_SCHEMA: Schema = {"type": "string"}
_ESCAPES = {".": "__dot__", "-": "__dash__", "/": "__slash__"}
_ESCAPED, _UNESCAPES = re.compile(r"__[^_]+__"), {"underscores": "__", **{word[2:-2]: sign for sign, word in _ESCAPES.items()}}


def escape(name: str) -> str:
    """Return a property's name in expressions; "" if it has none."""
    if not name or "0" <= name[0] <= "9":
        return ""
    if name in RESERVED or name in LITERALS:
        return f"__{name}__"
    out, i = [], 0
    while i < len(name):
        c = name[i]
        if name.startswith("__", i):
            out.append("__underscores__")
            i += 2
            continue
        if c in _ESCAPES:
            out.append(_ESCAPES[c])
        elif c == "_" or (c.isascii() and c.isalnum()):
            out.append(c)
        else:
            return ""
        i += 1
    return "".join(out)


def unescape(name: str) -> str | None:
    """Invert ``escape``; names that need no escape are unchanged. None for names that it never returns (apiserver ``cel.Unescape``)."""
    if "__" not in name:
        return name
    bad = False

    def unescaped(found: re.Match[str]) -> str:
        nonlocal bad
        word = found[0][2:-2]
        if word in _UNESCAPES:
            return _UNESCAPES[word]
        bad = bad or not (word in RESERVED or word in LITERALS) or found[0] != name
        return word

    out = _ESCAPED.sub(unescaped, name)
    return None if bad else out


def as_seen_from(place: Type, text: str) -> str:
    """Return the errors of a rule with the type names that upstream uses at its place.

    Here types are declared once and named from the root; upstream names them from the rule's schema. (It also appends a number that
    varies.)
    """
    steps = {"list": ".@idx", "map": ".@elem"}
    above = ""
    while place.kind in steps and place.params:
        above, place = above + steps[place.kind], place.params[-1]
    if place.kind != "struct" or not place.name.endswith(above):
        return text
    name = place.name[: len(place.name) - len(above)]
    return re.sub(rf"(?<![\w.]){re.escape(name)}(?!\w)", "selfType", text)


class Shapes:
    """The types that expressions see of a schema and all schemas below it.

    Each schema is declared once, however many rules use it; all share ``structs``. The root is declared on the first request, which also
    declares the schemas below it.
    """

    def __init__(self, root: Schema, is_root: bool) -> None:
        self.structs: Structs = {}
        self._root: Schema | None = root
        self._is_root = is_root
        self._made: _Made = {}

    def of(self, schema: Schema, is_root: bool) -> Shape | None:
        """Return the shape and its minimum size in JSON; None if expressions cannot see it."""
        if self._root is not None:
            declare(self._root, "selfType", self.structs, self._is_root, self._made)
            self._root = None
        # Schemas that the root does not declare, such as those below a hidden one, get a name of their own.
        return declare(schema, f"selfType{len(self._made)}", self.structs, is_root, self._made)


def declare(schema: Schema | None, name: str, structs: Structs, is_root: bool = False, made: _Made | None = None) -> Shape | None:
    """Return the shape that expressions see, and its minimum size in JSON; None if they cannot see it.

    ``structs`` collects the fields of objects by the names of their types, which begin with ``name``. ``made`` caches the shapes of schemas
    already declared. Without it, no two places share a type even if they share a schema: expressions cannot compare values of different
    types.
    """
    if schema is None:
        return None
    if made is None:
        return _declare(schema, name, structs, is_root, None)
    known = made.get((id(schema), is_root))
    if known is None:
        known = made[id(schema), is_root] = schema, _declare(schema, name, structs, is_root, made)
    return known[1]


def _declare(schema: Schema, name: str, structs: Structs, is_root: bool, made: _Made | None) -> Shape | None:
    if schema.get("x-kubernetes-int-or-string"):
        return Declared(DYN, _text_length(schema)), 1
    kind = schema.get("type") or ""
    if kind == "array":
        return _array(schema, name, structs, made)
    if kind == "object":
        return _object(schema, name, structs, is_root, made)
    if kind == "string":
        return _text(schema)
    plain = {"boolean": (BOOL, _MIN_BOOL), "number": (DOUBLE, _MIN_NUMBER), "integer": (INT, _MIN_NUMBER)}.get(kind)
    return None if plain is None else (Declared(plain[0]), plain[1])


def _below(schema: Schema | None, name: str, structs: Structs, made: _Made | None) -> Shape | None:
    return declare(schema, name, structs, bool((schema or {}).get("x-kubernetes-embedded-resource")), made)


def _array(schema: Schema, name: str, structs: Structs, made: _Made | None) -> Shape | None:
    items = _below(schema.get("items"), f"{name}.@idx", structs, made)
    if items is None:
        return None
    most = schema.get("maxItems")
    most = (MAX_REQUEST_BYTES - 2) // (items[1] + 1) if most is None else max(most, 0)
    return Declared(list_of(items[0].type), most, item=items[0]), _MIN_CONTAINER


def _object(schema: Schema, name: str, structs: Structs, is_root: bool, made: _Made | None) -> Shape | None:
    additional = schema.get("additionalProperties")
    if isinstance(additional, dict):
        values = _below(additional, f"{name}.@elem", structs, made)
        if values is None:
            return None
        most = schema.get("maxProperties")
        most = (MAX_REQUEST_BYTES - 2) // (values[1] + 6) if most is None else max(most, 0)
        return Declared(map_of(STRING, values[0].type), most, item=values[0], key=Declared(STRING)), _MIN_CONTAINER
    properties = dict(schema.get("properties") or {})
    if is_root and not _has_meta(properties):
        meta = {"type": "object", "properties": {"name": _TEXT_SCHEMA, "generateName": _TEXT_SCHEMA}}
        properties |= {"kind": _TEXT_SCHEMA, "apiVersion": _TEXT_SCHEMA, "metadata": meta}
    required, least = frozenset(schema.get("required") or ()), _MIN_CONTAINER
    fields: dict[str, Declared] = {}
    for key, value in properties.items():
        escaped = escape(key)
        found = _below(value, f"{name}.{escaped or key}", structs, made)
        if found is None:
            continue
        if escaped:
            fields[escaped] = found[0]
            if key in RESERVED:  # after a dot a keyword is a name, too
                fields[key] = found[0]
        if key in required and value.get("default") is None:
            least += len(key.encode()) + found[1] + 4
    structs[name] = {key: declared.type for key, declared in fields.items()}
    return Declared(struct(name), 0, fields), least


def _has_meta(properties: dict[str, Schema]) -> bool:
    """Whether the properties include all parts of type and metadata that expressions always see; then their further parts count, too."""
    meta: Schema = properties.get("metadata") or {}
    of_meta = meta.get("properties") or {}
    texts = (properties.get("kind"), properties.get("apiVersion"), of_meta.get("name"), of_meta.get("generateName"))
    return meta.get("type") == "object" and all((text or {}).get("type") == "string" for text in texts)


def _text(schema: Schema) -> Shape:
    form = schema.get("format") or ""
    if form in _TIMES:
        t, least, longest = _TIMES[form]
        return Declared(t, longest), least
    most = schema.get("maxLength")
    if form == "byte":
        return Declared(BYTES, MAX_REQUEST_BYTES - 2 if most is None else max(most, 0)), _MIN_TEXT
    return Declared(STRING, _text_length(schema)), _MIN_TEXT


def _text_length(schema: Schema) -> int:
    """Return the maximum length of a text in bytes."""
    most = schema.get("maxLength")
    if most is not None:
        return max(most, 0) * _MAX_CHARACTER
    enum = schema.get("enum")
    if enum and not schema.get("x-kubernetes-int-or-string"):
        return max(len(v.encode()) if isinstance(v, str) else 0 for v in enum)
    return MAX_REQUEST_BYTES - 2


def most_often(least: int) -> int:
    """Return how many values of that minimum size fit into a request."""
    return MAX_REQUEST_BYTES // (least + 1)
