"""Validation of metav1.LabelSelector (``apis/meta/v1/validation``). Matching is in ``selectors``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kas.meta import cached, field
from kas.meta.field import FieldError
from kas.meta.metachecks import LABEL_SELECTOR, LABELS
from kas.meta.selectors import LabelSelector, SelectorError, from_label_selector


def label_name(name: str, path: str) -> list[FieldError]:
    """``ValidateLabelName``: a qualified name; one error per problem."""
    return [field.invalid(path, name, m) for m in cached.qualified_name(name)]


def labels(items: Mapping[str, str] | None, path: str) -> list[FieldError]:
    """``ValidateLabels``: every key, then its value, in key order."""
    if not items or LABELS.passes(items):
        return []
    errs: list[FieldError] = []
    for key in sorted(items):
        errs += [field.invalid(path, key, m) for m in cached.qualified_name(key)]
        errs += [field.invalid(path, items[key], m) for m in cached.label_value(items[key])]
    return errs


def label_selector(selector: Mapping[str, Any] | None, path: str, allow_invalid_values: bool = False) -> list[FieldError]:
    """``ValidateLabelSelector``. With ``allow_invalid_values``, the values of expressions are not checked, for stored objects."""
    if not selector or LABEL_SELECTOR.passes(selector):
        return []
    errs = labels(selector.get("matchLabels"), f"{path}.matchLabels")
    for i, term in enumerate(selector.get("matchExpressions") or ()):
        at, operator, values = f"{path}.matchExpressions[{i}]", term.get("operator") or "", term.get("values") or ()
        if operator in ("In", "NotIn"):
            if not values:
                errs.append(field.required(f"{at}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
        elif operator in ("Exists", "DoesNotExist"):
            if values:
                message = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                errs.append(field.forbidden(f"{at}.values", message))
        else:
            errs.append(field.invalid(f"{at}.operator", operator, "not a valid selector operator"))
        errs += label_name(term.get("key") or "", f"{at}.key")
        if not allow_invalid_values:
            for j, value in enumerate(values):
                errs += [field.invalid(f"{at}.values[{j}]", value, m) for m in cached.label_value(value)]
    return errs


def has_invalid_value(selector: Mapping[str, Any] | None) -> bool:
    """``LabelSelectorHasInvalidLabelValue``: whether an expression has a value that no label can have."""
    return any(cached.label_value(v) for term in (selector or {}).get("matchExpressions") or () for v in term.get("values") or ())


def is_empty(selector: Mapping[str, Any]) -> bool:
    """Whether the selector selects everything."""
    return not selector.get("matchLabels") and not selector.get("matchExpressions")


def converted(selector: Mapping[str, Any] | None) -> LabelSelector | None:
    """``LabelSelectorAsSelector``; None for an invalid selector. An absent selector matches nothing, an empty one everything."""
    try:
        return from_label_selector(selector)
    except SelectorError:
        return None
