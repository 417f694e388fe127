"""ResourceQuotas (upstream ``pkg/registry/core/resourcequota``, ``pkg/apis/core/validation``)."""

from __future__ import annotations

from typing import Any

from kas.kinds.core.objectmeta import object_meta, object_meta_update
from kas.kinds.core.pod.defaults import round_up
from kas.kinds.core.resources import is_standard_quota_resource, quota_resource_name, resource_map
from kas.meta import field, names, quantity
from kas.meta.age import age
from kas.meta.field import FieldError
from kas.registry.printing.cells import part
from kas.registry.printing.rows import printer
from kas.registry.strategy import Context, Obj, Strategy, strategy_for
from kas.types.defaults import defaults_for
from kas.types.gostruct import render

SCOPES = frozenset(
    {
        "Terminating", "NotTerminating", "BestEffort", "NotBestEffort", "PriorityClass", "CrossNamespacePodAffinity",
        "VolumeAttributesClass",
    }
)  # fmt: skip
_COMPUTE = frozenset({"cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory"})
_POD_SCOPES = SCOPES - {"BestEffort", "VolumeAttributesClass"}
_EXISTS_ONLY = frozenset({"BestEffort", "NotBestEffort", "Terminating", "NotTerminating", "CrossNamespacePodAffinity"})
_EXISTS_MESSAGE = (
    "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, "
    "ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"
)
MISFIT = "unsupported scope applied to resource"
_CONFLICTS = (("BestEffort", "NotBestEffort"), ("Terminating", "NotTerminating"))


def _fits(scope: str, resource: str) -> bool:
    """Whether a quota of this scope can count the resource; unknown scopes are reported elsewhere."""
    if scope in _POD_SCOPES:
        return resource == "pods" or resource in _COMPUTE
    if scope == "BestEffort":
        return resource == "pods"
    if scope == "VolumeAttributesClass":
        return resource in ("persistentvolumeclaims", "requests.storage")
    return True


def _uncounted(spec: dict[str, Any]) -> dict[str, int]:
    """Return for each scope how many of the quota's standard resources it cannot count."""
    standard = [name for name in spec.get("hard") or () if is_standard_quota_resource(name)]
    return {scope: sum(not _fits(scope, name) for name in standard) for scope in SCOPES}


def _scopes(spec: dict[str, Any]) -> list[FieldError]:
    scopes = spec.get("scopes") or []
    errs: list[FieldError] = []
    misfits = _uncounted(spec)
    for scope in scopes:
        if scope not in SCOPES:
            errs.append(field.invalid("spec.scopes", scopes, "unsupported scope"))
        errs += [field.invalid("spec.scopes", scopes, MISFIT)] * misfits.get(scope, 0)
    for pair in _CONFLICTS:
        if all(scope in scopes for scope in pair):
            errs.append(field.invalid("spec.scopes", scopes, "conflicting scopes"))
    return errs


def _selector(spec: dict[str, Any]) -> list[FieldError]:
    selector, path = spec.get("scopeSelector"), "spec.scopeSelector.matchExpressions"
    if selector is None:
        return []
    errs: list[FieldError] = []
    seen: set[str] = set()
    misfits, shown = _uncounted(spec), render("core.ScopeSelector", selector)
    for term in selector.get("matchExpressions") or ():
        scope, operator, values = term.get("scopeName") or "", term.get("operator") or "", term.get("values") or []
        if scope not in SCOPES:
            errs.append(field.invalid(f"{path}.scopeName", scope, "unsupported scope"))
        errs += [field.invalid(path, shown, MISFIT)] * misfits.get(scope, 0)
        if scope in _EXISTS_ONLY and operator != "Exists":
            errs.append(field.invalid(f"{path}.operator", operator, _EXISTS_MESSAGE))
        if operator in ("In", "NotIn"):
            if not values:
                message = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
                errs.append(field.required(f"{path}.values", message))
        elif operator in ("Exists", "DoesNotExist"):
            if values:
                message = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"
                errs.append(field.invalid(f"{path}.values", values, message))
        else:
            errs.append(field.invalid(f"{path}.operator", operator, "not a valid selector operator"))
        seen.add(scope)
    for pair in _CONFLICTS:
        if seen.issuperset(pair):
            errs.append(field.invalid(path, spec.get("scopes"), "conflicting scopes"))
    return errs


def _spec(spec: dict[str, Any]) -> list[FieldError]:
    return resource_map(spec.get("hard"), quota_resource_name, "spec.hard") + _scopes(spec) + _selector(spec)


def _status(status: dict[str, Any]) -> list[FieldError]:
    errs = resource_map(status.get("hard"), quota_resource_name, "status.hard")
    return errs + resource_map(status.get("used"), quota_resource_name, "status.used")


def _warnings(hard: dict[str, str]) -> list[str]:
    """Return a warning for each resource whose requests exceed its limits."""
    out = []
    for name in ("cpu", "memory", "storage", "ephemeral-storage"):
        requests, limits = f"requests.{name}", f"limits.{name}"
        if requests not in hard and name in ("cpu", "memory"):
            requests = name
        if requests in hard and limits in hard:
            asked, most = quantity.parse(hard[requests]), quantity.parse(hard[limits])
            if asked > most:
                out.append(f"ResourceQuota {requests} ({asked}) should be less than {limits} ({most})")
    return out


@strategy_for("", "resourcequotas")
class ResourceQuotaStrategy(Strategy):
    """A quota's scopes are immutable, its limits are not."""

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        """``ValidateResourceQuota``, the status included."""
        errs = object_meta(obj["metadata"], True, names.dns_subdomain)
        return errs + _spec(obj.get("spec") or {}) + _status(obj.get("status") or {})

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """``ValidateResourceQuotaUpdate``: the set of scopes may not change."""
        spec = obj.get("spec") or {}
        errs = object_meta_update(obj["metadata"], old["metadata"]) + _spec(spec)
        if set(spec.get("scopes") or ()) != set((old.get("spec") or {}).get("scopes") or ()):
            errs.append(field.invalid("spec.scopes", spec.get("scopes"), "field is immutable"))
        return errs

    def validate_status_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """``ValidateResourceQuotaStatusUpdate``: metadata, which needs a resourceVersion, and the status."""
        errs = object_meta_update(obj["metadata"], old["metadata"])
        if not obj["metadata"].get("resourceVersion"):
            errs.append(field.required("resourceVersion"))
        return errs + _status(obj.get("status") or {})

    def warnings_on_create(self, ctx: Context, obj: Obj) -> list[str]:
        """Return a warning for each resource whose hard requests exceed its hard limits."""
        return _warnings((obj.get("spec") or {}).get("hard") or {})


@defaults_for("", "v1", "ResourceQuota")
def default_resource_quota(obj: Obj) -> None:
    """Computed defaults: quantities are rounded up to thousandths."""
    round_up((obj.get("spec") or {}).get("hard"))
    round_up((obj.get("status") or {}).get("hard"))
    round_up((obj.get("status") or {}).get("used"))


def _quota(hard: dict[str, str], used: dict[str, str], limits: bool) -> str:
    names = sorted(name for name in hard if name.startswith("limits.") == limits)
    return ", ".join(f"{name}: {used.get(name, '0')}/{hard[name]}" for name in names)


@printer("", "ResourceQuota")
def resource_quota_row(obj: Obj, now: float) -> list[Any]:
    """The cells of a Table row: name, requests and limits as "name: used/hard" pairs, age."""
    hard, used = part(obj, "status", "hard"), part(obj, "status", "used")
    return [obj["metadata"].get("name", ""), _quota(hard, used, False), _quota(hard, used, True), age(obj, now)]
