"""What a type of custom resources has anywhere in it: walks over objects are left out for what it has not."""

from __future__ import annotations

from typing import NamedTuple

from kas.types.scheme import Field, TypeDesc


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
