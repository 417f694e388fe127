"""Validation of admission rules, match conditions and match resources (upstream ``pkg/apis/admissionregistration/validation``),
shared by webhook configurations and policies.
"""

from __future__ import annotations

from typing import Any

from kas.meta import field, names
from kas.meta.checks import invalid_each, qualified_name, unsupported
from kas.meta.compilebudget import CompileBudget
from kas.meta.field import FieldError
from kas.meta.labelselectors import label_selector

OPERATIONS = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
MUTATING_OPERATIONS = ("*", "CONNECT", "CREATE", "UPDATE")
SCOPES = ("*", "Cluster", "Namespaced")
FAILURE_POLICIES = ("Fail", "Ignore")
MATCH_POLICIES = ("Equivalent", "Exact")
MAX_MATCH_CONDITIONS = 64


# -- rules ---------------------------------------------------------------------------------------------------------------


def rule_with_operations(rule: dict[str, Any], path: str) -> list[FieldError]:
    """``validateRuleWithOperations``: known operations, "*" only alone, and the rule itself."""
    errs: list[FieldError] = []
    operations, at = rule.get("operations") or [], field.child(path, "operations")
    if not operations:
        errs.append(field.required(at))
    if len(operations) > 1 and "*" in operations:
        errs.append(field.invalid(at, operations, "if '*' is present, must not specify other operations"))
    for i, operation in enumerate(operations):
        if operation not in OPERATIONS:
            errs.append(unsupported(field.index(at, i), operation, OPERATIONS))
    return errs + _rule(rule, path)


def _rule(rule: dict[str, Any], path: str) -> list[FieldError]:
    errs: list[FieldError] = []
    for name, words in (("apiGroups", "API groups"), ("apiVersions", "API versions")):
        values, at = rule.get(name) or [], field.child(path, name)
        if not values:
            errs.append(field.required(at))
        if len(values) > 1 and "*" in values:
            errs.append(field.invalid(at, values, f"if '*' is present, must not specify other {words}"))
        if name == "apiVersions":  # the group may be empty, the version may not
            errs += [field.required(field.index(at, i)) for i, version in enumerate(values) if not version]
    errs += _resources(rule.get("resources") or [], field.child(path, "resources"))
    scope = rule.get("scope")
    if scope is not None and scope not in SCOPES:
        errs.append(unsupported(field.child(path, "scope"), scope, SCOPES))
    return errs


def _resources(resources: list[str], path: str) -> list[FieldError]:
    errs = [] if resources else [field.required(path)]
    all_subresources: set[str] = set()  # x/*
    all_resources: set[str] = set()  # */x
    plain = False
    for i, text in enumerate(resources):
        at = field.index(path, i)
        if not text:
            errs.append(field.required(at))
            continue
        resource, slash, sub = text.partition("/")
        if not slash:
            plain = text != "*"
            continue
        if resource in all_subresources:
            errs.append(field.invalid(at, text, f"if '{resource}/*' is present, must not specify {text}"))
        if sub in all_resources:
            errs.append(field.invalid(at, text, f"if '*/{sub}' is present, must not specify {text}"))
        if sub == "*":
            all_subresources.add(resource)
        if resource == "*":
            all_resources.add(sub)
    if len(resources) > 1 and "*/*" in resources:
        errs.append(field.invalid(path, resources, "if '*/*' is present, must not specify other resources"))
    if "*" in resources and plain:
        errs.append(field.invalid(path, resources, "if '*' is present, must not specify other resources without subresources"))
    return errs


# -- matching ------------------------------------------------------------------------------------------------------------


def match_conditions(items: list[dict[str, Any]] | None, path: str, allowance: CompileBudget, params: bool = False) -> list[FieldError]:
    """Validate match conditions; ``params``: whether the expressions may use ``params``."""
    errs: list[FieldError] = []
    items = items or []
    if len(items) > MAX_MATCH_CONDITIONS:
        errs.append(field.too_many(path, len(items), MAX_MATCH_CONDITIONS))
    seen: set[str] = set()
    for i, item in enumerate(items):
        at = field.index(path, i)
        name = item.get("name") or ""
        expression = (item.get("expression") or "").strip(field.GO_SPACE)
        if not expression:
            errs.append(field.required(field.child(at, "expression")))
        else:
            from kas.cel.expressions import condition  # most servers never need this

            errs += condition(expression, field.child(at, "expression"), params, allowance)
        errs += qualified_name(name, field.child(at, "name")) if name else [field.required(field.child(at, "name"))]
        if name and name in seen:
            errs.append(field.duplicate(field.child(at, "name"), name))
        seen.add(name)
    return errs


def match_resources(match: dict[str, Any] | None, path: str) -> list[FieldError]:
    """Validate MatchResources of policies and bindings; selectors are validated strictly."""
    if match is None:
        return []
    errs: list[FieldError] = []
    policy = match.get("matchPolicy")
    if policy is None:
        errs.append(field.required(field.child(path, "matchPolicy")))
    elif policy not in MATCH_POLICIES:
        errs.append(unsupported(field.child(path, "matchPolicy"), policy, MATCH_POLICIES))
    for name in ("namespaceSelector", "objectSelector"):
        if match.get(name) is None:
            errs.append(field.required(field.child(path, name)))
        else:
            errs += label_selector(match[name], field.child(path, name))
    for name in ("resourceRules", "excludeResourceRules"):
        for i, rule in enumerate(match.get(name) or ()):
            errs += _named_rule(rule, field.index(field.child(path, name), i))
    return errs


def mutating_operations(match: dict[str, Any] | None, path: str) -> list[FieldError]:
    """Check a mutating policy's operations: deletions cannot be mutated. The path names no rule, as upstream's."""
    at = field.child(path, "resourceRules", "operations")
    asked = [op for rule in (match or {}).get("resourceRules") or () for op in rule.get("operations") or ()]
    return [unsupported(at, op, MUTATING_OPERATIONS) for op in asked if op not in MUTATING_OPERATIONS]


def _named_rule(rule: dict[str, Any], path: str) -> list[FieldError]:
    errs: list[FieldError] = []
    seen: set[str] = set()
    for i, name in enumerate(rule.get("resourceNames") or ()):
        at = field.index(field.child(path, "resourceNames"), i)
        errs += invalid_each(at, name, names.is_path_segment_name(name))
        if name in seen:
            errs.append(field.duplicate(at, name))
        seen.add(name)
    return errs + rule_with_operations(rule, path)
