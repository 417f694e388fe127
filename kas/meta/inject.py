"""Constructor injection by parameter name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def wants(cls: Any) -> list[str]:
    """The names of a constructor's annotated parameters; empty for a class without a constructor of its own."""
    return [name for name in getattr(cls.__init__, "__annotations__", {}) if name != "return"]


def make(cls: Any, known: Mapping[str, Any]) -> Any:
    """Creates ``cls`` with those of ``known`` that its constructor has as parameters. Raises ``TypeError`` when another parameter has no
    default.
    """
    return cls(**{name: known[name] for name in wants(cls) if name in known})
