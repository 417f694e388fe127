"""Bodies with repeated fields, decoded as by Go's json packages (sigs.k8s.io/json, like encoding/json).

Go decodes each occurrence into the result of the one before: structs and maps are merged, list items are decoded into the existing items,
null leaves a string or number unchanged, and an occurrence that does not fit its type is refused wherever it is.
"""

from __future__ import annotations

from typing import Any

from kas.types.scheme import DecodeError, Field, Pairs, TypeDesc, decode, read_pairs

# The position of a value: (position of its container, key or index). Building full paths would cost each value its depth.
Place = tuple["Place", str | int] | None

_SCALARS = frozenset({"string", "bool", "int32", "int64", "uint32", "uint64", "double", "float"})
# Types with their own JSON decoder, in which a repeated field replaces the earlier value.
_OWN_JSON = frozenset({"raw-json", "raw-json;empty=null", "schema|list-of-schema", "schema|bool", "schema|list-of-string"})


def read_repeated(type: TypeDesc, raw: bytes, otherwise: dict[str, Any]) -> dict[str, Any]:
    """Decodes the JSON text of an object of ``type`` with every occurrence of its fields.

    The text must have been parsed before; ``otherwise`` is the result of that, returned when the text is nested too deeply. Raises
    DecodeError for an occurrence that does not fit its type.
    """
    try:
        value = read_pairs(raw)
        return _Reading(type).struct(type, value, {}, None, False) if isinstance(value, Pairs) else otherwise
    except RecursionError:
        return otherwise


class _Reading:
    """The decoding of one text of type ``root``."""

    def __init__(self, root: TypeDesc) -> None:
        self.root = root

    def struct(self, type: TypeDesc, pairs: Pairs, into: dict[str, Any], place: Place, checked: bool) -> dict[str, Any]:
        """Merges ``pairs`` into ``into`` and returns it. ``checked`` says that the types have been checked already."""
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
        """Checks the types of an occurrence that a later one overrides, alone in its containing struct, which is at ``place``. If it does
        not fit, it is decoded at its place in the root object, so that the error has the full path.
        """
        value = _plain(holder)
        try:
            decode(type, value)
        except DecodeError:
            while place is not None:
                place, key = place
                value = [value] if isinstance(key, int) else {key: value}
            decode(self.root, value)


def _keeps(field: Field) -> bool:
    """Whether null leaves the field unchanged, as for fields that Go holds by value."""
    if field.ptr:
        return False
    return field.type in _SCALARS or (field.message is not None and not field.message.custom_json)


def _fits(field: Field, item: Any) -> bool:
    """Whether a value certainly fits its field, determined without building anything; true for most values."""
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
    if isinstance(value, dict):  # a dict built here around the decoded value
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, Pairs):
        return {key: _plain(item) for key, item in value}
    return [_plain(item) for item in value] if isinstance(value, list) else value
