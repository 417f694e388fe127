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

from kas._fast_types import apply_constant_defaults
from kas.api.scheme import SCHEME, Kind

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


_Plan = tuple[Defaulter | None, Any, Defaulter | None, Kind | None]
# What is to be done for a Kind or Resource; both live as long as the scheme.
_plans: dict[Any, _Plan] = {}


def _plan(kind: Any) -> _Plan:
    from kas.api.defaults.early import EARLY

    key = (kind.group, kind.version, kind.kind)
    computed = DEFAULTS.get(key)
    item = SCHEME.kind(kind.group, kind.version, kind.kind[:-4]) if computed is None and kind.kind.endswith("List") else None
    found = _plans[kind] = (EARLY.get(key), kind.type, computed, item)
    return found


def apply_defaults(kind: Any, obj: Obj) -> None:
    """Default a typed object in place. ``kind`` is a scheme Kind or Resource; a list kind defaults its items."""
    early, type_, computed, item = _plans.get(kind) or _plan(kind)
    if early is not None:
        early(obj)
    apply_constant_defaults(type_, obj)
    if computed is not None:
        computed(obj)
    elif item is not None and obj.get("items"):
        for one in obj["items"]:
            apply_defaults(item, one)
