"""kas: a Kubernetes API server in Python. ``kas.Server`` embeds a server in a program (``docs/library.md``)."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kas.library import HookContext, Loopback, OptionError, Options, Server, StartError, VirtualResource

__version__ = "0.1.0"
KUBERNETES_VERSION = "1.36.2"

_LIBRARY = frozenset(("HookContext", "Loopback", "OptionError", "Options", "Server", "StartError", "VirtualResource"))
__all__ = ["KUBERNETES_VERSION", "HookContext", "Loopback", "OptionError", "Options", "Server", "StartError", "VirtualResource"]


def __getattr__(name: str) -> Any:
    """Loads the names of the library on first use: ``kas serve``, which stays small, never does."""
    if name in _LIBRARY:
        return getattr(import_module("kas.library"), name)
    raise AttributeError(f"module 'kas' has no attribute {name!r}")
