"""Lazy registration of the behaviour of built-in kinds (strategies, defaults, conversions, table rows), when their group is first used.

The package that defines the kinds (``kas.kinds``) installs a loader here, so that lower layers do not depend on it.
"""

from __future__ import annotations

from collections.abc import Callable

_loaders: list[Callable[[str], None]] = []
_loaded: set[str] = set()


def install(loader: Callable[[str], None]) -> None:
    """Installs ``loader(group)``, which registers what a group's kinds bring. Installing the same loader again has no effect."""
    if loader not in _loaders:
        _loaders.append(loader)
        _loaded.clear()


def load(group: str) -> None:
    """Registers what a group's kinds bring. Idempotent. Raises RuntimeError when no loader is installed.

    Groups are loaded when one of their kinds is first decoded, written or printed, so that start-up does not pay for the others.
    """
    if group in _loaded:
        return
    if not _loaders:
        raise RuntimeError("no kinds are installed (kas.kinds.install)")
    for loader in _loaders:
        loader(group)
    _loaded.add(group)
