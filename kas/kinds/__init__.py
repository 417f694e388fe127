"""The built-in kinds: one room a group, loaded when first asked for."""

from __future__ import annotations

import importlib
import importlib.util

from kas.types import rooms

# Groups whose room is not named after their first label; Status, which the printers keep under "meta", is printed with the core kinds.
_ROOMS = {"": "core", "meta": "core", "internal.apiserver.k8s.io": "internalapi"}
# What of a kind registers itself when it is imported; the rest of a kind's folder is imported by these.
_PARTS = ("strategy", "defaults", "columns")


def modules(group: str) -> list[str]:
    """The modules of a group's room that register something, for loading them one by one; none for a group without a room."""
    import pkgutil  # once somebody asks for a room

    package = f"{__name__}.{_ROOMS.get(group) or group.partition('.')[0]}"
    if importlib.util.find_spec(package) is None:
        return []
    found = []
    for entry in pkgutil.iter_modules(importlib.import_module(package).__path__, package + "."):
        if not entry.ispkg:
            found.append(entry.name)
            continue
        parts = pkgutil.iter_modules(importlib.import_module(entry.name).__path__)
        found += [f"{entry.name}.{part.name}" for part in parts if part.name in _PARTS]
    return found


def load(group: str) -> None:
    """Import a group's room, which registers its strategies, defaults, conversions and rows."""
    for module in modules(group):
        importlib.import_module(module)


def install() -> None:
    """Let everybody find the built-in kinds. Idempotent; nothing is imported yet."""
    rooms.install(load)
