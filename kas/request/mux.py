"""Where parts of the server put the paths they answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from kas.request.http import Handler, Request, Result


class Mux(Protocol):
    """Paths beside the REST resources. The director is one."""

    def exact(self, path: str, handler: Handler) -> None:
        """``handler`` answers ``path`` itself."""

    def prefix(self, path: str, handler: Handler) -> None:
        """``handler`` answers the paths below ``path``, which ends with "/"; the longest match wins."""

    def fallback(self, handler: Callable[[Request], Result | None]) -> None:
        """``handler`` is asked for what nothing else claims, in the order given; None passes on."""

    def paths(self) -> list[str]:
        """The paths and prefixes that are answered, sorted."""
