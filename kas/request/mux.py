"""The interface with which parts of the server register the paths they answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from kas.request.http import Handler, Request, Result


class Mux(Protocol):
    """Paths other than REST resources. The director implements it."""

    def exact(self, path: str, handler: Handler) -> None:
        """Registers ``handler`` for ``path`` itself."""

    def prefix(self, path: str, handler: Handler) -> None:
        """Registers ``handler`` for the paths below ``path``, which ends with "/"; the longest match wins."""

    def fallback(self, handler: Callable[[Request], Result | None]) -> None:
        """Adds a handler for what nothing else claims. Fallbacks are called in order; None passes on."""

    def paths(self) -> list[str]:
        """The paths and prefixes that are answered, sorted."""
