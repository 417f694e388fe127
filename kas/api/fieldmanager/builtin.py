"""Merge schemas of the built-in kinds, from the scheme; entries of other versions are converted through it."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from kas.api import scheme
from kas.api.fieldmanager.schema import Schema, type_node


@lru_cache(maxsize=None)
def builtin(group: str, version: str, kind: str) -> Schema:
    """The schema of a kind the scheme knows; KeyError for one it does not."""
    found = scheme.SCHEME.kind(group, version, kind)
    if found is None:
        raise KeyError(f"{group}/{version}, Kind={kind}")

    def other_version(obj: dict[str, Any], api_version: str) -> tuple[Schema, dict[str, Any]] | None:
        other_group, _, other = api_version.rpartition("/")
        if other_group != group or scheme.SCHEME.kind(group, other, kind) is None:
            return None
        return builtin(group, other, kind), scheme.convert(obj, group, version, other, kind)

    return Schema(type_node(found.type), found.api_version, kind, other_version, structured=True)
