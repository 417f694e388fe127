"""Strategies of the admission policy bindings (upstream ``pkg/registry/admissionregistration/*policybinding``)."""

from __future__ import annotations

from typing import Any

from kas.kinds.admissionregistration.staticnames import ConfigurationStrategy
from kas.kinds.admissionregistration.webhooks import match_resources, mutating_operations
from kas.meta import field, names
from kas.meta.age import age
from kas.meta.checks import dns_subdomain, invalid_each, unsupported
from kas.meta.field import FieldError
from kas.meta.labelselectors import label_selector
from kas.meta.objectmeta import validate_object_meta
from kas.registry.printing.cells import UNSET, part
from kas.registry.printing.rows import printer
from kas.registry.strategy import Context, Obj, strategy_for

GROUP = "admissionregistration.k8s.io"
ACTIONS = ("Audit", "Deny", "Warn")
NOT_FOUND_ACTIONS = ("Deny", "Allow")


class _BindingStrategy(ConfigurationStrategy):
    def rules(self, obj: Obj) -> list[FieldError]:
        errs = validate_object_meta(obj["metadata"], False, names.dns_subdomain)
        spec = obj.get("spec") or {}
        name = spec.get("policyName") or ""
        errs += dns_subdomain(name, "spec.policyName") if name else [field.required("spec.policyName")]
        errs += _param_ref(spec.get("paramRef"), "spec.paramRef")
        return errs + match_resources(spec.get("matchResources"), "spec.matchResources")

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        return self.rules(obj)


@strategy_for(GROUP, "validatingadmissionpolicybindings")
class ValidatingAdmissionPolicyBindingStrategy(_BindingStrategy):
    """Bindings of validating policies, which also say what a failed validation causes."""

    def rules(self, obj: Obj) -> list[FieldError]:
        """``ValidateValidatingAdmissionPolicyBinding``: the rules of both kinds of binding, and of validationActions."""
        return super().rules(obj) + _actions((obj.get("spec") or {}).get("validationActions"), "spec.validationActions")


@strategy_for(GROUP, "mutatingadmissionpolicybindings")
class MutatingAdmissionPolicyBindingStrategy(_BindingStrategy):
    """Bindings of mutating policies, which have no actions."""

    def rules(self, obj: Obj) -> list[FieldError]:
        """``ValidateMutatingAdmissionPolicyBinding``: the rules of both kinds of binding, and operations that allow a mutation."""
        return super().rules(obj) + mutating_operations((obj.get("spec") or {}).get("matchResources"), "spec.matchResources")


def _actions(actions: list[str] | None, path: str) -> list[FieldError]:
    errs: list[FieldError] = []
    seen: set[str] = set()
    for i, action in enumerate(actions or ()):
        if action not in ACTIONS:
            errs.append(unsupported(field.index(path, i), action, ACTIONS))
        if action in seen:
            errs.append(field.duplicate(field.index(path, i), action))
        seen.add(action)
    if {"Deny", "Warn"} <= seen:
        text = (
            "must not contain both Deny and Warn (repeating the same validation failure information in the API response and "
            "headers serves no purpose)"
        )
        errs.append(field.invalid(path, actions, text))
    if not seen:
        errs.append(field.required(path, "at least one validation action is required"))
    return errs


def _param_ref(ref: dict[str, Any] | None, path: str) -> list[FieldError]:
    if ref is None:
        return []
    errs: list[FieldError] = []
    name, selector, both = ref.get("name") or "", ref.get("selector"), "name and selector are mutually exclusive"
    if name:
        errs += invalid_each(field.child(path, "name"), name, names.is_path_segment_name(name))
        if selector is not None:
            errs.append(field.forbidden(field.child(path, "name"), both))
    if selector is not None:
        errs += label_selector(selector, field.child(path, "selector"))
        if name:
            errs.append(field.forbidden(field.child(path, "selector"), both))
    if not name and selector is None:
        errs.append(field.required(path, "one of name or selector must be specified"))
    action, at = ref.get("parameterNotFoundAction") or "", field.child(path, "parameterNotFoundAction")
    if not action:
        errs.append(field.required(at))
    elif action not in NOT_FOUND_ACTIONS:
        errs.append(unsupported(at, action, NOT_FOUND_ACTIONS))
    return errs


def _selector_dump(selector: Obj) -> str:
    """Format a LabelSelector as its generated Go ``String`` method does, whose text this column prints."""
    pairs = "".join(f"{k}: {v}," for k, v in sorted((selector.get("matchLabels") or {}).items()))
    expressions = "".join(
        f"LabelSelectorRequirement{{Key:{e.get('key', '')},Operator:{e.get('operator', '')},Values:[{' '.join(e.get('values') or ())}],}},"
        for e in selector.get("matchExpressions") or ()
    )
    return f"&LabelSelector{{MatchLabels:map[string]string{{{pairs}}},MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"


@printer("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding")
@printer("admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding")
def admission_policy_binding_row(obj: Obj, now: float) -> list[Any]:
    """The cells of a Table row: name, policy, parameters (``namespace/name``, or the selector as Go prints it), age."""
    spec, text = part(obj, "spec"), UNSET
    ref = spec.get("paramRef") or {}
    if ref.get("name"):
        # Whether the parameter is namespaced is unknown here, so without a namespace "*" is printed.
        text = f"{ref.get('namespace') or '*'}/{ref['name']}"
    elif ref.get("selector") is not None:
        text = _selector_dump(ref["selector"])
    return [obj["metadata"].get("name", ""), spec.get("policyName", ""), text, age(obj, now)]
