"""A role prepared for decisions: its rules, indexed by resource and path.

``pkg/registry/rbac/validation/rule.go``. All rules of a role give the same reason, so for one kind of request a role reduces to the set
of names it allows; the order of its rules does not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kas.meta.offload import LARGE
from kas.meta.records import NamedTuple

Rule = dict[str, Any]
_OF_RESOURCES, _OF_PATHS = ("verbs", "apiGroups", "resources", "resourceNames"), ("verbs", "nonResourceURLs")


class _Found(NamedTuple):
    """A role's rules: all of them; by resource as written ("pods", "pods/log", "*/scale", "*"); those about paths, by path and by the
    prefix before a "*"."""

    rules: list[Rule]
    resources: dict[str, list[Rule]]
    paths: dict[str, list[Rule]]
    prefixes: dict[str, list[Rule]]


class Role:
    """The rules that ``load`` returns, read on first use: most roles of a cluster do not concern the requester. ``length`` is their size
    in bytes."""

    __slots__ = ("_found", "_length", "_listed", "_load")

    def __init__(self, load: Callable[[], Sequence[Rule]], length: int = 0) -> None:
        self._load: Callable[[], Sequence[Rule]] | None = load
        self._length = length
        self._found: _Found | None = None
        self._listed: tuple[list[Rule], list[Rule]] | None = None

    def prepare(self) -> _Found:
        """Read the rules. Thread-safe: concurrent calls compute equal results."""
        load, found = self._load, self._found  # in this order: another thread sets _found before it clears _load
        if found is not None:
            return found
        assert load is not None
        rules = list(load())
        found = _Found(rules, {}, {}, {})
        for rule in rules:
            for resource in rule.get("resources") or ():
                _add(found.resources, resource, rule)
            for url in rule.get("nonResourceURLs") or ():
                _add(found.paths, url, rule)
                if url.endswith("*"):
                    _add(found.prefixes, url.rstrip("*"), rule)
        self._found = found
        self._load = None
        return found

    @property
    def unread(self) -> int:
        """The size in bytes of the rules if they are still to be read, else 0."""
        return self._length if self._found is None else 0

    def parts(self) -> list[Any]:
        """Return the parsed data in a new list; empty if the role is smaller than ``LARGE``."""
        found = self._found
        return [] if found is None or self._length < LARGE else [*found, *(self._listed or ())]

    @property
    def rules(self) -> list[Rule]:
        """All rules as stored; do not modify them."""
        return self.prepare().rules

    def listed(self) -> tuple[list[Rule], list[Rule]]:
        """Return the rules as the function ``listed`` does, computed once per role; do not modify them."""
        if self._listed is None:
            self._listed = listed(self.rules)
        return self._listed

    def names(self, verb: str, group: str, resource: str, subresource: str) -> frozenset[str] | None:
        """Return the resource names that such requests may access: None for all, empty for none."""
        by = self.prepare().resources
        wanted = (f"{resource}/{subresource}", f"*/{subresource}", "*") if subresource else (resource, "*")
        found: set[str] = set()
        for key in wanted:
            for rule in by.get(key, ()):
                if _has(rule.get("verbs"), verb) and _has(rule.get("apiGroups"), group):
                    names = rule.get("resourceNames")
                    if not names:
                        return None
                    found.update(names)
        return frozenset(found)

    def allows_path(self, verb: str, path: str) -> bool:
        """Return whether a rule allows the verb on the path."""
        known = self.prepare()
        if any(_has(rule.get("verbs"), verb) for key in (path, "*") for rule in known.paths.get(key, ())):
            return True
        return any(_has(rule.get("verbs"), verb) for key in beginnings(known.prefixes, path) for rule in known.prefixes[key])


def listed(rules: Sequence[Rule]) -> tuple[list[Rule], list[Rule]]:
    """Return (resource rules, non-resource rules) as a rules review shows them. A rule may be in both."""
    about_resources = [{f: r[f] for f in _OF_RESOURCES if r.get(f)} for r in rules if r.get("resources")]
    return about_resources, [{f: r[f] for f in _OF_PATHS if r.get(f)} for r in rules if r.get("nonResourceURLs")]


def beginnings(prefixes: dict[str, Any], text: str) -> list[str]:
    """Return the ``prefixes`` that ``text`` starts with, found by length or one by one, whichever takes fewer steps."""
    if len(prefixes) <= len(text):
        return [p for p in prefixes if text.startswith(p)]
    return [p for n in range(len(text) + 1) if (p := text[:n]) in prefixes]


def _add(by: dict[str, list[Rule]], key: str, rule: Rule) -> None:
    found = by.get(key)
    if found is None:
        by[key] = [rule]
    elif found[-1] is not rule:
        found.append(rule)


def _has(values: Sequence[str] | None, value: str) -> bool:
    return bool(values) and (value in values or "*" in values)  # type: ignore[operator]
