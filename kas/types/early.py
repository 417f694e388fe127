"""For example, whether a Job had neither completions nor parallelism, or a StatefulSet no strategy type, cannot be determined afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

EARLY: dict[tuple[str, str, str], Callable[[dict[str, Any]], None]] = {}


def early_defaults_for(group: str, version: str, kind: str):
    """Decorator: registers a function that runs on objects of the kind before the constant defaults."""

    def register(function: Callable[[dict[str, Any]], None]) -> Callable[[dict[str, Any]], None]:
        EARLY[group, version, kind] = function
        return function

    return register
