"""Validation of scheduling fields: node and pod affinity, tolerations, topology spread (``pkg/apis/core/validation``)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kas.config import features
from kas.meta import cached, field, names
from kas.meta.checks import unsupported
from kas.meta.field import FieldError
from kas.meta.labelselectors import label_name, label_selector
from kas.meta.scalars import int64
from kas.types.scheme import DecodeError

if TYPE_CHECKING:
    from kas.kinds.core.pod.options import Options

Term = Mapping[str, Any]
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
WEIGHT = "must be in the range 1-100"
COMPARISONS = ("Lt", "Gt")
_DECIMAL = re.compile("0|-?[1-9][0-9]*")
TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


# -- nodes -------------------------------------------------------------------------------------------------------------


def _node_expression(term: Term, allow_invalid_values: bool, path: str) -> list[FieldError]:
    operator, values = term.get("operator") or "", term.get("values") or ()
    errs: list[FieldError] = []
    if operator in ("In", "NotIn"):
        if not values:
            errs.append(field.required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            message = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            errs.append(field.forbidden(f"{path}.values", message))
    elif operator in ("Gt", "Lt"):
        if len(values) != 1:
            errs.append(field.required(f"{path}.values", "must be specified single value when `operator` is 'Lt' or 'Gt'"))
    else:
        errs.append(field.invalid(f"{path}.operator", operator, "not a valid selector operator"))
    errs += label_name(term.get("key") or "", f"{path}.key")
    if not allow_invalid_values:
        for i, value in enumerate(values):
            errs += [field.invalid(f"{path}.values[{i}]", value, m) for m in cached.label_value(value)]
    return errs


def _node_field(term: Term, path: str) -> list[FieldError]:
    operator, values, key = term.get("operator") or "", term.get("values") or (), term.get("key") or ""
    errs: list[FieldError] = []
    if operator in ("In", "NotIn"):
        if len(values) != 1:
            message = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
            errs.append(field.required(f"{path}.values", message))
    else:
        errs.append(field.invalid(f"{path}.operator", operator, "not a valid selector operator"))
    if key != "metadata.name":
        errs.append(field.invalid(f"{path}.key", key, "not a valid field selector key"))
    else:
        for i, value in enumerate(values):
            errs += [field.invalid(f"{path}.values[{i}]", value, m) for m in names.is_dns1123_subdomain(value)]
    return errs


def node_selector_term(term: Term, allow_invalid_values: bool, path: str) -> list[FieldError]:
    """``ValidateNodeSelectorTerm``; ``allow_invalid_values`` accepts expression values that no label can have."""
    errs: list[FieldError] = []
    for i, expression in enumerate(term.get("matchExpressions") or ()):
        errs += _node_expression(expression, allow_invalid_values, f"{path}.matchExpressions[{i}]")
    for i, expression in enumerate(term.get("matchFields") or ()):
        errs += _node_field(expression, f"{path}.matchFields[{i}]")
    return errs


def node_selector(selector: Term, allow_invalid_values: bool, path: str) -> list[FieldError]:
    """``ValidateNodeSelector``: at least one term, each as in ``node_selector_term``."""
    terms = selector.get("nodeSelectorTerms")
    if not terms:
        return [field.required(f"{path}.nodeSelectorTerms", "must have at least one node selector term")]
    errs: list[FieldError] = []
    for i, term in enumerate(terms):
        errs += node_selector_term(term, allow_invalid_values, f"{path}.nodeSelectorTerms[{i}]")
    return errs


def _node_affinity(affinity: Term, allow_invalid_values: bool, path: str) -> list[FieldError]:
    errs: list[FieldError] = []
    if affinity.get(REQUIRED) is not None:
        errs += node_selector(affinity[REQUIRED], allow_invalid_values, f"{path}.{REQUIRED}")
    for i, term in enumerate(affinity.get(PREFERRED) or ()):
        at, weight = f"{path}.{PREFERRED}[{i}]", term.get("weight") or 0
        if not 0 < weight <= 100:
            errs.append(field.invalid(f"{at}.weight", weight, WEIGHT))
        errs += node_selector_term(term.get("preference") or {}, True, f"{at}.preference")
    return errs


# -- pods --------------------------------------------------------------------------------------------------------------


def _label_keys(keys: list[str], selector: Term | None, path: str) -> list[FieldError]:
    if not keys:
        return []
    if selector is None:
        return [field.forbidden(path, "must not be specified when labelSelector is not set")]
    errs: list[FieldError] = []
    for i, key in enumerate(keys):
        errs += label_name(key, f"{path}[{i}]")
    return errs


def match_keys(term: Term, path: str) -> list[FieldError]:
    """``validateMatchLabelKeysAndMismatchLabelKeys`` of a term whose keys have been merged into its selector.

    Keys are label names, require a selector and may be in one list only; the client's own selector may not use a match key.
    """
    match, mismatch = term.get("matchLabelKeys") or [], term.get("mismatchLabelKeys") or []
    selector = term.get("labelSelector")
    errs = _label_keys(match, selector, f"{path}.matchLabelKeys")
    errs += _label_keys(mismatch, selector, f"{path}.mismatchLabelKeys")
    if selector is not None and match:
        at = {key: i for i, key in enumerate(match)}
        seen = set(selector.get("matchLabels") or ())
        for expression in selector.get("matchExpressions") or ():
            key = expression.get("key")
            # The first expression of a key was merged in; a second one is the client's.
            if key in at and key in seen:
                errs.append(field.invalid(f"{path}[{at[key]}]", key, "exists in both matchLabelKeys and labelSelector"))
            seen.add(key)
    other = set(mismatch)
    for i, key in enumerate(match):
        if key in other:
            message = "exists in both matchLabelKeys and mismatchLabelKeys"
            errs.append(field.invalid(f"{path}.matchLabelKeys[{i}]", key, message))
    return errs


def _pod_affinity_term(term: Term, allow_invalid_values: bool, path: str) -> list[FieldError]:
    errs = label_selector(term.get("labelSelector"), f"{path}.labelSelector", allow_invalid_values)
    errs += label_selector(term.get("namespaceSelector"), f"{path}.namespaceSelector", allow_invalid_values)
    for name in term.get("namespaces") or ():
        errs += [field.invalid(f"{path}.namespace", name, m) for m in names.is_dns1123_label(name)]
    errs += match_keys(term, path)
    key = term.get("topologyKey") or ""
    if not key:
        errs.append(field.required(f"{path}.topologyKey", "can not be empty"))
    return errs + label_name(key, f"{path}.topologyKey")


def _pod_affinity(affinity: Term, allow_invalid_values: bool, path: str) -> list[FieldError]:
    errs: list[FieldError] = []
    for i, term in enumerate(affinity.get(REQUIRED) or ()):
        errs += _pod_affinity_term(term, allow_invalid_values, f"{path}.{REQUIRED}[{i}]")
    for i, term in enumerate(affinity.get(PREFERRED) or ()):
        at, weight = f"{path}.{PREFERRED}[{i}]", term.get("weight") or 0
        if not 0 < weight <= 100:
            errs.append(field.invalid(f"{at}.weight", weight, WEIGHT))
        errs += _pod_affinity_term(term.get("podAffinityTerm") or {}, allow_invalid_values, f"{at}.podAffinityTerm")
    return errs


def affinity(spec: Term, options: Options, path: str) -> list[FieldError]:
    """Validate affinity; the options tolerate stored invalid label values in pod terms and required node terms."""
    errs: list[FieldError] = []
    if spec.get("nodeAffinity") is not None:
        errs += _node_affinity(spec["nodeAffinity"], options.node_values, f"{path}.nodeAffinity")
    for kind in ("podAffinity", "podAntiAffinity"):
        if spec.get(kind) is not None:
            errs += _pod_affinity(spec[kind], options.affinity_values, f"{path}.{kind}")
    return errs


# -- taints and tolerations --------------------------------------------------------------------------------------------


def taint_effect(effect: str, allow_empty: bool, path: str) -> list[FieldError]:
    """``ValidateTaintEffect``: one of ``TAINT_EFFECTS``. An empty one is an error, too: "Required value", or with ``allow_empty``
    "Unsupported value".
    """
    if effect in TAINT_EFFECTS:
        return []
    if not effect and not allow_empty:
        return [field.required(path)]
    return [unsupported(path, effect, TAINT_EFFECTS)]


def compares(spec: Mapping[str, Any]) -> bool:
    """Whether the gate TaintTolerationComparisonOperators is on, or ``spec`` already uses the operators."""
    if features.DEFAULT.enabled("TaintTolerationComparisonOperators"):
        return True
    return any(item.get("operator") in COMPARISONS for item in spec.get("tolerations") or ())


def _comparison(operator: str, value: str, allowed: bool, path: str) -> list[FieldError]:
    if not allowed:
        # The message lists them nevertheless.
        return [unsupported(f"{path}.operator", operator, ("Equal", "Exists", *COMPARISONS))]
    message = names.EMPTY_ERROR if not value else "" if _DECIMAL.fullmatch(value) else "must be a valid decimal integer in canonical form"
    errs = [field.invalid(f"{path}.value", value, message)] if message else []
    try:
        int64(value)
    except DecodeError as err:
        errs.append(field.invalid(f"{path}.value", value, str(err)))
    return errs


def tolerations(items: list[dict[str, Any]], path: str, comparing: bool | None = None) -> list[FieldError]:
    """``ValidateTolerations``: key, operator and value must fit together, and only NoExecute may have a duration.

    ``comparing``: whether numbers may be compared; None: as the feature gate says.
    """
    errs: list[FieldError] = []
    for i, item in enumerate(items):
        at = f"{path}[{i}]"
        key, operator, value = item.get("key") or "", item.get("operator") or "", item.get("value") or ""
        effect = item.get("effect") or ""
        if key:
            errs += label_name(key, f"{at}.key")
        elif operator != "Exists":
            message = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            errs.append(field.invalid(f"{at}.operator", operator, message))
        if item.get("tolerationSeconds") is not None and effect != "NoExecute":
            message = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            errs.append(field.invalid(f"{at}.effect", effect, message))
        if operator in ("Equal", ""):
            messages = cached.label_value(value)
            if messages:
                errs.append(field.invalid(f"{at}.operator", value, ";".join(messages)))
        elif operator == "Exists":
            if value:
                errs.append(field.invalid(f"{at}.operator", value, "value must be empty when `operator` is 'Exists'"))
        elif operator in COMPARISONS:
            errs += _comparison(operator, value, compares({}) if comparing is None else comparing, at)
        else:
            errs.append(unsupported(f"{at}.operator", operator, ("Equal", "Exists")))
        if effect:
            errs += taint_effect(effect, True, f"{at}.effect")
    return errs


# -- topology spread ---------------------------------------------------------------------------------------------------


def legacy_match_keys(term: Term, path: str) -> list[FieldError]:
    """Validate matchLabelKeys by the rules from before they were merged into the selector, which then must not use them."""
    keys, selector = term.get("matchLabelKeys") or (), term.get("labelSelector")
    if not keys:
        return []
    errs: list[FieldError] = []
    if selector is None:
        errs.append(field.forbidden(path, "must not be specified when labelSelector is not set"))
    used = {*((selector or {}).get("matchLabels") or ()), *(e.get("key") for e in (selector or {}).get("matchExpressions") or ())}
    for i, key in enumerate(keys):
        errs += label_name(key, f"{path}[{i}]")
        if key in used:
            errs.append(field.invalid(f"{path}[{i}]", key, "exists in both matchLabelKeys and labelSelector"))
    return errs


def topology_spread(items: list[dict[str, Any]], path: str, options: Options) -> list[FieldError]:
    """``validateTopologySpreadConstraints``: each on its own, and no two with the same topology key and whenUnsatisfiable. The options
    tolerate stored errors in selectors.
    """
    errs: list[FieldError] = []
    legacy = any(item.get("matchLabelKeys") for item in items) and options.legacy_match_keys
    last = {(item.get("topologyKey") or "", item.get("whenUnsatisfiable") or ""): i for i, item in enumerate(items)}
    for i, item in enumerate(items):
        at = f"{path}[{i}]"
        skew, key, action = item.get("maxSkew") or 0, item.get("topologyKey") or "", item.get("whenUnsatisfiable") or ""
        if skew <= 0:
            errs.append(field.invalid(f"{at}.maxSkew", skew, "must be greater than zero"))
        if not key:
            errs.append(field.required(f"{at}.topologyKey", "can not be empty"))
        if action not in ("DoNotSchedule", "ScheduleAnyway"):
            errs.append(unsupported(f"{at}.whenUnsatisfiable", action, ("DoNotSchedule", "ScheduleAnyway")))
        if last[key, action] > i:
            errs.append(field.duplicate(f"{at}.{{topologyKey, whenUnsatisfiable}}", f"{{{key}, {action}}}"))
        errs += _min_domains(item.get("minDomains"), action, f"{at}.minDomains")
        for name in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            policy = item.get(name)
            if policy is not None and policy not in ("Honor", "Ignore"):
                errs.append(unsupported(f"{at}.{name}", policy, ("Honor", "Ignore")))
        errs += legacy_match_keys(item, f"{at}.matchLabelKeys") if legacy else match_keys(item, at)
        found = label_selector(item.get("labelSelector"), f"{at}.labelSelector")
        if found and not options.spread_selector:
            errs += found
    return errs


def _min_domains(count: int | None, action: str, path: str) -> list[FieldError]:
    if count is None:
        return []
    errs = []
    if count <= 0:
        errs.append(field.invalid(path, count, "must be greater than zero"))
    if action != "DoNotSchedule":
        message = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
        errs.append(field.invalid(path, count, message))
    return errs
