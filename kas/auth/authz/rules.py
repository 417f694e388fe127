"""Policy rules: does one allow a request, and do some cover others.

Pure functions over PolicyRule dicts; the behaviour of component-helpers' ``auth/rbac/validation`` (Covers, CompactRules)
and ``plugin/pkg/auth/authorizer/rbac`` (RuleAllows).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kas.api.field import go_quote
from kas.auth.attributes import Attributes

Rule = dict[str, Any]


class CompiledRule:
    """A PolicyRule prepared for matching. None instead of a set means "all"."""

    __slots__ = ("groups", "names", "resources", "source", "subresources", "url_prefixes", "urls", "verbs")

    def __init__(self, rule: Rule) -> None:
        self.source = rule
        self.verbs = _set_or_all(rule.get("verbs"))
        self.groups = _set_or_all(rule.get("apiGroups"))
        resources = rule.get("resources") or ()
        self.resources = _set_or_all(resources)
        # "*/scale" grants the subresource of every resource.
        self.subresources = frozenset(r[2:] for r in resources if r.startswith("*/"))
        names = rule.get("resourceNames")
        self.names = frozenset(names) if names else None
        urls = rule.get("nonResourceURLs") or ()
        self.urls = _set_or_all(urls)
        self.url_prefixes = tuple(u.rstrip("*") for u in urls if u.endswith("*"))

    def matches_resource(self, verb: str, group: str, resource: str, subresource: str) -> bool:
        """Everything but the name."""
        if self.verbs is not None and verb not in self.verbs:
            return False
        if self.groups is not None and group not in self.groups:
            return False
        if self.resources is None:
            return True
        if subresource:
            return f"{resource}/{subresource}" in self.resources or subresource in self.subresources
        return resource in self.resources

    def matches_path(self, verb: str, path: str) -> bool:
        if self.verbs is not None and verb not in self.verbs:
            return False
        return self.urls is None or path in self.urls or (bool(self.url_prefixes) and path.startswith(self.url_prefixes))

    def allows(self, a: Attributes) -> bool:
        if not a.resource_request:
            return self.matches_path(a.verb, a.path)
        if not self.matches_resource(a.verb, a.api_group, a.resource, a.subresource):
            return False
        return self.names is None or a.name in self.names


def _set_or_all(values: Iterable[str] | None) -> frozenset[str] | None:
    out = frozenset(values or ())
    return None if "*" in out else out


def rules_allow(a: Attributes, rules: Sequence[Rule]) -> bool:
    return any(CompiledRule(r).allows(a) for r in rules)


# --- does one set of rules cover another -----------------------------------------------------------------------------


def breakdown(rule: Rule) -> list[Rule]:
    """A rule as its atoms: one verb, one group, one resource and at most one name, or one verb and one path."""
    out: list[Rule] = []
    verbs, names = rule.get("verbs") or (), rule.get("resourceNames") or ()
    for group in rule.get("apiGroups") or ():
        for resource in rule.get("resources") or ():
            for verb in verbs:
                atom: Rule = {"verbs": [verb], "apiGroups": [group], "resources": [resource]}
                out.extend({**atom, "resourceNames": [n]} for n in names)
                if not names:
                    out.append(atom)
    for url in rule.get("nonResourceURLs") or ():
        out.extend({"verbs": [verb], "nonResourceURLs": [url]} for verb in verbs)
    return out


def covers(owner: Sequence[Rule], wanted: Sequence[Rule]) -> list[Rule]:
    """The atoms of ``wanted`` that no single rule of ``owner`` grants; empty when all is covered."""
    owners = [CompiledRule(r) for r in owner]
    return [atom for rule in wanted for atom in breakdown(rule) if not any(_rule_covers(o, atom) for o in owners)]


def _rule_covers(owner: CompiledRule, atom: Rule) -> bool:
    # "*" in the atom is an ordinary word here: only an owner's own "*" covers it.
    if owner.verbs is not None and atom["verbs"][0] not in owner.verbs:
        return False
    if "nonResourceURLs" in atom:
        # With no groups, resources and names in the atom, only the paths are left to compare, and the owner must not be narrowed by names.
        url = atom["nonResourceURLs"][0]
        urls = owner.source.get("nonResourceURLs") or ()
        return owner.names is None and any(o == url or (o.endswith("*") and url.startswith(o.rstrip("*"))) for o in urls)
    if owner.groups is not None and atom["apiGroups"][0] not in owner.groups:
        return False
    resource = atom["resources"][0]
    if owner.resources is not None and resource not in owner.resources:
        _, slash, sub = resource.partition("/")
        if not slash or sub not in owner.subresources:
            return False
    if owner.names is None:
        return True
    names: list[str] = atom.get("resourceNames") or []
    return bool(names) and names[0] in owner.names


def compact(rules: Iterable[Rule]) -> list[Rule]:
    """Joins rules that differ only in their verbs; simple ones follow the others."""
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
    """``{APIGroups:["apps"], Resources:["deployments"], Verbs:["get"]}``."""
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
    """Go's ``%q`` of a []string: ``["a" "b"]``."""
    return "[" + " ".join(go_quote(v) for v in values) + "]"
