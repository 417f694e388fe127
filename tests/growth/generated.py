"""Families of inputs made from the type tables: every list, map and text that a client can send to a built-in kind. They are found by
walking the descriptors, so that a new field is covered without more code. A field of a type that several kinds share is grown in the first
kind that has it.

Lists are grown in the ways that are worst for code that searches for one item among the others: all items distinct, each twice, all empty,
all invalid, and with all the fields that items may have, with the same names everywhere, so that references find their targets. Also all
lists of a message are grown at once, for code that compares one with another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import orjson

from kas.types.scheme import BUILTIN, Field, Resource, TypeDesc

TEXTS = {"Quantity": "1", "Time": "2024-01-02T03:04:05Z", "MicroTime": "2024-01-02T03:04:05.000006Z", "Duration": "1s", "IntOrString": "a"}
# Fields that must be set before the others are validated.
BASES: dict[str, dict[str, Any]] = {
    "Pod": {"spec": {"containers": [{"name": "c", "image": "x"}]}}, "TokenReview": {"spec": {"token": "x"}},
    "SelfSubjectRulesReview": {"spec": {"namespace": "default"}},
}
# Texts that are checked before an object is validated: each grows alone, so that it does not stop the validation of the others.
ASKED_FIRST = (
    "metadata.namespace", "spec.preemptionPolicy", "spec.priorityClassName", "spec.runtimeClassName", "spec.serviceAccount",
    "spec.serviceAccountName",
)  # fmt: skip
MOST_ITEMS = 2048  # whose square shows, however cheap each step is
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

    def count(self, size: int) -> int:
        """The number of items of an object with so many bytes, at most ``MOST_ITEMS``; 0 when not even one fits into a quarter of it."""
        few, more = (len(orjson.dumps(self.make(n))) for n in (1, 9))
        return min(MOST_ITEMS, size * 8 // max(1, more - few)) if more - few < 2 * size else 0


def scalar(field: Field, i: int) -> Any:
    if isinstance(field.enum, list | tuple) and field.enum:
        return field.enum[i % len(field.enum)]
    if field.message is not None:
        if field.message.kind_name == "ExtraValue":
            return [f"a{i}"]
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
    """An item that differs from its neighbours in all its plain fields; of lists and messages it has only the required ones."""
    message = field.message
    if message is None or message.custom_json is not None:
        return scalar(field, i)
    out: dict[str, Any] = {}
    for f in message.json_fields:
        if f.card == "single" and (f.message is None or f.message.custom_json is not None):
            out[f.name] = scalar(f, i)
    return out


def whole(field: Field, i: int, depth: int = 3) -> Any:
    """An item with all fields that it may have, down to this depth; its lists and maps have one item."""
    message = field.message
    if message is None or message.custom_json is not None:
        return scalar(field, i)
    out: dict[str, Any] = {}
    for f in message.json_fields:
        if f.type_meta or not (depth or (f.card == "single" and (f.message is None or f.message.custom_json is not None))):
            continue
        value = whole(f, i, depth - 1)
        out[f.name] = value if f.card == "single" else [value] if f.card == "list" else {f"a{i}": value}
    return out


def keys_of(field: Field) -> tuple[str, ...]:
    """The merge keys of a list's items: items without them are not merged."""
    return field.list_map_keys or ((field.patch_merge_key,) if field.patch_merge_key else ())


def build(resource: Resource, path: tuple[Field, ...], value: Any) -> dict[str, Any]:
    for i in range(len(path) - 1, -1, -1):
        if i < len(path) - 1:
            inner = value
            if path[i].card == "list" and path[i].message is not None:
                inner = {k: scalar(path[i].message.by_name[k], 0) for k in keys_of(path[i])} | inner
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


def fresh(obj: dict[str, Any]) -> dict[str, Any]:
    """A deep copy."""
    out: dict[str, Any] = orjson.loads(orjson.dumps(obj))
    return out


def holder(grown: Grown, obj: dict[str, Any]) -> dict[str, Any]:
    """The part of ``obj`` that has the list or map that was grown."""
    at = obj
    for field in grown.path[:-1]:
        at = at[field.name]
        at = at[0] if field.card == "list" else at["a"] if field.card == "map" else at
    return at


def changed(grown: Grown, obj: dict[str, Any]) -> dict[str, Any]:
    """A copy of ``obj`` in which the list that was grown is reversed and every second item changed; of a map, every second key."""
    out = fresh(obj)
    at, name = holder(grown, out), grown.path[-1].name
    value = at[name]
    if isinstance(value, dict):
        at[name] = {f"{k}x" if i % 2 else k: v for i, (k, v) in enumerate(value.items())}
    else:
        at[name] = [_another(item) if i % 2 else item for i, item in enumerate(value)][::-1]
    return out


