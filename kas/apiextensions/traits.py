"""Features that occur anywhere in a type of custom resources: walks over objects are skipped for features that it lacks."""

from __future__ import annotations

import orjson

from kas.apiextensions.schema import EMBEDDED, LIST_TYPE, Schema, walk
from kas.meta.records import NamedTuple
from kas.meta.regex import RegexError, compiled
from kas.types.scheme import TypeDesc

# Above one of these limits even small objects are expensive: properties of one schema, whose checks are made when the first value arrives;
# instructions of one pattern, and of all, which determine the time to compile; bytes of one default.
MOST_PROPERTIES, MOST_OF_PATTERN, MOST_OF_PATTERNS, MOST_OF_DEFAULT = 500, 2_000, 10_000, 4_096


class Traits(NamedTuple):
    """``embedded``: objects with their own metadata; ``keyed``: lists that are sets or maps."""

    embedded: bool
    keyed: bool


def of(type: TypeDesc) -> Traits:
    """Return the traits of the type, computed once."""
    found: Traits | None = type.derived.get("traits")
    if found is None:
        found = type.derived["traits"] = Traits(*_of_schema(type.schema, {}))
    return found


def _of_schema(schema: Schema, made: dict[int, tuple[bool, bool]]) -> tuple[bool, bool]:
    """Return the traits of values of a schema; ``made`` caches them by the identity of schemas, many of which are shared."""
    found = made.get(id(schema))
    if found is None:
        embedded = keyed = False
        extra, items = schema.get("additionalProperties"), schema.get("items")
        for below in (*(schema.get("properties") or {}).values(), extra, items):
            if isinstance(below, dict):
                inner = _of_schema(below, made)
                embedded = embedded or inner[0] or below.get(EMBEDDED) is True
                keyed = keyed or inner[1] or below.get(LIST_TYPE) in ("set", "map")
        found = made[id(schema)] = embedded, keyed
    return found


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
                continue  # invalid: never searched
            instructions += own
            if own > MOST_OF_PATTERN or instructions > MOST_OF_PATTERNS:
                return True
    return False
