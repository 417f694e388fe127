"""Conversion of objects, as dicts, between the versions of a kind: ``convert``, and the registry that the group modules fill.

Most versions differ only in name and need no function. For the others, ``kas/kinds/<group>/conversion.py`` registers functions with
``@converts(source, target)``. Such a function must not change its argument and returns a new object, which may share parts; ``convert``
then gives it the target's typed form.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kas.types import kindloader
from kas.types.scheme import builtin_kind, decode

Obj = dict[str, Any]
GVK = tuple[str, str, str]
Converter = Callable[[Obj], Obj]

_CONVERTERS: dict[tuple[GVK, GVK], Converter] = {}


def converts(source: GVK, target: GVK) -> Callable[[Converter], Converter]:
    """Decorator: registers the function as the conversion from ``source`` to ``target``."""

    def register(function: Converter) -> Converter:
        _CONVERTERS[source, target] = function
        return function

    return register


def convert(obj: Obj, source: GVK | str, target: GVK | str, to_version: str | None = None, kind: str | None = None) -> Obj:
    """Returns ``obj`` in another version; the same object when source and target are equal.

    Called as ``convert(obj, (group, version, kind), (group, version, kind))`` or, within a group, as ``convert(obj, group, from_version,
    to_version, kind)``. The items of a list kind are converted. ``obj`` is typed and not changed; the result is typed and has the target's
    kind and apiVersion. Raises LookupError for kinds that cannot be converted into each other.
    """
    if isinstance(source, str):
        if not isinstance(target, str) or to_version is None or kind is None:
            raise TypeError("convert: group, from_version, to_version and kind are all needed")
        return convert(obj, (source, target, kind), (source, to_version, kind))
    assert isinstance(target, tuple)
    if source == target:
        return obj
    group, version, name = target
    api_version = f"{group}/{version}" if group else version
    for g in (source[0], group):
        kindloader.load(g)
    function = _CONVERTERS.get((source, target))
    if function is not None:
        typed, _ = decode(builtin_kind(*target).type, {**function(obj), "kind": name, "apiVersion": api_version})
        return typed
    if name.endswith("List") and source[2].endswith("List") and isinstance(obj.get("items"), list):
        inner = (source[0], source[1], source[2][:-4]), (group, version, name[:-4])
        items = [convert(item, *inner) for item in obj["items"]]
        return {**obj, "kind": name, "apiVersion": api_version, "items": items}
    if source[0] != group or source[2] != name:
        raise LookupError(f"{source[0]}/{source[1]} {source[2]} does not convert to {api_version} {name}")
    return {**obj, "kind": name, "apiVersion": api_version}
