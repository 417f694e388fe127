"""What built-in kinds do by themselves (strategies, defaults, conversions, rows) is registered when their group is first asked for.

Who has the kinds (``kas.kinds``) installs a loader here, so that the layers below need not know where they are.
"""

from __future__ import annotations

from collections.abc import Callable

_loaders: list[Callable[[str], None]] = []
_loaded: set[str] = set()


def install(loader: Callable[[str], None]) -> None:
    """Let ``loader(group)`` register what a group's kinds bring. The same one again changes nothing."""
    if loader not in _loaders:
        _loaders.append(loader)
        _loaded.clear()


def load(group: str) -> None:
    """Register what a group's kinds bring. Idempotent. Raises RuntimeError when nobody has installed any kinds.

    Groups load when one of their kinds is first decoded, written or printed, so that starting costs nothing for the rest.
    """
    if group in _loaded:
        return
    if not _loaders:
        raise RuntimeError("no kinds are installed (kas.kinds.install)")
    for loader in _loaders:
        loader(group)
    _loaded.add(group)