def _another(item: Any) -> Any:
    if isinstance(item, dict):
        return {k: _another(v) if isinstance(v, str) else v for k, v in item.items()}
    return f"{item}x" if isinstance(item, str) and item[:1] in "a-" else item  # no time and no quantity


# Changes what is stored.
REPLACED = ("distinct", "whole", "keys", "beside others")


def _ways(field: Field) -> dict[str, Callable[[int], Any]]:
    """The ways to grow a list or a map."""
    if field.card == "map":
        return {
            "keys": lambda n: {f"a{i}": element(field, i) for i in range(n)},
            "bad keys": lambda n: {f"-{i}/é": element(field, 1) for i in range(n)},
        }
    ways: dict[str, Callable[[int], Any]] = {
        "distinct": lambda n: [element(field, i) for i in range(n)], "twice": lambda n: [element(field, i // 2) for i in range(n)],
    }
    if field.message is not None and field.message.custom_json is None:
        ways["empty"] = lambda n: [{}] * n
        ways["whole"] = lambda n: [whole(field, i) for i in range(n)]
    elif field.message is None and field.type == "string":
        ways["bad"] = lambda n: [f"-{i}/é" for i in range(n)]
    return ways


# Texts that make patterns and parsers backtrack.
TEXTS_OF: dict[str, Callable[[int], str]] = {
    "bad": lambda n: "-É" * (n // 2), "digits": lambda n: "9" * n, "labels": lambda n: "a." * (n // 2),
    "spaces": lambda n: " " * n,
}
AT_ONCE = 48


def fields(resource: Resource, seen: set[tuple[str, str]]) -> Iterator[tuple[Field, ...]]:
    """The paths to lists, maps and texts that were not met before, the nearest first."""
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


def _beside(resource: Resource, paths: list[tuple[Field, ...]]) -> Grown:
    """All lists and maps of one message, grown at once."""
    def make(n: int) -> dict[str, Any]:
        obj: dict[str, Any] = {}
        for path in paths:
            grown = _ways(path[-1])
            obj = _merged(obj, build(resource, path, grown["keys" if path[-1].card == "map" else "distinct"](n)))
        return obj

    return Grown(resource, paths[0], "beside others", make)


def _texts(resource: Resource, paths: list[tuple[Field, ...]], how: str) -> Grown:
    def make(n: int) -> dict[str, Any]:
        obj: dict[str, Any] = {}
        for path in paths:
            obj = _merged(obj, build(resource, path, TEXTS_OF[how](max(1, 16 * n // len(paths)))))
        return obj

    return Grown(resource, paths[0], f"{how} in {len(paths)} texts", make)


def families() -> Iterator[Grown]:
    """All families, in a fixed order: pods first, whose types contain most others."""
    seen: set[tuple[str, str]] = set()
    newest = {(r.group, r.resource): r for r in reversed(BUILTIN.resources) if "create" in r.verbs}
    order = sorted(newest.values(), key=lambda r: (FIRST.index(r.resource) if r.group == "" and r.resource in FIRST else len(FIRST)))
    for resource in order:
        texts, beside = [], dict[tuple[Field, ...], list[tuple[Field, ...]]]()
        for path in fields(resource, seen):
            if path[-1].card == "single":
                texts.append(path)
                continue
            beside.setdefault(path[:-1], []).append(path)
            for how, value in _ways(path[-1]).items():
                yield Grown(resource, path, how, lambda n, resource=resource, path=path, value=value: build(resource, path, value(n)))
        for together in beside.values():
            if len(together) > 1:
                yield _beside(resource, together)
        for together in _together(texts):
            for how in TEXTS_OF:
                yield _texts(resource, together, how)


def _together(paths: list[tuple[Field, ...]]) -> Iterator[list[tuple[Field, ...]]]:
    """Texts that are grown at once: quantities are parsed before anything else is checked."""
    first = [path for path in paths if ".".join(f.name for f in path) in ASKED_FIRST]
    quantities = [path for path in paths if path[-1].message is not None and path[-1].message.kind_name == "Quantity"]
    others = [path for path in paths if path not in first and path not in quantities]
    yield from ([path] for path in first)
    for some in (quantities, others):
        yield from (some[i : i + AT_ONCE] for i in range(0, len(some), AT_ONCE))
