"""Conversion strategy None: versions differ by their names (apiextensions-apiserver ``conversion/nop_converter.go``)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from kas.apiextensions.definition import Definition
from kas.meta.errors import ApiError

Obj = dict[str, Any]


class NopConverter:
    """A ``kas.registry.versions.Converter`` for the objects of one definition whose strategy is None."""

    # It never waits. It fails only where somebody took a version away whose objects were not migrated: a list on its way then breaks off.
    total = True

    def __init__(self, d: Definition) -> None:
        self._of = d

    @cached_property
    def _known(self) -> frozenset[str]:  # of thousands, maybe, and of most definitions nothing is ever converted
        return frozenset(f"{self._of.group}/{v.name}" for v in self._of.versions)

    def convert(self, objects: Sequence[Obj], target: tuple[str, str, str]) -> list[Obj]:
        """The objects under the target's name; at once. Raises ApiError (500) for those of versions the definition has not."""
        api_version = f"{target[0]}/{target[1]}"
        for obj in objects:
            if obj["apiVersion"] not in self._known:
                raise ApiError(500, "", f"request to convert CR from an invalid group/version: {obj['apiVersion']}")
        return [{**obj, "apiVersion": api_version} for obj in objects]
