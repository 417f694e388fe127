"""Preserves unknown fields of a message, or of its JSON, that a newer version of Kubernetes wrote.

Reading, changing and rewriting an object would lose them. ``handed_on`` copies them into the new message: those of the object itself, of
embedded messages that still exist, of map entries by key, and of list elements by their merge keys (``patchMergeKey``, ``listMapKeys``) or
else of elements that are unchanged.

Wire format: protobuf.dev, "Encoding".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import orjson

from kas.meta.records import NamedTuple
from kas.types.scheme import DecodeError, Field, TypeDesc, decode, varint

BYTES = 2  # wire type
KEY, VALUE = 1, 2  # of an entry of a map
_FIXED = {1: 8, 5: 4}
MAX_DEPTH = 100


class _Part(NamedTuple):
    """A field of a message: number, wire type, its bytes, and the offset of its content in them."""

    number: int
    wire: int
    data: bytes
    start: int

    @property
    def content(self) -> bytes:
        return self.data[self.start :]


def handed_on(type: TypeDesc, old: bytes, new: bytes) -> bytes:
    """Returns the message ``new`` with the unknown fields of ``old``, which it replaces. Raises DecodeError when one is not a valid
    message.
    """
    return _merged(type, old, new, 0)


def handed_on_json(type: TypeDesc, old: Any, new: Any) -> None:
    """Like ``handed_on``, for JSON values; changes ``new`` in place."""
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return
    known = type.by_name
    for name, value in old.items():
        field = known.get(name)
        if field is None:
            new.setdefault(name, value)
        elif field.message is not None and not field.message.custom_json and name in new:
            _pair_json(field, field.message, value, new[name])


def _pair_json(field: Field, inner: TypeDesc, old: Any, new: Any) -> None:
    """Pairs each occurrence of a field in the new object with the one that it replaces."""
    if field.card == "single":
        handed_on_json(inner, old, new)
    elif field.card == "map" and isinstance(old, dict) and isinstance(new, dict):
        for key in old.keys() & new.keys():
            handed_on_json(inner, old[key], new[key])
    elif field.card == "list" and isinstance(old, list) and isinstance(new, list):
        names = field.list_map_keys or ((field.patch_merge_key,) if field.patch_merge_key else ())
        left: dict[object, list[Any]] = defaultdict(list)
        for one in reversed(old):
            left[_json_key(inner, names, one)].append(one)
        for one in new:
            if found := left.get(_json_key(inner, names, one)):
                handed_on_json(inner, found.pop(), one)


def _json_key(type: TypeDesc, names: tuple[str, ...], element: Any) -> bytes:
    """The identity of a list element: its keys, or else all its known fields."""
    if names and isinstance(element, dict):
        return orjson.dumps([element.get(name) for name in names])
    return orjson.dumps(decode(type, element)[0] if isinstance(element, dict) else element, option=orjson.OPT_SORT_KEYS)


def _merged(type: TypeDesc, old: bytes, new: bytes, depth: int) -> bytes:
    if depth > MAX_DEPTH:
        raise DecodeError("exceeded max depth")
    known = {field.pb: field for field in type.fields if field.pb > 0}
    had: dict[int, list[_Part]] = defaultdict(list)
    for part in _parts(old):
        had[part.number].append(part)
    out, places = [], dict[int, _Pairs]()
    for part in _parts(new):
        field = known.get(part.number)
        inner = field.message if field is not None and part.number in had and part.wire == BYTES else None
        if field is None or inner is None or inner.custom_json:
            out.append(part.data)
            continue
        pairs = places.get(part.number)
        if pairs is None:
            pairs = places[part.number] = _Pairs(field, inner, had[part.number], depth)
        out.append(pairs.of(part))
    return b"".join([*out, *(part.data for number, found in had.items() if number not in known for part in found)])


class _Pairs:
    """Matches the occurrences of a field in the old message to those in the new one."""

    def __init__(self, field: Field, inner: TypeDesc, parts: list[_Part], depth: int) -> None:
        self._field, self._inner, self._depth = field, inner, depth
        self._keys = self._key_numbers()
        self._left: dict[object, list[bytes]] = defaultdict(list)
        for part in reversed(parts):
            self._left[self._key(part.content)].append(part.content)

    def of(self, part: _Part) -> bytes:
        """The occurrence with the unknown fields of the one that it replaces."""
        left = self._left.get(self._key(part.content))
        if not left:
            return part.data
        old = left.pop()
        if self._field.card == "map":
            had = next((entry.content for entry in _parts(old) if entry.number == VALUE), b"")
            return _field(part.number, _entry(part.content, lambda value: _merged(self._inner, had, value, self._depth + 1)))
        return _field(part.number, _merged(self._inner, old, part.content, self._depth + 1))


    def _key_numbers(self) -> frozenset[int]:
        names = self._field.list_map_keys or ((self._field.patch_merge_key,) if self._field.patch_merge_key else ())
        return frozenset(field.pb for field in self._inner.fields if field.name in names)

    def _key(self, content: bytes) -> object:
        if self._field.card == "single":
            return None
        if self._field.card == "map":
            return tuple(part.data for part in _parts(content) if part.number == KEY)
        if self._keys:
            return tuple(part.data for part in _parts(content) if part.number in self._keys)
        return _stripped(self._inner, content, self._depth)


def _stripped(type: TypeDesc, message: bytes, depth: int) -> bytes:
    """The message without unknown fields."""
    if depth > MAX_DEPTH:
        raise DecodeError("exceeded max depth")
    known = {field.pb: field for field in type.fields if field.pb > 0}
    out = []
    for part in _parts(message):
        field = known.get(part.number)
        if field is None:
            continue
        inner = field.message if part.wire == BYTES else None
        if inner is None or inner.custom_json:
            out.append(part.data)
        elif field.card == "map":
            out.append(_field(part.number, _entry(part.content, partial(_stripped, inner, depth=depth + 1))))
        else:
            out.append(_field(part.number, _stripped(inner, part.content, depth + 1)))
    return b"".join(out)


def _entry(entry: bytes, of_value: Callable[[bytes], bytes]) -> bytes:
    """A map entry with its value transformed."""
    return b"".join(_field(VALUE, of_value(part.content)) if part.number == VALUE else part.data for part in _parts(entry))


def _field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | BYTES) + varint(len(content)) + content


def _parts(message: bytes) -> Iterable[_Part]:
    at = 0
    while at < len(message):
        begin = at
        tag, at = _varint(message, at)
        wire = tag & 7
        start = at
        if wire == 0:
            _, at = _varint(message, at)
        elif wire == BYTES:
            size, start = _varint(message, at)
            at = start + size
        elif wire in _FIXED:
            at += _FIXED[wire]
        else:
            raise DecodeError(f"proto: illegal wireType {wire}")
        if at > len(message):
            raise DecodeError("unexpected EOF")
        yield _Part(tag >> 3, wire, message[begin:at], start - begin)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise DecodeError("unexpected EOF")
        byte = data[at]
        value |= (byte & 127) << shift
        shift, at = shift + 7, at + 1
        if byte < 128:
            return value, at
