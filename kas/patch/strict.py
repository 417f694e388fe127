"""Strict decoding of the operations of a JSON patch: its errors, in upstream's order."""

from __future__ import annotations

from kas.patch.jsonpatch import MEMBERS
from kas.types.scheme import strict_operations

_MEMBERS = frozenset(name.encode() for name in MEMBERS)


def json_patch_errors(raw: bytes) -> list[str]:
    """Return the strict decoding errors of a JSON patch, which must be a list of objects; texts as in ``strict_fields``."""
    return [f"json patch {text}" for text in strict_operations(raw, _MEMBERS)]
