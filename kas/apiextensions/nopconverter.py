"""Conversion strategy None: versions differ by their names (apiextensions-apiserver ``conversion/nop_converter.go``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kas.meta import errors

Obj = dict[str, Any]


class NopConverter:
    """A ``kas.registry.versions.Converter``."""

    total = True

    def convert(self, objects: Sequence[Obj], target: tuple[str, str, str]) -> list[Obj]:
        """The objects under the target's name; at once."""
        api_version = f"{target[0]}/{target[1]}"
        return [{**obj, "apiVersion": api_version} for obj in objects]


class NoConverter:
    """Of definitions whose versions a webhook converts, while nobody asks webhooks: each conversion is a failure."""

    total = False

    def convert(self, objects: Sequence[Obj], target: tuple[str, str, str]) -> list[Obj]:
        """Raises 500, in the words of a webhook that cannot be called; objects that are of the target version already are themselves."""
        api_version = f"{target[0]}/{target[1]}"
        for obj in objects:
            if obj["apiVersion"] != api_version:
                why = "the server calls no conversion webhooks"
                raise errors.ApiError(500, "", f"conversion webhook for {obj['apiVersion']}, Kind={obj['kind']} failed: {why}")
        return list(objects)


NOP = NopConverter()
NONE = NoConverter()
