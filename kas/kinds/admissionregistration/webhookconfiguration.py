"""Strategies of the webhook configurations (upstream ``pkg/registry/admissionregistration/*webhookconfiguration``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kas.kinds.admissionregistration.staticnames import ConfigurationStrategy
from kas.kinds.admissionregistration.webhooks import FAILURE_POLICIES, MATCH_POLICIES, match_conditions, rule_with_operations
from kas.kinds.core.webhookclient import client_config
from kas.meta import field, names
from kas.meta.age import age
from kas.meta.checks import invalid_each, unsupported
from kas.meta.compilebudget import CompileBudget
from kas.meta.field import FieldError
from kas.meta.labelselectors import label_selector
from kas.meta.objectmeta import validate_object_meta
from kas.registry.printing.rows import printer
from kas.registry.strategy import Context, Obj, strategy_for

GROUP = "admissionregistration.k8s.io"
NO_SIDE_EFFECTS = ("None", "NoneOnDryRun")
SIDE_EFFECTS = ("None", "NoneOnDryRun", "Some", "Unknown")
REVIEW_VERSIONS = ("v1", "v1beta1")
REINVOCATION = ("IfNeeded", "Never")


@dataclass(slots=True)
class _Options:
    """What an update may leave as stored although it is no longer allowed."""

    no_side_effects: bool = True
    known_versions: bool = True
    unique_names: bool = True
    invalid_label_values: bool = False
    skip_match_conditions: bool = False


class _WebhookConfigurationStrategy(ConfigurationStrategy):
    costly = True  # conditions are expressions
    mutating = False

    def rules(self, obj: Obj) -> list[FieldError]:
        return self._validate(obj, _Options())

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        return self._validate(obj, _options(obj.get("webhooks") or [], old.get("webhooks") or []))

    def _validate(self, obj: Obj, options: _Options) -> list[FieldError]:
        errs = validate_object_meta(obj["metadata"], False, names.dns_subdomain)
        seen: set[str] = set()
        allowance = CompileBudget()
        for i, hook in enumerate(obj.get("webhooks") or ()):
            path = field.index("webhooks", i)
            errs += self._hook(hook, options, path, allowance)
            versions = hook.get("admissionReviewVersions") or []
            errs += review_versions(versions, options.known_versions, field.child(path, "admissionReviewVersions"))
            name = hook.get("name") or ""
            if options.unique_names and name:
                if name in seen:
                    errs.append(field.duplicate(field.child(path, "name"), name))
                seen.add(name)
        return errs

    def _hook(self, hook: dict[str, Any], options: _Options, path: str, allowance: CompileBudget) -> list[FieldError]:
        errs = names.fully_qualified_name(field.child(path, "name"), hook.get("name") or "")
        for i, rule in enumerate(hook.get("rules") or ()):
            errs += rule_with_operations(rule, field.index(field.child(path, "rules"), i))
        errs += _one_of(hook, "failurePolicy", FAILURE_POLICIES, path) + _one_of(hook, "matchPolicy", MATCH_POLICIES, path)
        allowed = NO_SIDE_EFFECTS if options.no_side_effects else SIDE_EFFECTS
        if hook.get("sideEffects") is None:
            errs.append(field.required(field.child(path, "sideEffects"), "must specify one of " + ", ".join(allowed)))
        errs += _one_of(hook, "sideEffects", allowed, path)
        timeout = hook.get("timeoutSeconds")
        if timeout is not None and not 1 <= timeout <= 30:
            text = "the timeout value must be between 1 and 30 seconds"
            errs.append(field.invalid(field.child(path, "timeoutSeconds"), timeout, text))
        for name in ("namespaceSelector", "objectSelector"):
            if hook.get(name) is not None:
                errs += label_selector(hook[name], field.child(path, name), options.invalid_label_values)
        if self.mutating:
            errs += _one_of(hook, "reinvocationPolicy", REINVOCATION, path)
        errs += client_config(field.child(path, "clientConfig"), hook.get("clientConfig") or {})
        if not options.skip_match_conditions:
            errs += match_conditions(hook.get("matchConditions"), field.child(path, "matchConditions"), allowance)
        return errs


@strategy_for(GROUP, "validatingwebhookconfigurations")
class ValidatingWebhookConfigurationStrategy(_WebhookConfigurationStrategy):
    """Webhooks that only allow or deny."""


@strategy_for(GROUP, "mutatingwebhookconfigurations")
class MutatingWebhookConfigurationStrategy(_WebhookConfigurationStrategy):
    """Webhooks that may change the object."""

    mutating = True


def _one_of(hook: dict[str, Any], name: str, allowed: tuple[str, ...], path: str) -> list[FieldError]:
    value = hook.get(name)
    return [] if value is None or value in allowed else [unsupported(field.child(path, name), value, allowed)]


def review_versions(versions: list[str], require_known: bool, path: str) -> list[FieldError]:
    """``validateAdmissionReviewVersions``: distinct DNS-1035 labels; with ``require_known`` one of them must be a supported version."""
    if not versions:
        return [field.required(path, "must specify one of " + ", ".join(REVIEW_VERSIONS))]
    errs: list[FieldError] = []
    seen: set[str] = set()
    for i, version in enumerate(versions):
        at = field.index(path, i)
        if version in seen:
            errs.append(field.invalid(at, version, "duplicate version"))
            continue
        seen.add(version)
        errs += invalid_each(at, version, names.is_dns1035_label(version))
    if require_known and not seen.intersection(REVIEW_VERSIONS):
        errs.append(field.invalid(path, versions, "must include at least one of " + ", ".join(REVIEW_VERSIONS)))
    return errs


def _options(new: list[dict[str, Any]], old: list[dict[str, Any]]) -> _Options:
    hook_names = [hook.get("name") or "" for hook in old]
    same_conditions = len(new) == len(old) and all(
        (a.get("matchConditions") or []) == (b.get("matchConditions") or []) for a, b in zip(new, old, strict=True)
    )
    selectors = [hook[name] for hook in old for name in ("namespaceSelector", "objectSelector") if hook.get(name) is not None]
    return _Options(
        no_side_effects=all(hook.get("sideEffects") in NO_SIDE_EFFECTS for hook in old),
        known_versions=all(
            not hook.get("admissionReviewVersions") or set(hook["admissionReviewVersions"]).intersection(REVIEW_VERSIONS) for hook in old
        ),
        unique_names=len(set(hook_names)) == len(hook_names),
        invalid_label_values=any(label_selector(selector, "") for selector in selectors),
        skip_match_conditions=same_conditions,
    )


@printer("admissionregistration.k8s.io", "MutatingWebhookConfiguration")
@printer("admissionregistration.k8s.io", "ValidatingWebhookConfiguration")
def webhook_configuration_row(obj: Obj, now: float) -> list[Any]:
    """The cells of a Table row: name, number of webhooks, age."""
    return [obj["metadata"].get("name", ""), len(obj.get("webhooks") or ()), age(obj, now)]
