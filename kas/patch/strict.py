"""Strict decoding of the operations of a JSON patch: its errors, in upstream's order."""

from __future__ import annotations

import json
from typing import Any

from kas.meta import utf8
from kas.patch.jsonpatch import MEMBERS
from kas.types.scheme import strict_operations

_MEMBERS = frozenset(name.encode() for name in MEMBERS)


def json_patch_errors(raw: bytes) -> list[str]:
    """Return the strict decoding errors of a JSON patch, which must be a list of objects; texts as in ``strict_fields``."""
    return [f"json patch {text}" for text in strict_operations(raw, _MEMBERS)]


class Repeated(str):
    """A member's name that a later member of the same object repeats. A dict can hold both, since this one only equals itself."""

    __slots__ = ()
    __eq__ = object.__eq__
    __hash__ = object.__hash__


def with_repeated_members(raw: bytes) -> list[Any]:
    """Decode a well-formed JSON patch; objects have each member that was written, under ``Repeated`` names except for the last."""
    return json.loads(utf8.text(raw), object_pairs_hook=_members, parse_int=_number)


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) == len(pairs):
        return members
    last = {name: i for i, (name, _) in enumerate(pairs)}
    return {name if last[name] == i else Repeated(name): value for i, (name, value) in enumerate(pairs)}


def _number(text: str) -> float:
    return int(text) if len(text) < 20 else float(text)
