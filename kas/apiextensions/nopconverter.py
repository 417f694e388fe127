"""Conversion strategy None: versions differ by their names (apiextensions-apiserver ``conversion/nop_converter.go``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Obj = dict[str, Any]


class NopConverter:
    """A ``kas.registry.versions.Converter``."""

    total = True

    def convert(self, objects: Sequence[Obj], target: tuple[str, str, str]) -> list[Obj]:
        """The objects under the target's name; at once."""
        api_version = f"{target[0]}/{target[1]}"
        return [{**obj, "apiVersion": api_version} for obj in objects]


NOP = NopConverter()
