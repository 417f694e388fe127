"""``Lazy``: stands for an object until somebody uses it. Start-up is a feature, and most of a server is not needed for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Lazy:
    """Makes its object, by ``make()``, at the first use of an attribute or the first call, and is that object from then on."""

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
