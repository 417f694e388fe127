"""Conversion strategy None: versions differ only in their names (apiextensions-apiserver ``conversion/nop_converter.go``)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from kas.apiextensions.definition import Definition
from kas.meta.errors import ApiError

Obj = dict[str, Any]


class NopConverter:
    """A ``kas.registry.versions.Converter`` for the objects of one definition whose strategy is None."""

    # Never awaits. It fails only if a version was removed whose objects had not been migrated; a list in progress then breaks off.
    total = True

    def __init__(self, d: Definition) -> None:
        self._of = d

    @cached_property
    def _known(self) -> frozenset[str]:  # there may be thousands, and for most definitions nothing is ever converted
        return frozenset(f"{self._of.group}/{v.name}" for v in self._of.versions)

    def convert(self, objects: Sequence[Obj], target: tuple[str, str, str]) -> list[Obj]:
        """Rename the objects to the target version, without awaiting. Raises ApiError (500) for versions that the definition lacks."""
        api_version = f"{target[0]}/{target[1]}"
        for obj in objects:
            if obj["apiVersion"] not in self._known:
                raise ApiError(500, "", f"request to convert CR from an invalid group/version: {obj['apiVersion']}")
        return [{**obj, "apiVersion": api_version} for obj in objects]
