"""Bodies that say a field twice: what Go's json package makes of them (sigs.k8s.io/json, as encoding/json).

It reads each occurrence into what the one before left: structs and maps are merged, the items of a list are read into the items that
were there, null leaves a text or a number as it was, and what does not fit its type is refused wherever it stands.
"""

from __future__ import annotations

from typing import Any

from kas.types.scheme import DecodeError, Field, Pairs, TypeDesc, decode, read_pairs

# Where a value stands: its key or index, below where its holder does. The path of each value at once would cost its depth.
Place = tuple["Place", str | int] | None

_SCALARS = frozenset({"string", "bool", "int32", "int64", "uint32", "uint64", "double", "float"})
# Types that read their own JSON, in which a field that is said again replaces what was there.
_OWN_JSON = frozenset({"raw-json", "raw-json;empty=null", "schema|list-of-schema", "schema|bool", "schema|list-of-string"})


def read_repeated(type: TypeDesc, raw: bytes, otherwise: dict[str, Any]) -> dict[str, Any]:
    """The JSON text of an object of ``type``, every occurrence of its fields read. The text must have been parsed before; ``otherwise`` is
    what that gave, for a text too deep to be read here. Raises DecodeError for an occurrence that does not fit its type."""
    try:
        value = read_pairs(raw)
        return _Reading(type).struct(type, value, {}, None, False) if isinstance(value, Pairs) else otherwise
    except RecursionError:
        return otherwise


class _Reading:
    """One text, of an object of type ``root``."""

    def __init__(self, root: TypeDesc) -> None:
        self.root = root

    def struct(self, type: TypeDesc, pairs: Pairs, into: dict[str, Any], place: Place, checked: bool) -> dict[str, Any]:
        """``into`` with the members of ``pairs``. ``checked``: the types were looked at already."""
        last = {key: i for i, (key, _) in enumerate(pairs)}
        for i, (key, item) in enumerate(pairs):
            field = type.by_name.get(key)
            if field is None:
                into[key] = _plain(item)
                continue
            here, over = (place, key), i < last[key]
            if over and not checked and not _fits(field, item):
                self._check(type, {key: item}, place)
            if item is None and key in into and field.card == "single" and _keeps(field):
                continue
            into[key] = self._field(type, field, item, into.get(key), here, checked or over)
        return into

    def _field(self, type: TypeDesc, field: Field, item: Any, old: Any, place: Place, checked: bool) -> Any:
        if field.card == "list" and isinstance(item, list) and not isinstance(item, Pairs):
            before = old if isinstance(old, list) else []
            out = []
            for i, one in enumerate(item):
                was = before[i] if i < len(before) else None
                out.append(was if one is None and _keeps(field) else self._element(field, one, was, (place, i), checked))
            return out
        if field.card == "map" and isinstance(item, Pairs):
            entries: dict[str, Any] = old if isinstance(old, dict) else {}
            last = {key: i for i, (key, _) in enumerate(item)}
            for i, (key, one) in enumerate(item):
                over = i < last[key]
                if over and not checked and not _fits_element(field, one):
                    self._check(type, {field.name: {key: one}}, place and place[0])
                entries[key] = self._element(field, one, None, (place, key), checked or over)
            return entries
        return self._element(field, item, old, place, checked) if field.card == "single" else _plain(item)

    def _element(self, field: Field, item: Any, old: Any, place: Place, checked: bool) -> Any:
        message = field.message
        if message is None or not isinstance(item, Pairs) or message.custom_json in _OWN_JSON:
            return _plain(item)
        return self.struct(message, item, old if isinstance(old, dict) else {}, place, checked)

    def _check(self, type: TypeDesc, holder: dict[str, Any], place: Place) -> None:
        """An occurrence that another one follows, alone in the struct that holds it, which stands at ``place``. Only one that does not
        fit is read in its place in the whole object, with nothing else: what is wrong is said from there."""
        value = _plain(holder)
        try:
            decode(type, value)
        except DecodeError:
            while place is not None:
                place, key = place
                value = [value] if isinstance(key, int) else {key: value}
            decode(self.root, value)


def _keeps(field: Field) -> bool:
    """Whether null says nothing: of what Go holds by value."""
    if field.ptr:
        return False
    return field.type in _SCALARS or (field.message is not None and not field.message.custom_json)


def _fits(field: Field, item: Any) -> bool:
    """Whether a value certainly fits its field: what most are, without building anything."""
    if item is None:
        return True
    if field.card == "single":
        return _fits_element(field, item)
    if isinstance(item, Pairs):
        return field.card == "map" and all(_fits_element(field, one) for _, one in item)
    return field.card == "list" and isinstance(item, list) and all(_fits_element(field, one) for one in item)


def _fits_element(field: Field, item: Any) -> bool:
    if isinstance(item, str):
        return field.type == "string"
    if isinstance(item, bool):
        return field.type == "bool"
    message = field.message
    if message is None or message.custom_json or not isinstance(item, Pairs):
        return item is None
    known = message.by_name
    return all(key not in known or _fits(known[key], one) for key, one in item)


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return value
    if isinstance(value, dict):  # of ours, around what was read
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, Pairs):
        return {key: _plain(item) for key, item in value}
    return [_plain(item) for item in value] if isinstance(value, list) else value
