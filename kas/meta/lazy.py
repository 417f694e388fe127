"""``Lazy``: a proxy that creates its object on first use, since most of a server is not needed for its start."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Lazy:
    """A proxy that calls ``make()`` at the first attribute access or call, and forwards to the result from then on."""

    __slots__ = ("_made", "_make")

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make, self._made = make, None

    def _get(self) -> Any:
        if self._made is None:
            self._made = self._make()
        return self._made

    def __getattr__(self, name: str) -> Any:
        return getattr(self._get(), name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._get()(*args, **kwargs)
