"""Policy rules: whether one set covers another, and their text in messages.

Pure functions over PolicyRule dicts; the behaviour of component-helpers' ``auth/rbac/validation`` (Covers, CompactRules). ``roles``
decides whether a role allows a request.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from kas.auth.authz.roles import beginnings
from kas.meta.field import go_quote

Rule = dict[str, Any]


# --- does one set of rules cover another -----------------------------------------------------------------------------

MOST_STEPS = 1_000_000  # steps of the search, about half a second; clusters need some thousand
MOST_MISSING = 10_000  # missing atoms that are reported


class TooManyError(Exception):
    """The comparison takes too long."""


class _Held:
    """The rules a user holds, indexed. A "*" in the wanted rules is an ordinary value: only a held "*" covers it."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.left = MOST_STEPS
        self._rules: list[Rule] = []
        self._verbs, self._groups, self._resources = (dict[str, set[int]]() for _ in range(3))
        self._urls, self._prefixes = dict[str, set[int]](), dict[str, set[int]]()
        self._known: dict[tuple[str, str, str], frozenset[str] | None] = {}
        for i, rule in enumerate(rules):
            self._rules.append(rule)
            for values, by in (("verbs", self._verbs), ("apiGroups", self._groups), ("resources", self._resources)):
                for value in rule.get(values) or ():
                    by.setdefault(value, set()).add(i)
            if not rule.get("resourceNames"):  # resource names do not apply to paths
                for url in rule.get("nonResourceURLs") or ():
                    self._urls.setdefault(url, set()).add(i)
                    if url.endswith("*"):
                        self._prefixes.setdefault(url.rstrip("*"), set()).add(i)

    def spend(self, steps: int) -> None:
        """Use up steps. Raises TooManyError if none are left."""
        self.left -= steps
        if self.left < 0:
            raise TooManyError

    def names(self, verb: str, group: str, resource: str) -> frozenset[str] | None:
        """Return the names the user may grant: None for all (with or without a name), empty for none."""
        key = (verb, group, resource)
        if key in self._known:
            return self._known[key]
        _, slash, sub = resource.partition("/")
        dimensions = [
            _sets(self._verbs, verb, "*"), _sets(self._groups, group, "*"),
            _sets(self._resources, resource, "*", *((f"*/{sub}",) if slash and sub else ())),
        ]  # fmt: skip
        dimensions.sort(key=lambda sets: sum(map(len, sets)))
        first, *others = dimensions
        found: frozenset[str] | None
        names: set[str] = set()
        for members in first:
            self.spend(1 + len(members))
            for i in members:
                if all(any(i in s for s in sets) for sets in others):
                    said = self._rules[i].get("resourceNames")
                    if not said:
                        self._known[key] = None
                        return None
                    self.spend(len(said))
                    names.update(said)
        found = self._known[key] = frozenset(names)
        return found

    def has_path(self, verb: str, url: str) -> bool:
        """Return whether one rule allows the verb on the path."""
        verbs = _sets(self._verbs, verb, "*")
        self.spend(1 + min(len(url), len(self._prefixes)))
        for rules in (*_sets(self._urls, url), *(self._prefixes[p] for p in beginnings(self._prefixes, url))):
            self.spend(len(rules))
            if any(i in s for s in verbs for i in rules):
                return True
        return False


def _sets(by: dict[str, set[int]], *keys: str) -> list[set[int]]:
    return [by[key] for key in dict.fromkeys(keys) if key in by]


def covers(owner: Iterable[Rule], wanted: Iterable[Rule]) -> list[Rule]:
    """Return the atoms of ``wanted`` that no single rule of ``owner`` grants, at most ``MOST_MISSING``; empty if all are covered.

    An atom is one verb, one group, one resource and at most one name, or one verb and one path. Raises TooManyError.
    """
    held = _Held(owner)
    return list(islice(_missing(held, wanted), MOST_MISSING))


def _missing(held: _Held, wanted: Iterable[Rule]) -> Iterator[Rule]:
    for rule in wanted:
        verbs, names = rule.get("verbs") or (), rule.get("resourceNames") or ()
        for group in rule.get("apiGroups") or ():
            for resource in rule.get("resources") or ():
                for verb in verbs:
                    held.spend(1)
                    allowed = held.names(verb, group, resource)
                    if allowed is None:
                        continue
                    atom: Rule = {"verbs": [verb], "apiGroups": [group], "resources": [resource]}
                    held.spend(len(names))
                    yield from ({**atom, "resourceNames": [n]} for n in names if n not in allowed)
                    if not names:
                        yield atom
        for url in rule.get("nonResourceURLs") or ():
            yield from ({"verbs": [verb], "nonResourceURLs": [url]} for verb in verbs if not held.has_path(verb, url))


def compact(rules: Iterable[Rule]) -> list[Rule]:
    """Merge simple rules that differ only in their verbs; they follow the other rules."""
    rest: list[Rule] = []
    simple: dict[tuple, Rule] = {}
    for rule in rules:
        names = rule.get("resourceNames") or []
        groups, resources = rule.get("apiGroups") or [], rule.get("resources") or []
        if rule.get("nonResourceURLs") or len(names) > 1 or len(groups) != 1 or len(resources) != 1:
            rest.append(rule)
            continue
        key = (groups[0], resources[0], names[0] if names else None)
        if key in simple:
            simple[key]["verbs"].extend(rule.get("verbs") or ())
        else:
            simple[key] = {**rule, "verbs": list(rule.get("verbs") or ())}
    return [*rest, *simple.values()]


def describe(rule: Rule) -> str:
    """Return a rule as ``{APIGroups:["apps"], Resources:["deployments"], Verbs:["get"]}``."""
    parts = []
    for title, field in _DESCRIBED:
        values = rule.get(field)
        if values:
            parts.append(f"{title}:{go_list(values)}")
    return "{" + ", ".join(parts) + "}"


_DESCRIBED = (
    ("APIGroups", "apiGroups"), ("Resources", "resources"), ("NonResourceURLs", "nonResourceURLs"),
    ("ResourceNames", "resourceNames"), ("Verbs", "verbs"),
)  # fmt: skip


def go_list(values: Iterable[str]) -> str:
    """Return Go's ``%q`` of a []string: ``["a" "b"]``."""
    return "[" + " ".join(go_quote(v) for v in values) + "]"
