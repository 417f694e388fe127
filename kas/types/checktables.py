"""Fast validity checks of built-in types, built from descriptors and tables.

A table states for the fields of a message which values are certainly valid. The descriptor supplies the rest: which fields exist, which are
lists and maps, the keys of list items, and the values of closed enums. A field that the table does not name makes its owner uncertain when
it is set.

A table maps JSON names to one of these, which applies to the value, the items of a list, or the values of a map:

    Check                 one of ``kas.checks``
    ANY                   any value
    ENUM                  one of the texts that the descriptor lists
    FALSE, EMPTY          only the equivalent of absent: false; an empty text
    NOTHING               null
    a mapping, a Message  the table of the message
    need(spec)            the field is required
    each(spec, ...)       with bounds of the list or map, or a check of its keys
    whole(check)          applies to the list or map itself
    either(spec, ...)     one of these holds; for a list or map, one holds for all of it
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kas import checks
from kas._codecs import Field, TypeDesc
from kas.checks import Check, Scope
from kas.meta.records import NamedTuple
from kas.types.scheme import BUILTIN, builtin_type

Group = tuple[Sequence[str], int, int] | tuple[Sequence[str], int, int, Sequence[str]]
ANY = checks.anything()
ENUM = object()
FALSE = checks.same(False)
# Fields of top-level objects that are checked elsewhere.
TOP = dict.fromkeys(("apiVersion", "kind", "metadata"), ANY)
EMPTY = checks.option("")
NOTHING = checks.unknown().or_null()
Spec = Any


class Message(NamedTuple):
    """A table with rules that concern several fields of the message; see ``checks.record``. ``opens`` are scopes shared by its fields;
    ``rest`` is the check of fields that the table does not name.
    """

    fields: Mapping[str, Spec]
    first: Sequence[str] = ()
    opens: Sequence[Scope] = ()
    groups: Sequence[Group] = ()
    keys: Sequence[tuple[Scope, Sequence[str]]] = ()
    not_above: Sequence[tuple[str, str]] = ()
    rules: Sequence[tuple[Sequence[str], Callable[[Any], object]]] = ()
    rest: Check | None = None


class _Need(NamedTuple):
    spec: Spec


class _Each(NamedTuple):
    spec: Spec
    low: int
    high: int | None
    key: Check | None
    total: int
    unique: bool
    opens: Sequence[Scope]
    rule: Callable[[Any], object] | None


def need(spec: Spec) -> Spec:
    """The field is required and must not be null."""
    return _Need(spec)


def each(
    spec: Spec, low: int = 0, high: int | None = None, key: Check | None = None, total: int = -1, unique: bool = True,
    opens: Sequence[Scope] = (), rule: Callable[[Any], object] | None = None,
) -> Spec:  # fmt: skip
    """``low`` to ``high`` items or entries, each valid according to ``spec``. ``key`` checks the keys of a map, ``total`` bounds its size
    in bytes.

    Items of a list whose descriptor says that it is a map must have distinct keys unless ``unique`` is False. ``rule`` is called with the
    whole list or map.
    """
    return _Each(spec, low, high, key, total, unique, opens, rule)


class _Whole(NamedTuple):
    check: Check


def whole(check: Check) -> Spec:
    """``check`` applies to the list or map itself."""
    return _Whole(check)


class _Either(NamedTuple):
    specs: Sequence[Spec]


def either(*specs: Spec) -> Spec:
    """One of the tables must hold; they are tried in order."""
    return _Either(specs)


def one_of(*names: str) -> Group:
    """A group: exactly one of these fields is set."""
    return names, 1, 1


def at_most_one(*names: str) -> Group:
    """A group: at most one of these fields is set."""
    return names, 0, 1


def only_with(name: str, *fields: str) -> Group:
    """A group: these fields are set only if ``name`` is."""
    return (name,), 1, 1, fields


TABLES: list[Checked] = []


class Checked:
    """The check of a built-in type, built on first use, since tables are loaded long before that.

    ``passes(obj)`` returns whether ``obj`` is certainly valid; ``built`` is whether the check has been built already.
    """

    def __init__(self, name: str, table: Mapping[str, Spec] | Message) -> None:
        self.name, self._table = name, table
        self.passes: Callable[[Any], bool] = self._first
        self.built = False
        TABLES.append(self)

    def _first(self, obj: Any) -> bool:
        return self.build().passes(obj)

    def build(self) -> Check:
        """Builds the check. Raises KeyError for a field that the type does not have."""
        found = _message(builtin_type(self.name), self._table)
        self.passes, self.built = found.passes, True
        return found


def _message(type: TypeDesc, table: Mapping[str, Spec] | Message, keys: tuple[tuple[Scope, Sequence[str]], ...] = ()) -> Check:
    given = table if isinstance(table, Message) else Message(table)
    known = {f.name: f for f in type.json_fields}
    # Uses the same string objects as decoded objects do, which makes lookups hit by identity.
    made = {known[name].name: _field(known[name], spec.spec if isinstance(spec, _Need) else spec) for name, spec in given.fields.items()}
    for key in keys:
        scope, names = key
        if len(names) == 1 and isinstance(given.fields.get(names[0]), _Need) and known[names[0]].message is None:
            # The key is a single required text: claiming it in the field's own check saves a second lookup.
            made[names[0]] = made[names[0]].claim(scope)
            keys = ()
    out = checks.record(
        made, required=[name for name, spec in given.fields.items() if isinstance(spec, _Need)], first=given.first, groups=given.groups,
        keys=(*given.keys, *keys), not_above=given.not_above, rules=given.rules, rest=given.rest,
    )  # fmt: skip
    return out.opening(*given.opens) if given.opens else out


def _field(f: Field, spec: Spec) -> Check:
    if isinstance(spec, _Either):
        return checks.any_of(*(_field(f, one) for one in spec.specs))
    if isinstance(spec, _Whole):
        return spec.check
    if f.card == "single" or (isinstance(spec, Check) and spec.is_anything):
        return _value(f, spec)
    if not isinstance(spec, _Each):
        spec = each(spec)
    own: Scope | None = None
    keys: tuple[tuple[Scope, Sequence[str]], ...] = ()
    if f.card == "list" and spec.unique and f.list_type == "map" and isinstance(spec.spec, (Mapping, Message)):
        own = Scope(f.name)
        keys = ((own, f.list_map_keys),)
    value = _value(f, spec.spec, keys)
    if f.card == "map":
        out = checks.mapping(value, spec.key, low=spec.low, high=spec.high, total=spec.total)
    else:
        out = checks.listing(value, low=spec.low, high=spec.high)
    if spec.rule is not None:
        out = out.where(spec.rule)
    if own is not None:
        out = out.distinct(own)
    return out.opening(*spec.opens) if spec.opens else out


def _value(f: Field, spec: Spec, keys: Any = ()) -> Check:
    if isinstance(spec, Check):
        return spec
    if isinstance(spec, _Either):
        return checks.any_of(*(_value(f, one, keys) for one in spec.specs))
    if spec is ENUM:
        closed, values = BUILTIN.enums[f.enum]
        if not closed:
            raise KeyError(f"{f.name} is open to other values")
        return checks.option(*values)
    if f.message is None:
        raise KeyError(f"{f.name} is no message")
    return _message(f.message, spec, keys)
