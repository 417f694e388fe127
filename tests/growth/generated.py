"""Families of inputs made from the type tables: every list, map and text that a client can send to a built-in kind, found by walking the
descriptors, so that a new field is covered by itself. A field of a type that several kinds share is grown where it is met first."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from kas.types.scheme import BUILTIN, Field, Resource, TypeDesc

TEXTS = {"Quantity": "1", "Time": "2024-01-02T03:04:05Z", "MicroTime": "2024-01-02T03:04:05.000006Z", "Duration": "1s", "IntOrString": "a"}
# What others need to be validated at all.
BASES: dict[str, dict[str, Any]] = {"Pod": {"spec": {"containers": [{"name": "c", "image": "x"}]}}}
FIRST = ("pods", "configmaps", "nodes", "services")


class Grown(NamedTuple):
    """``make(n)`` is the object with ``n`` items, keys or characters in the field at ``path``."""

    resource: Resource
    path: tuple[Field, ...]
    how: str
    make: Callable[[int], dict[str, Any]]

    @property
    def name(self) -> str:
        return f"{self.resource.group or 'core'}/{self.resource.kind}:{'.'.join(str(f.name) for f in self.path)}:{self.how}"


def scalar(field: Field, i: int) -> Any:
    if field.message is not None:
        return TEXTS.get(field.message.kind_name, {}) if field.message.kind_name != "IntOrString" else f"a{i}"
    match field.type:
        case "string":
            return f"a{i}"
        case "bytes":
            return "YQ=="
        case "bool":
            return True
        case "double":
            return i + 0.5
        case _:
            return i % 30000 + 1


def element(field: Field, i: int) -> Any:
    """An item that differs from its neighbours in all its plain fields; lists and messages in it are those it cannot be without."""
    message = field.message
    if message is None or message.custom_json is not None:
        return scalar(field, i)
    out: dict[str, Any] = {}
    for f in message.json_fields:
        if f.card == "single" and (f.message is None or f.message.custom_json is not None):
            out[f.name] = scalar(f, i)
    return out


def build(resource: Resource, path: tuple[Field, ...], value: Any) -> dict[str, Any]:
    for i in range(len(path) - 1, -1, -1):
        if i < len(path) - 1:
            inner = value
            value = [inner] if path[i].card == "list" else {"a": inner} if path[i].card == "map" else inner
        value = {path[i].name: value}
    obj = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": "a"}}
    return _merged(_merged(obj, BASES.get(resource.kind, {})), value)


def _merged(a: Any, b: Any) -> Any:
    if isinstance(a, dict) and isinstance(b, dict):
        return a | {k: _merged(a[k], v) if k in a else v for k, v in b.items()}
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b) == 1:
        return [_merged(a[0], b[0])]
    return b


def changed(grown: Grown, obj: dict[str, Any]) -> dict[str, Any]:
    """``obj`` with the list that was grown turned round, or the keys of the map that was grown changed."""
    out = at = copy.deepcopy(obj)
    for field in grown.path[:-1]:
        at = at[field.name]
        at = at[0] if field.card == "list" else at["a"] if field.card == "map" else at
    name = grown.path[-1].name
    at[name] = at[name][::-1] if isinstance(at[name], list) else {f"{k}x": v for k, v in at[name].items()}
    return out


def _ways(field: Field) -> dict[str, Callable[[int], Any]]:
    """How a list or a map is grown."""
    if field.card == "map":
        return {
            "keys": lambda n: {f"k{i}": element(field, i) for i in range(n)},
            "bad keys": lambda n: {f"-{i}/é": element(field, 1) for i in range(n)},
        }
    ways: dict[str, Callable[[int], Any]] = {
        "distinct": lambda n: [element(field, i) for i in range(n)], "equal": lambda n: [element(field, 1)] * n,
    }
    if field.message is not None and field.message.custom_json is None:
        ways["empty"] = lambda n: [{}] * n
    elif field.message is None and field.type == "string":
        ways["bad"] = lambda n: [f"-{i}/é" for i in range(n)]
    return ways


# Texts that have made patterns and parsers try again and again.
TEXTS_OF: dict[str, Callable[[int], str]] = {
    "bad": lambda n: "-É" * (n // 2), "digits": lambda n: "9" * n, "labels": lambda n: "a." * (n // 2),
    "spaces": lambda n: " " * n,
}
AT_ONCE = 48


def fields(resource: Resource, seen: set[tuple[str, str]]) -> Iterator[tuple[Field, ...]]:
    """The paths to lists, maps and texts not met before, nearest first."""
    queue: list[tuple[tuple[Field, ...], TypeDesc]] = [((), resource.type)]
    while queue:
        path, message = queue.pop(0)
        for f in message.json_fields:
            if f.type_meta or (message.name, f.name) in seen or f.name == "managedFields":
                continue
            seen.add((message.name, f.name))
            inner = f.message
            is_text = f.type == "string" if inner is None else inner.kind_name in ("Quantity", "IntOrString")
            if f.card != "single" or is_text:
                yield (*path, f)
            if inner is not None and inner.custom_json is None:
                queue.append(((*path, f), inner))


def _texts(resource: Resource, paths: list[tuple[Field, ...]], how: str) -> Grown:
    def make(n: int) -> dict[str, Any]:
        obj: dict[str, Any] = {}
        for path in paths:
            obj = _merged(obj, build(resource, path, TEXTS_OF[how](max(1, 16 * n // len(paths)))))
        return obj

    return Grown(resource, paths[0], f"{how} in {len(paths)} texts", make)


def families() -> Iterator[Grown]:
    """In a fixed order: pods first, whose types most others hold."""
    seen: set[tuple[str, str]] = set()
    newest = {(r.group, r.resource): r for r in reversed(BUILTIN.resources) if "create" in r.verbs}
    order = sorted(newest.values(), key=lambda r: (FIRST.index(r.resource) if r.group == "" and r.resource in FIRST else len(FIRST)))
    for resource in order:
        texts = []
        for path in fields(resource, seen):
            if path[-1].card == "single":
                texts.append(path)
                continue
            for how, value in _ways(path[-1]).items():
                yield Grown(resource, path, how, lambda n, resource=resource, path=path, value=value: build(resource, path, value(n)))
        for i in range(0, len(texts), AT_ONCE):
            for how in TEXTS_OF:
                yield _texts(resource, texts[i : i + AT_ONCE], how)
