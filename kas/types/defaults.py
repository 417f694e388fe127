"""Defaulting: the tables' constants, then the values that a kind computes, in the order of upstream's SetObjectDefaults.

A kind's function is defined with the kind in ``kas/kinds/<group>`` and registered with ``@defaults_for``; the module is imported when the
group is first used. Rules that must see the object before the constants fill it (such as whether a strategy had a type at all) are in
``early``. Both modify the typed form in place and are idempotent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kas._codecs import apply_constant_defaults
from kas.types import kindloader
from kas.types.scheme import Kind, find_builtin_kind

Obj = dict[str, Any]
Defaulter = Callable[[Obj], None]


DEFAULTS: dict[tuple[str, str, str], Defaulter] = {}


def defaults_for(group: str, version: str, kind: str) -> Callable[[Defaulter], Defaulter]:
    """Decorator: registers the function that computes the kind's defaults after the constants."""

    def register(function: Defaulter) -> Defaulter:
        DEFAULTS[group, version, kind] = function
        return function

    return register


_Plan = tuple[Defaulter | None, Any, Defaulter | None, Kind | None]


def plan_of(kind: Any) -> _Plan:
    """Returns, and sets as ``kind.plan``, what ``apply_defaults`` does: the rule before the constants or None, the type, the rule after
    them, the kind of a list's items.
    """
    if kind.type.custom:  # the schema has all defaults
        kind.plan = (None, kind.type, None, None)
        return (None, kind.type, None, None)
    from kas.types.early import EARLY

    key = (kind.group, kind.version, kind.kind)
    kindloader.load(kind.group)
    computed = DEFAULTS.get(key)
    item = find_builtin_kind(kind.group, kind.version, kind.kind[:-4]) if computed is None and kind.kind.endswith("List") else None
    found = kind.plan = (EARLY.get(key), kind.type, computed, item)
    return found


def apply_defaults(kind: Any, obj: Obj, kept: Obj | None = None, filled: bool = False) -> None:
    """Applies defaults to a typed object in place. ``kind`` is a scheme Kind or Resource; the items of a list kind are defaulted. ``kept``
    are members that are added to ``obj`` and already have all constant defaults; ``filled`` says that ``obj`` has them, too.
    """
    early, type_, computed, item = kind.plan or plan_of(kind)
    if early is not None:
        if kept:
            obj.update(kept)
        early(obj)
    if not filled:
        apply_constant_defaults(type_, obj)
    if kept:
        obj.update(kept)
    if computed is not None:
        computed(obj)
    elif item is not None and obj.get("items"):
        for one in obj["items"]:
            apply_defaults(item, one)
