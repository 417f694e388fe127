"""Resources that may only be used if a quota covers them (``limitedResources`` of ResourceQuotaConfiguration)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kas.admission import Attributes
from kas.admission.configuration import Section, versioned
from kas.admission.pods import Amounts
from kas.admission.quota_usage import OPERATORS, Evaluator, scopes_of
from kas.meta.errors import ApiError
from kas.meta.field import FieldError, invalid, not_supported, required
from kas.meta.quantity import Quantity
from kas.types.configfile import STRING, Struct, check

Obj = dict[str, Any]
_SHAPE = Struct("ResourceQuotaConfiguration", {"limitedResources": [Struct("LimitedResource", {
    "apiGroup": STRING, "resource": STRING, "matchContains": [STRING],
    "matchScopes": [Struct("ScopedResourceSelectorRequirement", {"scopeName": STRING, "operator": STRING, "values": [STRING]})],
})]})  # fmt: skip
KINDS = {
    ("apiserver.config.k8s.io/v1", "ResourceQuotaConfiguration"): _SHAPE,
    ("resourcequota.admission.k8s.io/v1beta1", "Configuration"): _SHAPE,
    ("resourcequota.admission.k8s.io/v1alpha1", "Configuration"): _SHAPE,
}
ZERO = Quantity(0)
# Scopes with operator and values, and all scopes.
VALUED = ("PriorityClass", "VolumeAttributesClass")
SCOPES = (*VALUED, "BestEffort", "CrossNamespacePodAffinity", "NotBestEffort", "NotTerminating", "Terminating")


class Limited:
    """The configuration; false if nothing is limited."""

    def __init__(self, section: Section | None) -> None:
        """Decode and validate the section. Raises ConfigurationError."""
        self._rules = versioned(section, KINDS).get("limitedResources") or []
        check(found for i, rule in enumerate(self._rules) for found in _wrong(rule, f"limitedResources[{i}]"))

    def __bool__(self) -> bool:
        return bool(self._rules)

    def check(self, a: Attributes, evaluator: Evaluator, usage: Amounts, quotas: Iterable[Obj], covering: Iterable[Obj]) -> None:
        """Refuse a use of limited resources that no quota covers. ``quotas`` are all of the namespace, ``covering`` those that apply to
        the object. Raises ApiError."""
        covered = {name for quota in covering for name in evaluator.matching((quota.get("status") or {}).get("hard") or {})}
        missing = {
            name
            for rule in self._rules
            if (rule.get("apiGroup") or "", rule["resource"]) == (a.group, a.resource)
            for name, need in usage.items()
            if need > ZERO and name not in covered and any(part in name for part in rule.get("matchContains") or ())
        }
        if missing:
            raise a.forbid(f"insufficient quota to consume: {','.join(sorted(missing))}")
        # Scopes apply whatever the rule's resource is.
        wanted = [scope for rule in self._rules for scope in rule.get("matchScopes") or () if evaluator.in_scope(scope, a.obj)]
        if not wanted:
            return
        there = {scope.get("scopeName") for quota in quotas for scope in scopes_of(quota) if evaluator.in_scope(scope, a.obj)}
        open_ = [scope for scope in wanted if scope.get("scopeName") not in there]
        if open_:
            # Upstream gives a bare error here, which the client sees as a 500.
            raise ApiError(500, "", f"insufficient quota to match these scopes: [{' '.join(map(_shown, open_))}]")


def _wrong(rule: Obj, path: str) -> Iterable[FieldError]:
    if not rule.get("resource"):
        yield required(f"{path}.resource")
    # Upstream detects these errors only at a request, which then bypasses every quota.
    for i, scope in enumerate(rule.get("matchScopes") or ()):
        at, name, operator = f"{path}.matchScopes[{i}]", scope.get("scopeName") or "", scope.get("operator") or ""
        if name not in SCOPES:
            yield not_supported(f"{at}.scopeName", name, list(SCOPES))
        elif operator not in OPERATORS and (operator or name in VALUED):
            yield not_supported(f"{at}.operator", operator, list(OPERATORS))
        elif operator in ("In", "NotIn") and not scope.get("values"):
            yield required(f"{at}.values", "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector")
        elif operator not in ("In", "NotIn") and scope.get("values"):
            why = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"
            yield invalid(f"{at}.values", scope["values"], why)


def _shown(scope: Obj) -> str:
    """Return the scope as Go prints the struct."""
    return f"{{{scope.get('scopeName') or ''} {scope.get('operator') or ''} [{' '.join(scope.get('values') or ())}]}}"
