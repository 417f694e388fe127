"""The built-in kinds: one package per group, imported on first use."""

from __future__ import annotations

import importlib
import importlib.util

from kas.types import kindloader

# Groups whose package is not named after their first label. Status, which the printers keep under "meta", is printed with the core kinds.
_ROOMS = {"": "core", "meta": "core", "internal.apiserver.k8s.io": "internalapi"}
# The modules of a kind that register something when imported; they import the rest of the kind's package.
_PARTS = ("strategy", "defaults", "columns")


def modules(group: str) -> list[str]:
    """Return the modules of a group's package that register something, to import them one by one; none for a group without a package."""
    import pkgutil  # only needed when a group is loaded

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
    """Import a group's package, which registers its strategies, defaults, conversions and table rows."""
    for module in modules(group):
        importlib.import_module(module)


def install() -> None:
    """Make the built-in kinds available. Idempotent; imports none of them yet."""
    kindloader.install(load)
