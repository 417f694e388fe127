"""What a type of custom resources has anywhere in it: walks over objects are left out for what it has not."""

from __future__ import annotations

from typing import NamedTuple

import orjson

from kas.apiextensions.schema import Schema, walk
from kas.meta.regex import RegexError, compiled
from kas.types.scheme import Field, TypeDesc

# A schema beyond one of these makes small objects long work: properties of one place, whose checks are made with the first value that
# comes there; instructions of one pattern, and of all, which is what they take to compile; bytes of one default.
MOST_PROPERTIES, MOST_OF_PATTERN, MOST_OF_PATTERNS, MOST_OF_DEFAULT = 500, 2_000, 10_000, 4_096


class Traits(NamedTuple):
    """``embedded``: objects with metadata of their own; ``keyed``: lists that are sets or maps."""

    embedded: bool
    keyed: bool


def of(type: TypeDesc) -> Traits:
    """The type's, found out once."""
    found: Traits | None = type.derived.get("traits")
    if found is None:
        found = type.derived["traits"] = _of_type(type)
    return found


def _of_type(type: TypeDesc) -> Traits:
    fields = [*type.fields, *((type.additional,) if type.additional is not None else ())]
    below = [_of_field(f) for f in fields]
    return Traits(any(t.embedded for t in below), any(t.keyed for t in below))


def _of_field(f: Field) -> Traits:
    keyed = f.list_type in ("set", "map")
    if f.element is not None:
        below = _of_field(f.element)
    elif f.message is not None:
        below = _of_type(f.message)
        below = Traits(below.embedded or f.message.embedded, below.keyed)
    else:
        return Traits(False, keyed)
    return Traits(below.embedded, keyed or below.keyed)


def is_costly(schema: Schema) -> bool:
    """Whether small objects of a schema may take long to validate. Compiles its patterns."""
    instructions = 0
    for place in walk(schema):
        if len(place.get("properties") or ()) > MOST_PROPERTIES:
            return True
        if isinstance(place.get("default"), (dict, list)) and len(orjson.dumps(place["default"])) > MOST_OF_DEFAULT:
            return True
        if place.get("pattern"):
            try:
                own = compiled(place["pattern"]).instructions
            except RegexError:
                continue  # nothing is searched
            instructions += own
            if own > MOST_OF_PATTERN or instructions > MOST_OF_PATTERNS:
                return True
    return False
