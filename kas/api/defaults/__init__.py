"""Defaulting: the constants of the tables, then what a kind computes, in the order upstream's SetObjectDefaults gives.

A kind's function lives in ``kas/api/defaults/<group>.py`` (the group's first label; ``core`` for the core group) and is named with
``@defaults_for``; the module is imported when the group is first asked for. Rules that must see the object before the constants fill it
(whether a strategy had a type at all) are in ``early``. Both work in place on the typed form and are idempotent.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from typing import Any

from kas.api.scheme import SCHEME, Kind, default

Obj = dict[str, Any]
Defaulter = Callable[[Obj], None]


class _Registry(dict[tuple[str, str, str], Defaulter]):
    """(group, version, kind) -> function; a lookup first imports the group's module."""

    def __init__(self) -> None:
        super().__init__()
        self._loaded: set[str] = set()

    def load(self, group: str) -> None:
        if group in self._loaded:
            return
        self._loaded.add(group)
        name = f"{__name__}.{group.partition('.')[0] or 'core'}"
        if importlib.util.find_spec(name) is not None:
            importlib.import_module(name)

    def get(self, key: tuple[str, str, str], otherwise: Defaulter | None = None) -> Defaulter | None:  # type: ignore[override]
        self.load(key[0])
        return super().get(key, otherwise)

    def __missing__(self, key: tuple[str, str, str]) -> Defaulter:
        if key[0] in self._loaded:
            raise KeyError(key)
        self.load(key[0])
        return self[key]


DEFAULTS = _Registry()


def defaults_for(group: str, version: str, kind: str) -> Callable[[Defaulter], Defaulter]:
    """Decorator: this function computes the defaults of the kind, after the constants."""

    def register(function: Defaulter) -> Defaulter:
        DEFAULTS[group, version, kind] = function
        return function

    return register


def apply_defaults(kind: Any, obj: Obj) -> None:
    """Default a typed object in place. ``kind`` is a scheme Kind or Resource; a list kind defaults its items."""
    from kas.api.defaults.early import EARLY

    key = (kind.group, kind.version, kind.kind)
    computed = DEFAULTS.get(key)
    early = EARLY.get(key)
    if early is not None:
        early(obj)
    default(kind.type, obj)
    if computed is not None:
        computed(obj)
    elif obj.get("items") and kind.kind.endswith("List"):
        item = SCHEME.kind(kind.group, kind.version, kind.kind[:-4])
        if item is not None:
            _default_items(item, obj["items"])


def _default_items(kind: Kind, items: list[Obj]) -> None:
    for item in items:
        apply_defaults(kind, item)
