"""Policy rules: do some cover others, and what they look like in a message.

Pure functions over PolicyRule dicts; the behaviour of component-helpers' ``auth/rbac/validation`` (Covers, CompactRules).
Whether a rule allows a request is the compiled ``PolicyRule``'s (``plugin/pkg/auth/authorizer/rbac``: RuleAllows).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kas._fastpath import Rule as PolicyRule
from kas.meta.field import go_quote

Rule = dict[str, Any]


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
    owners = [PolicyRule(r) for r in owner]
    return [atom for rule in wanted for atom in breakdown(rule) if not any(_rule_covers(o, atom) for o in owners)]


def _rule_covers(owner: PolicyRule, atom: Rule) -> bool:
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
